"""Drop-in replacements for two functions of mamba_ssm: same names, argument order and return rules."""

import math
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from ops_ascend.dispatch import selective_scan, ssd_scan


def mamba_chunk_scan_combined(
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    chunk_size: int,
    D: Tensor | None = None,
    z: Tensor | None = None,
    dt_bias: Tensor | None = None,
    initial_states: Tensor | None = None,
    seq_idx: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] = (0.0, math.inf),
    return_final_states: bool = False,
    return_varlen_states: bool = False,
) -> Tensor | tuple[Tensor, ...]:
    """mamba_ssm.ops.triton.ssd_combined.mamba_chunk_scan_combined on top of ops_ascend.ssd_scan.

    Args:
        x: (B, L, H, P); every tensor as in ssd_scan.
        dt: (B, L, H).
        A: (H,).
        B: (B, L, G, N).
        C: (B, L, G, N).
        chunk_size: tokens per chunk at most.
        D: (H,) or (H, P).
        z: (B, L, H, P).
        dt_bias: (H,).
        initial_states: (B, H, P, N).
        seq_idx: (B, L).
        cu_seqlens: (sequences + 1,), where each packed sequence starts and ends; read for varlen states only.
        dt_softplus: whether softplus is applied to dt.
        dt_limit: (low, high) to which the step is clamped.
        return_final_states: also return the state after the last token, (B, H, P, N).
        return_varlen_states: also return the state after each packed sequence, (sequences, H, P, N), each
            from a zero state; needs a batch of one.

    Returns:
        y, or a tuple of y, then final states, then varlen states, as far as they are asked for.
    """
    y, final_states = ssd_scan(
        x,
        dt,
        A,
        B,
        C,
        chunk_size=chunk_size,
        D=D,
        z=z,
        dt_bias=dt_bias,
        dt_softplus=dt_softplus,
        dt_limit=dt_limit,
        initial_states=initial_states,
        seq_idx=seq_idx,
    )
    results = [y, final_states] if return_final_states else [y]
    if return_varlen_states:
        if cu_seqlens is None or x.shape[0] != 1:
            raise ValueError(
                "mamba_chunk_scan_combined: return_varlen_states needs cu_seqlens and a batch of one "
                f"(got a batch of {x.shape[0]})"
            )

        def state_after(begin: int, end: int) -> Tensor:
            own = slice(begin, end)
            options: dict[str, Any] = {"dt_bias": dt_bias, "dt_softplus": dt_softplus, "dt_limit": dt_limit}
            return ssd_scan(x[:, own], dt[:, own], A, B[:, own], C[:, own], chunk_size=chunk_size, **options)[
                1
            ]

        results.append(torch.cat([state_after(*bounds) for bounds in pairwise(cu_seqlens.tolist())]))
    return results[0] if len(results) == 1 else tuple(results)


def selective_scan_fn(
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    z: Tensor | None = None,
    delta_bias: Tensor | None = None,
    delta_softplus: bool = False,
    return_last_state: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """mamba_ssm.ops.selective_scan_interface.selective_scan_fn on top of ops_ascend.selective_scan.

    Args:
        u: (B, D, L); every tensor as in selective_scan.
        delta: (B, D, L).
        A: (D, N), real.
        B: (B, N, L), (B, G, N, L), or (D, N) for one that does not depend on the input.
        C: as B.
        D: (D,).
        z: (B, D, L).
        delta_bias: (D,).
        delta_softplus: whether softplus is applied to delta.
        return_last_state: also return the state after the last token, (B, D, N); unlike mamba_ssm's it has a
            gradient.

    Returns:
        y, or (y, last_state).

    Raises:
        NotImplementedError: A, B or C is complex.
    """
    for name, tensor in (("A", A), ("B", B), ("C", C)):
        if tensor.is_complex():
            raise NotImplementedError(f"selective_scan_fn: {name} ({tensor.dtype}) must be real")
    if B.dim() == 2 or C.dim() == 2:
        B, C = (_each_channel(t, u) for t in (B, C))
    y, last_state = selective_scan(
        u, delta, A, B, C, D=D, z=z, delta_bias=delta_bias, delta_softplus=delta_softplus
    )
    return (y, last_state) if return_last_state else y


def _each_channel(weights: Tensor, u: Tensor) -> Tensor:
    """Give every channel a group of its own, (B, D, N, L), without a copy for a constant (D, N)."""
    batch, dim, seqlen = u.shape
    if weights.dim() == 2:
        return weights.to(u.dtype)[None, :, :, None].expand(batch, -1, -1, seqlen)
    if weights.dim() == 3:
        weights = weights.unsqueeze(1)
    return weights.repeat_interleave(dim // weights.shape[1], dim=1)
