"""A moving average of the weights, evaluated and stored beside them."""

from __future__ import annotations

import logging
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer
from timm.utils import ModelEmaV3

from vmamba2.training.checkpoint_files import EMA_KEY, CheckpointError
from vmamba2.training.metrics import EvaluationMetrics

log = logging.getLogger(__name__)

# Fewer "memory lengths" of updates than this, and the average still holds much of the initial weights.
ENOUGH_MEMORY = 3.0


class EmaWeights(Callback):
    """Keeps an exponential moving average of the network in a copy of its own.

    The trained weights are never exchanged for the average: validation runs both and reports `val/*` for the
    weights and `val/ema_*` for the average, and a checkpoint holds both, under `state_dict` and
    `ema_state_dict`. Until the first update the average equals the weights, bit for bit.

    The average covers floating-point buffers too (running statistics of a BatchNorm); counters are copied.

    Args:
        decay: share of the old average that an update keeps.
        warmup: start with a small decay, min(decay, 1 - (1 + updates)^(-2/3)), so that short runs forget the
            initial weights too.
        start_step: the average follows the weights exactly up to this optimizer update.
    """

    def __init__(self, decay: float, warmup: bool = True, start_step: int = 0) -> None:
        if not 0 < decay < 1:
            raise ValueError(f"ema: decay ({decay}) must lie between 0 and 1")
        self.decay = decay
        self.warmup = warmup
        self.start_step = start_step
        self.ema: ModelEmaV3 | None = None
        self.metrics: EvaluationMetrics | None = None
        self._updates_seen = 0

    @property
    def model(self) -> torch.nn.Module:
        """The averaged network."""
        assert self.ema is not None
        return self.ema.module

    def setup(self, trainer: Trainer, pl_module: Any, stage: str) -> None:
        """Copy the network, once per process."""
        if self.ema is None:
            self.ema = ModelEmaV3(
                pl_module.model,
                decay=self.decay,
                use_warmup=self.warmup,
                update_after_step=self.start_step,
            ).requires_grad_(False)
            self.ema.module = trainer.precision_plugin.convert_module(self.ema.module)
            self.metrics = EvaluationMetrics(pl_module.hparams["num_classes"])

    def on_fit_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Warn about a decay that this run is too short for."""
        self._to_device(pl_module)
        updates = trainer.max_epochs * pl_module.schedule.updates_per_epoch
        memory = (updates - self.start_step) * (1 - self.decay)
        if not self.warmup and memory < ENOUGH_MEMORY:
            log.warning(
                "ema: %d updates at decay %g leave %.0f %% of the initial weights in the average; "
                "set ema.warmup=true or a smaller ema.decay",
                updates - self.start_step, self.decay, 100 * self.decay ** max(updates - self.start_step, 0),
            )  # fmt: skip

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Count updates from where the run continues."""
        self._updates_seen = trainer.global_step

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Update after every optimizer update, not after every batch of an accumulation."""
        if trainer.global_step != self._updates_seen:
            self._updates_seen = trainer.global_step
            assert self.ema is not None
            self.ema.update(pl_module.model, step=trainer.global_step)

    def on_validation_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Follow the module to its device."""
        self._to_device(pl_module)

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: Any,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Evaluate the average on the same batch; its logits replace none of the weights'."""
        images, targets = batch
        with trainer.precision_plugin.val_step_context():
            logits = self.model(images)
        assert self.metrics is not None
        self.metrics.update(logits, targets)
        outputs["ema_logits"] = logits

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Report the average's metrics."""
        assert self.metrics is not None
        pl_module.log_dict(self.metrics.results("val/ema_"))
        self.metrics.reset()

    def on_save_checkpoint(self, trainer: Trainer, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Put the average beside the weights."""
        checkpoint[EMA_KEY] = self.model.state_dict()

    def on_load_checkpoint(self, trainer: Trainer, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Take the average from the checkpoint, never from its weights."""
        if EMA_KEY not in checkpoint:
            raise CheckpointError("ema: the checkpoint must hold an average, or set ema.enabled=false")
        self.model.load_state_dict(checkpoint[EMA_KEY])

    def _to_device(self, pl_module: Any) -> None:
        assert self.ema is not None
        assert self.metrics is not None
        self.ema.to(pl_module.device)
        self.metrics.to(pl_module.device)
