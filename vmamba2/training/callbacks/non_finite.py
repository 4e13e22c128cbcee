"""Stop a run whose loss or weights are no longer numbers, before it saves them."""

from __future__ import annotations

from typing import Any

import torch
from lightning.pytorch import Callback, Trainer
from torch import Tensor, nn


class NonFiniteError(ArithmeticError):
    """Training cannot go on; the message says where it broke."""


class NonFiniteGuard(Callback):
    """Checks the loss before every backward pass and all weights before every checkpoint.

    Args:
        every_n_steps: look at the loss every so many batches; on an accelerator a look waits for the device.
    """

    def __init__(self, every_n_steps: int = 1) -> None:
        self.every_n_steps = every_n_steps
        self._batch_idx = 0

    def on_train_batch_start(self, trainer: Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Note which batch is on its way."""
        self._batch_idx = batch_idx

    def on_before_backward(self, trainer: Trainer, pl_module: Any, loss: Tensor) -> None:
        """Look at the loss before it can reach the weights."""
        if self._batch_idx % self.every_n_steps == 0 and not bool(torch.isfinite(loss)):
            broken = first_non_finite(pl_module.model)
            cause = f"{broken} is the first tensor that is not finite" if broken else "all weights are finite"
            raise NonFiniteError(f"the loss is {loss.item()} {self._where(trainer)}; {cause}")

    def on_train_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Look at the weights: a finite loss can still have broken them in the last update."""
        broken = first_non_finite(pl_module.model)
        if broken:
            raise NonFiniteError(f"{broken} is no longer finite {self._where(trainer)}")

    def _where(self, trainer: Trainer) -> str:
        return (
            f"in epoch {trainer.current_epoch + 1}, batch {self._batch_idx + 1} (step {trainer.global_step})"
        )


def first_non_finite(model: nn.Module) -> str:
    """The name of the first parameter or buffer of a model with a NaN or an infinity, or ""."""
    for name, tensor in model.state_dict().items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            return name
    return ""
