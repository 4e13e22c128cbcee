"""One row per epoch: in metrics.csv, and as a line on the terminal and in the log."""

from __future__ import annotations

import csv
import logging
from pathlib import Path
from typing import Any

import numpy as np
from lightning.pytorch import Callback, Trainer

log = logging.getLogger(__name__)

NAME = "metrics.csv"
COLUMNS = (
    "epoch", "step", "lr", "train/loss", "train/acc1", "val/loss", "val/acc1", "val/acc5",
    "val/ema_loss", "val/ema_acc1", "val/ema_acc5", "train/images_per_s",
)  # fmt: skip


class EpochReport(Callback):
    """Writes `metrics.csv`: a row per finished epoch, a column per metric, no holes.

    `epoch` counts finished epochs, `step` optimizer updates, `lr` is that of the last update, accuracies are
    in percent. The file is written before the epoch's checkpoint, and a resumed run drops what lies after
    its checkpoint: it looks as if the run had never stopped.

    Args:
        run_dir: the run folder.
    """

    def __init__(self, run_dir: str) -> None:
        self.path = Path(run_dir) / NAME
        self.rows: list[dict[str, str]] = []
        self._validated = False

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Continue the table."""
        rows = read_rows(self.path) if self.path.is_file() else []
        self.rows = [row for row in rows if int(row["step"]) <= trainer.global_step]

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Note that validation metrics belong to this epoch."""
        self._validated = self._validated or not trainer.sanity_checking

    def on_train_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Write the row and say it."""
        row = self._row(trainer, pl_module)
        self._validated = False
        self.rows.append(row)
        if trainer.is_global_zero and not trainer.fast_dev_run:  # type: ignore[attr-defined]
            write_rows(self.path, self.rows)
        log.info("%s", epoch_line(row, trainer.max_epochs or 0))

    def _row(self, trainer: Trainer, pl_module: Any) -> dict[str, str]:
        step = trainer.global_step
        values: dict[str, Any] = {"lr": pl_module.learning_rate(step - 1)}
        values |= {
            name: value
            for name, value in trainer.callback_metrics.items()
            if name in COLUMNS and name != "lr" and (self._validated or not name.startswith("val/"))
        }
        # The shortest text that is this float32.
        texts = {name: str(np.float32(float(value))) for name, value in values.items()}
        return {"epoch": str(trainer.current_epoch + 1), "step": str(step), **texts}


def epoch_line(row: dict[str, str], max_epochs: int) -> str:
    """A row as a line for people."""
    width = len(str(max_epochs))
    parts = [f"epoch {int(row['epoch']):{width}}/{max_epochs}"]
    parts.append(f"train loss {float(row['train/loss']):.3f} accuracy {float(row['train/acc1']):5.1f} %")
    if "val/acc1" in row:
        parts.append(f"val loss {float(row['val/loss']):.3f} accuracy {float(row['val/acc1']):6.2f} %")
    if "val/ema_acc1" in row:
        parts.append(f"EMA {float(row['val/ema_acc1']):6.2f} %")
    if "train/images_per_s" in row:
        parts.append(f"{float(row['train/images_per_s']):,.0f} images/s")
    return "   ".join(parts)


def read_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a metrics.csv; a metric that an epoch does not have is left out of its row."""
    with path.open(newline="") as file:
        return [{name: value for name, value in row.items() if value} for row in csv.DictReader(file)]


def write_rows(path: Path, rows: list[dict[str, str]]) -> None:
    """Write a metrics.csv at once."""
    columns = [name for name in COLUMNS if any(name in row for row in rows)]
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    temporary.replace(path)
