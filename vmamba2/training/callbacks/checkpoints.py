"""The two checkpoint files of a run: the last finished epoch and the best one."""

from __future__ import annotations

import math
import os
import shutil
from pathlib import Path
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint

from vmamba2.training.checkpoint_files import BEST, FOLDER, LAST


class RunCheckpoints(Checkpoint):
    """Writes `checkpoints/last.ckpt` after every epoch and `checkpoints/best.ckpt` after a better one.

    A file is complete or absent: see `AtomicCheckpoints`. The best score travels in the checkpoint, so that a
    resumed run, in this folder or in one that was moved, keeps its best file until an epoch beats it.

    Args:
        run_dir: the run folder.
        monitor: the metric that says which epoch is best.
        mode: `max` or `min`.
    """

    def __init__(self, run_dir: str, monitor: str = "val/acc1", mode: str = "max") -> None:
        if mode not in ("max", "min"):
            raise ValueError(f"checkpoints: mode ({mode}) must be max or min")
        self.folder = Path(run_dir) / FOLDER
        self.monitor = monitor
        self.mode = mode
        self.best_score: float | None = None
        self.best_epoch: int | None = None
        self._validated = False

    @property
    def last_path(self) -> Path:
        """The checkpoint of the last finished epoch."""
        return self.folder / LAST

    @property
    def best_path(self) -> Path:
        """The checkpoint of the best epoch."""
        return self.folder / BEST

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Note that the monitored metric belongs to this epoch."""
        self._validated = self._validated or not trainer.sanity_checking

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save the epoch; the best file first: killed between the two, a run repeats the epoch and it."""
        validated, self._validated = self._validated, False
        if trainer.fast_dev_run:  # type: ignore[attr-defined]
            return
        if validated and self._improves(trainer):
            trainer.save_checkpoint(self.best_path, weights_only=False)
            if trainer.is_global_zero:
                replace_by_link(self.best_path, self.last_path)
            trainer.strategy.barrier("checkpoints")
        else:
            trainer.save_checkpoint(self.last_path, weights_only=False)

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run has to know."""
        return {"monitor": self.monitor, "best_score": self.best_score, "best_epoch": self.best_epoch}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue with the best score so far, when it is a score of the same metric."""
        if state_dict["monitor"] == self.monitor:
            self.best_score, self.best_epoch = state_dict["best_score"], state_dict["best_epoch"]

    def _improves(self, trainer: Trainer) -> bool:
        if self.monitor not in trainer.callback_metrics:
            known = ", ".join(sorted(name for name in trainer.callback_metrics if name.startswith("val/")))
            raise ValueError(f"checkpoints: monitor ({self.monitor}) must be a metric of this run: {known}")
        score = float(trainer.callback_metrics[self.monitor])
        if not math.isfinite(score):
            return False
        sign = 1 if self.mode == "max" else -1
        if self.best_score is not None and sign * score <= sign * self.best_score:
            return False
        self.best_score, self.best_epoch = score, trainer.current_epoch + 1
        return True


def replace_by_link(source: Path, target: Path) -> None:
    """Make `target` the same file as `source`, at once; a copy where the file system has no hard links."""
    temporary = target.with_name(f".{target.name}.tmp")
    temporary.unlink(missing_ok=True)
    try:
        os.link(source, temporary)
    except OSError:
        shutil.copyfile(source, temporary)
    temporary.replace(target)
