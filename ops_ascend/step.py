"""The step of the recurrences: clamp(softplus(raw + bias)), and its gradient.

Shared by the Mamba-2 and the Mamba-1 scan. Softplus is the identity above 20, as in PyTorch and mamba_ssm,
so that it never overflows and its slope there is exactly one.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

_SOFTPLUS_THRESHOLD = 20.0


def step_size(
    raw: Tensor, bias: Tensor | None, softplus: bool, limit: tuple[float, float], dtype: torch.dtype
) -> Tensor:
    """Turn raw steps into the steps of the recurrence.

    Args:
        raw: any shape; the bias broadcasts against it.
        bias: added before softplus.
        softplus: whether softplus is applied.
        limit: (low, high) of the final clamp; NaN passes through.
        dtype: of the computation and the result, float32 or wider.
    """
    step = raw.to(dtype)
    if bias is not None:
        step = step + bias.to(dtype)
    if softplus:
        step = F.softplus(step, threshold=_SOFTPLUS_THRESHOLD)
    return step.clamp(*limit)


def step_size_backward(
    dstep: Tensor, raw: Tensor, bias: Tensor | None, softplus: bool, limit: tuple[float, float]
) -> Tensor:
    """Gradient of step_size with respect to the biased raw step: zero wherever the clamp is active."""
    biased = raw.to(dstep.dtype)
    if bias is not None:
        biased = biased + bias.to(dstep.dtype)
    unclamped = F.softplus(biased, threshold=_SOFTPLUS_THRESHOLD) if softplus else biased
    low, high = limit
    outside = (unclamped < low) | (unclamped > high)
    # A product would turn an infinite gradient at a clamped step into NaN.
    gradient = dstep.masked_fill(outside, 0.0)
    if softplus:
        slope = torch.where(biased > _SOFTPLUS_THRESHOLD, torch.ones_like(biased), torch.sigmoid(biased))
        gradient = gradient * slope
    return gradient
