"""The moving bar: one line with loss, accuracy and images per second of the epoch so far."""

from __future__ import annotations

import shutil
import time
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ProgressBar
from tqdm import tqdm


class EpochBar(ProgressBar):
    """A bar per epoch that leaves nothing behind; on a terminal only, so that logs stay readable.

    Args:
        refresh_s: seconds between two looks at the loss; on an accelerator a look waits for the device.
    """

    def __init__(self, refresh_s: float = 0.5) -> None:
        super().__init__()
        self.refresh_s = refresh_s
        self._enabled = True
        self._bar: tqdm[Any] | None = None
        self._images = 0
        self._loss = self._correct = torch.zeros(())
        self._shown = 0.0

    def disable(self) -> None:
        """Show nothing (other processes than the first)."""
        self._enabled = False

    def enable(self) -> None:
        """Show the bar again."""
        self._enabled = True

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Open the epoch's bar."""
        self._images = 0
        self._loss = self._correct = torch.zeros(())
        self._shown = 0.0
        self._open(f"epoch {trainer.current_epoch + 1}/{trainer.max_epochs}", trainer.num_training_batches)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Advance, and show the means so far now and then."""
        self._images += len(batch[0])
        self._loss = self._loss + outputs["loss"].detach() * len(batch[0])
        self._correct = self._correct + outputs["correct"]
        self._advance()
        if (
            time.monotonic() - self._shown >= self.refresh_s
            and self._bar is not None
            and not self._bar.disable
        ):
            self._shown = time.monotonic()
            rate = self._images / max(self._bar.format_dict["elapsed"], 1e-9)
            loss, accuracy = float(self._loss) / self._images, 100 * float(self._correct) / self._images
            self._bar.set_postfix_str(f"loss {loss:.3f}, accuracy {accuracy:.1f} %, {rate:,.0f} images/s")

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Close it before the epoch's line is written."""
        self._close()

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Change to the validation bar."""
        self._close()
        if not trainer.sanity_checking:
            self._open("validation", sum(trainer.num_val_batches))

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Advance."""
        self._advance()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Close the validation bar."""
        self._close()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Leave the terminal clean."""
        self._close()

    def _open(self, label: str, total: float) -> None:
        # None: on a terminal only.
        disable = None if self._enabled else True
        layout = "{desc} {percentage:3.0f} %|{bar:24}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}]{postfix}"
        # A terminal that does not know its size says 0, and tqdm draws nothing there.
        size = shutil.get_terminal_size((120, 24))
        self._bar = tqdm(
            desc=label,
            total=int(total),
            leave=False,
            disable=disable,
            ncols=size.columns,
            nrows=size.lines,
            bar_format=layout,
        )

    def _advance(self) -> None:
        if self._bar is not None:
            self._bar.update()

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
