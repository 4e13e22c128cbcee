"""The recurrences, one token at a time in float64: what the operators mean.

Slow on purpose and written to be read next to the papers. Gradients come from PyTorch's autograd, so this is
also the oracle for every hand-written backward.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from ops_ascend import grid, spec
from ops_ascend.step import step_size


def ssd_scan(
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    *,
    D: Tensor | None = None,
    z: Tensor | None = None,
    dt_bias: Tensor | None = None,
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] = spec.NO_LIMIT,
    initial_states: Tensor | None = None,
    seq_idx: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Mamba-2 recurrence (arXiv:2405.21060, section 3); see ops_ascend.ssd_scan for the arguments."""
    batch, _, nheads, headdim = x.shape
    heads_per_group = nheads // B.shape[2]
    wide = torch.float64
    step = step_size(dt, dt_bias, dt_softplus, dt_limit, wide)
    decay = torch.exp(step * A.to(wide))  # (B, L, H)
    x64 = x.to(wide)
    # (B, L, H, N): every head reads the B and C of its group.
    B64 = B.to(wide).repeat_interleave(heads_per_group, dim=2)
    C64 = C.to(wide).repeat_interleave(heads_per_group, dim=2)
    increments = (step.unsqueeze(-1) * x64, B64)
    if initial_states is None:
        h = x64.new_zeros(batch, nheads, headdim, B.shape[3])
    else:
        h = initial_states.to(wide)
    keep = _keep_state(seq_idx)
    ys = []
    tokens = zip(*(t.unbind(1) for t in (decay, *increments, C64)), strict=True)
    for position, (decay_t, dx_t, B_t, C_t) in enumerate(tokens):
        if keep is not None:
            h = torch.where(keep[:, position, None, None, None], h, 0.0)
        h = decay_t[..., None, None] * h + dx_t.unsqueeze(-1) * B_t.unsqueeze(-2)
        ys.append((h * C_t.unsqueeze(-2)).sum(-1))
    # Without tokens it is empty, but still a function of every argument, so that their gradients are zeros.
    nothing = (increments[0] * decay.unsqueeze(-1))[:, :0] * (B64 * C64)[:, :0].sum(-1, keepdim=True)
    y = torch.stack(ys, dim=1) if ys else nothing
    y = _skip_and_gate(y, x64, D, z)
    return y.to(x.dtype), h.to(spec.compute_dtype(x))


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
    D: Tensor | None = None,
    z: Tensor | None = None,
    dt_bias: Tensor | None = None,
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] = spec.NO_LIMIT,
) -> Tensor:
    """Mean over grid orders of one whole scan each; see ops_ascend.ssd_cross_scan."""
    orders = grid.grid_orders(height, width, directions, x.device)
    positions = grid.grid_positions(height, width, directions, x.device)
    total = torch.zeros_like(x, dtype=torch.float64)
    for order, position in zip(orders, positions, strict=True):
        y, _ = ssd_scan(
            x[:, order].double(),
            dt[:, order],
            A,
            B[:, order].double(),
            C[:, order].double(),
            D=D,
            z=None if z is None else z[:, order].double(),
            dt_bias=dt_bias,
            dt_softplus=dt_softplus,
            dt_limit=dt_limit,
        )
        total = total + y[:, position]
    return (total / directions).to(x.dtype)


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
) -> tuple[Tensor, Tensor]:
    """Mamba-1 recurrence (arXiv:2312.00752, algorithm 2); see ops_ascend.selective_scan."""
    batch, dim, _ = u.shape
    wide = torch.float64
    B64, C64 = (_per_channel(t.to(wide), dim) for t in (B, C))  # (B, D, N, L)
    bias = None if delta_bias is None else delta_bias.unsqueeze(-1)
    step = step_size(delta, bias, delta_softplus, _ANY_STEP, wide)
    u64 = u.to(wide)
    h = u64.new_zeros(batch, dim, A.shape[1])
    ys = []
    for step_t, u_t, B_t, C_t in zip(*(t.unbind(-1) for t in (step, u64, B64, C64)), strict=True):
        h = torch.exp(step_t.unsqueeze(-1) * A.to(wide)) * h + (step_t * u_t).unsqueeze(-1) * B_t
        ys.append((h * C_t).sum(-1))
    # Without tokens it is empty, but still a function of every argument, so that their gradients are zeros.
    nothing = u64[..., :0] * step[..., :0] * (A.to(wide).sum(1)[:, None] + (B64 * C64)[..., :0].sum(2))
    y = torch.stack(ys, dim=-1) if ys else nothing
    y = _skip_and_gate(y, u64, None if D is None else D.unsqueeze(-1), z)
    return y.to(u.dtype), h.to(spec.compute_dtype(u))


# mamba_ssm's selective scan has no limit on the step.
_ANY_STEP = (-float("inf"), float("inf"))


def _keep_state(seq_idx: Tensor | None) -> Tensor | None:
    """Whether the state survives into each token, (B, L): not where a new packed sequence begins."""
    if seq_idx is None:
        return None
    return F.pad(seq_idx[:, 1:] == seq_idx[:, :-1], (1, 0), value=True)[:, : seq_idx.shape[1]]


def _skip_and_gate(y: Tensor, x: Tensor, D: Tensor | None, z: Tensor | None) -> Tensor:
    if D is not None:
        # (H,) broadcasts over headdim; (H, P) and (D, 1) are already in place.
        y = y + (D.unsqueeze(-1) if D.dim() == 1 else D).to(y.dtype) * x
    if z is not None:
        y = y * F.silu(z.to(y.dtype))
    return y


def _per_channel(grouped: Tensor, dim: int) -> Tensor:
    if grouped.dim() == 3:
        grouped = grouped.unsqueeze(1)
    return grouped.repeat_interleave(dim // grouped.shape[1], dim=1)
