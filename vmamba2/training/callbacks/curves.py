"""The learning curves of a run as a picture."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, Trainer

from vmamba2.training.callbacks.epoch_report import NAME as TABLE
from vmamba2.training.callbacks.epoch_report import read_rows
from vmamba2.training.pictures import Rates, draw_curves

NAME = "curves.png"


class LearningCurves(Callback):
    """Draws `curves.png` from `metrics.csv`, now and then and when the run ends or is interrupted.

    Args:
        run_dir: the run folder.
        title: one line over the picture.
        every_s: seconds between two drawings.
    """

    def __init__(self, run_dir: str, title: str = "", every_s: float = 60.0) -> None:
        self.run_dir = Path(run_dir)
        self.title = title
        self.every_s = every_s
        self._drawn = time.monotonic()

    def on_train_epoch_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Draw when it is time; the epoch before has written its row."""
        if time.monotonic() - self._drawn >= self.every_s:
            self._draw(trainer, pl_module)

    def on_train_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Draw the whole run."""
        self._draw(trainer, pl_module)

    def on_exception(self, trainer: Trainer, pl_module: Any, exception: BaseException) -> None:
        """Draw what there is when the user stops the run."""
        if isinstance(exception, KeyboardInterrupt) and pl_module.schedule is not None:
            self._draw(trainer, pl_module)

    def _draw(self, trainer: Trainer, pl_module: Any) -> None:
        table = self.run_dir / TABLE
        if not trainer.is_global_zero or not table.is_file():
            return
        self._drawn = time.monotonic()
        rows = read_rows(table)
        if rows:
            rates = [pl_module.learning_rate(update) for update in range(int(rows[-1]["step"]))]
            smoothed = pl_module.hparams["loss"]["label_smoothing"] > 0
            draw_curves(
                self.run_dir / NAME,
                rows,
                Rates(rates, pl_module.schedule.updates_per_epoch),
                self.title,
                training="training, smoothed labels" if smoothed else "training",
            )
