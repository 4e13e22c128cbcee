"""The Mamba-1 scan as it is commonly written in PyTorch: a loop over tokens, gradients by autograd.

Written from the recurrence of arXiv:2312.00752 (algorithm 2); each step is discretised where it is used, so
that nothing of size (B, D, L, N) is made ahead.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def _step(delta: Tensor, delta_bias: Tensor | None) -> Tensor:
    return F.softplus(delta if delta_bias is None else delta + delta_bias.unsqueeze(-1))


def _finish(ys: list[Tensor], u: Tensor, D: Tensor | None) -> Tensor:
    y = torch.stack(ys, dim=-1)
    return y if D is None else y + u * D.unsqueeze(-1)


def token_loop(
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    *,
    D: Tensor | None = None,
    delta_bias: Tensor | None = None,
) -> Tensor:
    """One token after the other, taken apart before the loop: its backward is linear in the length.

    Args:
        u: (B, D, L); every tensor as in ops_ascend.selective_scan, softplus always on.
        delta: (B, D, L).
        A: (D, N).
        B: (B, N, L).
        C: (B, N, L).
        D: (D,).
        delta_bias: (D,).
    """
    step = _step(delta, delta_bias)
    h = u.new_zeros(*u.shape[:2], A.shape[1])
    ys = []
    tokens = zip(*(t.unbind(-1) for t in (step, step * u, B, C)), strict=True)
    for step_t, added_t, B_t, C_t in tokens:
        h = torch.exp(step_t.unsqueeze(-1) * A) * h + added_t.unsqueeze(-1) * B_t.unsqueeze(1)
        ys.append((h @ C_t.unsqueeze(-1)).squeeze(-1))
    return _finish(ys, u, D)


def indexed_token_loop(
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    *,
    D: Tensor | None = None,
    delta_bias: Tensor | None = None,
) -> Tensor:
    """The loop as it is published: tensors are indexed inside it, so backward is quadratic in the length.

    Every index has a backward of its own that fills a whole tensor with zeros. See token_loop for the rest.
    """
    step = _step(delta, delta_bias)
    h = u.new_zeros(*u.shape[:2], A.shape[1])
    ys = []
    for t in range(u.shape[-1]):
        step_t = step[:, :, t].unsqueeze(-1)
        h = torch.exp(step_t * A) * h + step_t * B[:, :, t].unsqueeze(1) * u[:, :, t].unsqueeze(-1)
        ys.append((h * C[:, :, t].unsqueeze(1)).sum(-1))
    return _finish(ys, u, D)
