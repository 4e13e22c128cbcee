"""What a model costs, and how many CPU threads that is worth."""

from __future__ import annotations

import torch
from torch import nn

from vmamba2.models import count_multiply_adds

# Below this much work per image, threads wait for each other longer than they compute; and where other
# programs use the same cores, that waiting makes a run tens of times slower.
SMALL_MODEL_MULTIPLY_ADDS = 20_000_000


def multiply_adds(model: nn.Module, in_chans: int, image_size: int) -> int | None:
    """Multiply-adds of one image, or None for a network that does not run on shapes alone."""
    training = model.training
    try:
        return count_multiply_adds(model.eval(), (in_chans, image_size, image_size))
    except (NotImplementedError, RuntimeError):
        return None
    finally:
        model.train(training)


def set_cpu_threads(threads: int | None, cost: int | None) -> None:
    """Set PyTorch's CPU threads: the number given, else one for a small model, else as PyTorch has them."""
    if threads is None and cost is not None and cost < SMALL_MODEL_MULTIPLY_ADDS:
        threads = 1
    if threads is not None:
        torch.set_num_threads(threads)
