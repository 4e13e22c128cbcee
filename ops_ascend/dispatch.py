"""The public operators: check the call, choose a backend, run it."""

import torch
from torch import Tensor

from ops_ascend import reference, spec
from ops_ascend.backend import choose
from ops_ascend.calls import Request
from ops_ascend.library import selective_scan_op, ssd_cross_scan_op, ssd_scan_op


def ssd_scan(
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    *,
    chunk_size: int,
    D: Tensor | None = None,
    z: Tensor | None = None,
    dt_bias: Tensor | None = None,
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] = spec.NO_LIMIT,
    initial_states: Tensor | None = None,
    seq_idx: Tensor | None = None,
    backend: str = "auto",
) -> tuple[Tensor, Tensor]:
    """Scan a sequence with the Mamba-2 SSD recurrence (arXiv:2405.21060).

        h_t = exp(dt_t A) h_{t-1} + dt_t x_t B_t^T        y_t = (h_t C_t + D x_t) * silu(z_t)

    Steps, decays and states are float32, or float64 for float64 tensors, also under autocast. Under float16
    autocast the scan takes and returns float32, as PyTorch's own reductions do: its outputs outgrow float16.
    Tensors may have any strides. An empty batch or sequence gives an empty y and the initial state back.

    Args:
        x: (B, L, H, P), float32, bfloat16, float16 or float64; B, C and z share its dtype.
        dt: (B, L, H), any floating dtype. After bias, softplus and clamp it is the step of the recurrence.
        A: (H,), any floating dtype, float32 advised; at most zero for a decaying state (not enforced).
        B: (B, L, G, N) with G dividing H: heads h * G // H .. share a group.
        C: (B, L, G, N).
        chunk_size: tokens per chunk at most. It changes speed and memory, never the result.
        D: (H,) or (H, P), the skip.
        z: (B, L, H, P), the gate.
        dt_bias: (H,), added to dt before softplus.
        dt_softplus: whether softplus is applied to dt.
        dt_limit: (low, high) to which the step is clamped; its gradient is zero outside.
        initial_states: (B, H, P, N), the state before the first token, of the first packed sequence.
        seq_idx: (B, L), int32 or int64. The state starts from zero wherever it changes.
        backend: "auto" or a name from ops_ascend.backends().

    Returns:
        y, (B, L, H, P) in the dtype of x, and final_states, (B, H, P, N) in float32 or wider; both carry
        gradients.

    Raises:
        ValueError, TypeError: a shape, dtype, device or value breaks the list above; the message names it.
        NotImplementedError: no backend takes this call; the message gives each one's reasons.
    """
    x, B, C, z = _wide_under_float16_autocast(x, B, C, z)
    spec.check_ssd(
        "ssd_scan",
        x,
        dt,
        A,
        B,
        C,
        chunk_size=chunk_size,
        D=D,
        z=z,
        dt_bias=dt_bias,
        dt_limit=dt_limit,
        initial_states=initial_states,
        seq_idx=seq_idx,
    )
    tensors = (x, dt, A, B, C, D, z, dt_bias, initial_states)
    request = _request("ssd_scan", x, x.shape[3], B.shape[3], tensors)
    chosen = choose(backend, request)
    if chosen == "reference":
        return reference.ssd_scan(
            x,
            dt,
            A,
            B,
            C,
            D=D,
            z=z,
            dt_bias=dt_bias,
            dt_softplus=dt_softplus,
            dt_limit=dt_limit,
            initial_states=initial_states,
            seq_idx=seq_idx,
        )
    options = (chunk_size, dt_softplus, *dt_limit, request.gradients, chosen)
    y, final_states, _saved = ssd_scan_op(*tensors, seq_idx, *options)
    return y, final_states


