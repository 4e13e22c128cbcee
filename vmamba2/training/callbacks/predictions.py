"""Validation images with what the model sees in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer

from vmamba2.training.pictures import Prediction, draw_predictions

NAME = "predictions.png"


class PredictionGrid(Callback):
    """Draws `predictions.png`: mistakes of the last validation first, then right answers.

    Shows the averaged weights when there are some, otherwise the weights themselves.

    Args:
        run_dir: the run folder.
        images: how many images the picture has.
        mistakes: how many of them may be mistakes.
    """

    def __init__(self, run_dir: str, images: int = 32, mistakes: int = 16) -> None:
        if images < 1:
            raise ValueError(f"predictions: images ({images}) must be at least 1")
        self.path = Path(run_dir) / NAME
        self.images = images
        self.mistakes = min(mistakes, images)
        self._forget()

    def on_validation_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Forget the validation before."""
        self._forget()

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: Any,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Keep the first mistakes and the first right answers of every class."""
        images, targets = batch
        probabilities = outputs.get("ema_logits", outputs["logits"]).float().softmax(dim=1)
        confidences, predicted = probabilities.max(dim=1)
        self._seen += len(targets)
        wrong = predicted != targets
        self._wrong_seen += int(wrong.sum())
        for i in torch.nonzero(wrong).flatten().tolist()[: self.mistakes - len(self._wrong)]:
            self._wrong.append(_prediction(images[i], targets[i], predicted[i], confidences[i]))
        per_class = -(-self.images // pl_module.hparams["num_classes"])
        for i in torch.nonzero(~wrong).flatten().tolist():
            target = int(targets[i])
            if len(self._right.get(target, [])) < per_class and (
                target in self._right or len(self._right) < self.images
            ):
                kept = _prediction(images[i], targets[i], predicted[i], confidences[i])
                self._right.setdefault(target, []).append(kept)

    def on_fit_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Draw after training."""
        self._draw(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Draw after a validation of its own."""
        if trainer.state.fn == "validate":
            self._draw(trainer)

    def _draw(self, trainer: Trainer) -> None:
        turns = max(map(len, self._right.values()), default=0)
        right = [
            group[turn]
            for turn in range(turns)
            for _, group in sorted(self._right.items())
            if turn < len(group)
        ]
        shown = (self._wrong + right)[: self.images]
        if not shown or not trainer.is_global_zero:
            return
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        title = f"{self._wrong_seen} of {self._seen} validation images wrong"
        if self._wrong:
            title += "; mistakes come first, in red"
        draw_predictions(self.path, shown, data.class_names, data.mean, data.std, title)

    def _forget(self) -> None:
        self._wrong: list[Prediction] = []
        self._right: dict[int, list[Prediction]] = {}
        self._seen = self._wrong_seen = 0


def _prediction(image: Any, target: Any, predicted: Any, confidence: Any) -> Prediction:
    return Prediction(image.cpu().clone(), int(target), int(predicted), float(confidence))
