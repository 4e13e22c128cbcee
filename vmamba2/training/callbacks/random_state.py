"""Random states in the checkpoint, so that a resumed run draws what the unbroken one would have drawn."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from vmamba2.training.checkpoint_files import RNG_KEY


class RandomState(Callback):
    """Saves the generators of Python, NumPy and PyTorch and restores them before the first batch."""

    def __init__(self) -> None:
        self._loaded: dict[str, Any] | None = None

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Store the states as plain values and tensors."""
        kind, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
        state: dict[str, Any] = {
            "python": random.getstate(),
            "numpy": (
                str(kind),
                torch.from_numpy(np.asarray(keys, dtype=np.int64)),
                position,
                has_gauss,
                cached,
            ),
            "torch": torch.get_rng_state(),
        }
        if torch.cuda.is_available():
            state["cuda"] = torch.cuda.get_rng_state_all()
        checkpoint[RNG_KEY] = state

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Keep the states until everything else that draws numbers at the start has been built."""
        self._loaded = checkpoint.get(RNG_KEY)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Restore."""
        if self._loaded is None:
            return
        state, self._loaded = self._loaded, None
        kind, keys, position, has_gauss, cached = state["numpy"]
        random.setstate(state["python"])
        np.random.set_state((kind, keys.numpy().astype(np.uint32), position, has_gauss, cached))
        torch.set_rng_state(state["torch"])
        devices = state.get("cuda", [])
        if devices and len(devices) == torch.cuda.device_count():
            torch.cuda.set_rng_state_all(devices)