def ssd_cross_scan(
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    *,
    height: int,
    width: int,
    directions: int,
    chunk_size: int,
    D: Tensor | None = None,
    z: Tensor | None = None,
    dt_bias: Tensor | None = None,
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] = spec.NO_LIMIT,
    backend: str = "auto",
) -> Tensor:
    """Scan a grid of tokens in 1, 2 or 4 orders and average: one ssd_scan for each order.

    The orders are rows forward, rows backward, columns forward, columns backward. D x and silu(z) are the
    same in every order and are applied once, which is exact.

    Args:
        x: (B, L, H, P) with L = height * width, row after row; other tensors and options as in ssd_scan.
        dt: (B, L, H).
        A: (H,).
        B: (B, L, G, N).
        C: (B, L, G, N).
        height: rows of the grid.
        width: columns of the grid.
        directions: 1, 2 or 4: how many of the orders, in the sequence above.
        chunk_size: tokens per chunk at most.
        D: (H,) or (H, P).
        z: (B, L, H, P).
        dt_bias: (H,).
        dt_softplus: whether softplus is applied to dt.
        dt_limit: (low, high) to which the step is clamped.
        backend: "auto" or a name from ops_ascend.backends().

    Returns:
        y, (B, L, H, P) in the dtype of x.

    Raises:
        ValueError, TypeError, NotImplementedError: as ssd_scan.
    """
    x, B, C, z = _wide_under_float16_autocast(x, B, C, z)
    op = "ssd_cross_scan"
    spec.check_ssd(op, x, dt, A, B, C, chunk_size=chunk_size, D=D, z=z, dt_bias=dt_bias, dt_limit=dt_limit)
    spec.check_grid(op, x.shape[1], height, width, directions)
    chosen = choose(backend, _request(op, x, x.shape[3], B.shape[3], (x, dt, A, B, C, D, z, dt_bias)))
    if chosen == "reference":
        return reference.ssd_cross_scan(
            x,
            dt,
            A,
            B,
            C,
            height=height,
            width=width,
            directions=directions,
            D=D,
            z=z,
            dt_bias=dt_bias,
            dt_softplus=dt_softplus,
            dt_limit=dt_limit,
        )
    options = (chunk_size, dt_softplus, *dt_limit, height, width, directions)
    return ssd_cross_scan_op(x, dt, A, B, C, D, z, dt_bias, *options, chosen)


def selective_scan(
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    *,
    D: Tensor | None = None,
    z: Tensor | None = None,
    delta_bias: Tensor | None = None,
    delta_softplus: bool = False,
    backend: str = "auto",
) -> tuple[Tensor, Tensor]:
    """Scan sequences with the Mamba-1 recurrence (arXiv:2312.00752).

        h_t = exp(delta_t A) h_{t-1} + delta_t u_t B_t        y_t = (h_t . C_t + D u_t) * silu(z_t)

    for each channel. Steps, decays and states are float32, or float64 for float64 tensors, also under
    autocast; under float16 autocast the scan takes and returns float32. Tensors may have any strides.

    Args:
        u: (B, D, L), float32, bfloat16, float16 or float64; B, C and z share its dtype.
        delta: (B, D, L), any floating dtype.
        A: (D, N), any floating dtype, float32 advised.
        B: (B, N, L), or (B, G, N, L) with G dividing D.
        C: as B.
        D: (D,), the skip.
        z: (B, D, L), the gate.
        delta_bias: (D,), added to delta before softplus.
        delta_softplus: whether softplus is applied to delta.
        backend: "auto" or a name from ops_ascend.backends().

    Returns:
        y, (B, D, L) in the dtype of u, and last_state, (B, D, N) in float32 or wider. Both carry gradients.

    Raises:
        ValueError, TypeError: a shape, dtype, device or value breaks the list above; the message names it.
        NotImplementedError: no backend takes this call; the message gives each one's reasons.
    """
    u, B, C, z = _wide_under_float16_autocast(u, B, C, z)
    spec.check_selective("selective_scan", u, delta, A, B, C, D=D, z=z, delta_bias=delta_bias)
    tensors = (u, delta, A, B, C, D, z, delta_bias)
    request = _request("selective_scan", u, 1, A.shape[1], tensors)
    chosen = choose(backend, request)
    if B.dim() == 3:
        B, C = B.unsqueeze(1), C.unsqueeze(1)
    if chosen == "reference":
        return reference.selective_scan(
            u, delta, A, B, C, D=D, z=z, delta_bias=delta_bias, delta_softplus=delta_softplus
        )
    options = (delta_softplus, request.gradients, chosen)
    y, last_state, _saved = selective_scan_op(u, delta, A, B, C, D, z, delta_bias, *options)
    return y, last_state


def _request(
    op: str, first: Tensor, headdim: int, dstate: int, tensors: tuple[Tensor | None, ...]
) -> Request:
    gradients = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)
    return Request(op, first.device.type, first.dtype, headdim, dstate, gradients)


def _wide_under_float16_autocast(
    first: Tensor, B: Tensor, C: Tensor, z: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    kind = first.device.type
    # Meta tensors know no autocast, and PyTorch 2.6 cannot trace the question whether a device does.
    if first.dtype != torch.float16 or kind == "meta" or not torch.is_autocast_enabled(kind):
        return first, B, C, z
    if torch.get_autocast_dtype(kind) != torch.float16:
        return first, B, C, z
    wide = [t.float() if t is not None and t.dtype == torch.float16 else t for t in (first, B, C, z)]
    return wide[0], wide[1], wide[2], wide[3]  # type: ignore[return-value]
