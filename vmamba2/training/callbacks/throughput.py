"""Training images per second of every epoch."""

from __future__ import annotations

import time
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer


class Throughput(Callback):
    """Reports `train/images_per_s` over all processes, loading included, validation and saving not."""

    def __init__(self) -> None:
        self._images = 0
        self._started = 0.0
        self._seconds = 0.0

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start counting."""
        self._images, self._seconds, self._started = 0, 0.0, time.monotonic()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count the batch; the epoch's clock stops with its last one, when the device is done."""
        self._images += len(batch[0])
        if trainer.is_last_batch:
            if pl_module.device.type == "cuda":
                torch.cuda.synchronize(pl_module.device)
            self._seconds = time.monotonic() - self._started

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Report."""
        if self._seconds > 0:
            pl_module.log("train/images_per_s", self._images * trainer.world_size / self._seconds)
