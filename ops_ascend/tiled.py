"""The Mamba-1 selective scan in tiles of time steps, plain PyTorch, with a hand-written backward.

    h_t = exp(delta_t A) h_{t-1} + delta_t u_t B_t        y_t = h_t . C_t

Within a tile everything but the recurrence is one batched operation, and each step of the recurrence is one
multiply-add into a slice of the tile's buffer. (Indexing the token axis inside a loop under autograd, as
plain implementations do, makes backward quadratic in the sequence length.) Backward keeps the inputs only: it
runs the states forward once, remembers them at the tiles' starts, and then works back from the last tile.

Layout inside a tile: time first, channels grouped, (T, B, G, K, N) with K = D / G channels in a group.
"""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from ops_ascend.calls import SelectiveCall, SelectiveGradients
from ops_ascend.spec import compute_dtype
from ops_ascend.step import step_size, step_size_backward

TILE_TOKENS = 16
# Summed over the batch, so kept in the compute dtype until the last tile.
_SHARED = ("A", "D", "delta_bias")
# mamba_ssm's selective scan has no limit on the step.
ANY_STEP = (-float("inf"), float("inf"))


def selective_forward(call: SelectiveCall) -> tuple[Tensor, Tensor]:
    """y, (B, D, L) in the dtype of u, and the last state, (B, D, N), float32 or wider."""
    y = torch.empty_like(call.u, memory_format=torch.contiguous_format)
    h = _zero_state(call)
    for part in _tiles(call):
        tile = _Tile(call, part)
        states = tile.states(h)
        # Not a view: a view would keep the whole tile alive, and the caller owns the last state.
        h = states[-1].clone()
        scanned = tile.outputs(states)
        if call.z is not None:
            scanned *= F.silu(tile.time_first(call.z))
        y[..., part] = tile.time_last(scanned)
    return y, h.flatten(1, 2)


def selective_backward(call: SelectiveCall, dy: Tensor, dlast_state: Tensor) -> SelectiveGradients:
    """Gradients of selective_forward, each in the shape and dtype of its tensor."""
    parts = list(_tiles(call))
    start = _zero_state(call)
    out = _zero_gradients(call)
    dh = dlast_state.to(start.dtype).view_as(start)
    starts = [start]
    for part in parts[:-1]:
        starts.append(_Tile(call, part).states(starts[-1])[-1].clone())
    for part in reversed(parts):
        dh = _tile_backward(call, part, starts.pop(), dy, dh, out)
    return _as_inputs(out, call)


class _Tile:
    """The quantities of one tile of time steps."""

    def __init__(self, call: SelectiveCall, part: slice) -> None:
        self._part = part
        self._ngroups = call.B.shape[1]
        self._dtype = compute_dtype(call.u)
        self.u = self.time_first(call.u)  # (T, B, G, K)
        self.A = call.A.to(self._dtype).unflatten(0, (self._ngroups, -1))  # (G, K, N)
        self.B = self.group_time_first(call.B)  # (T, B, G, N)
        self.C = self.group_time_first(call.C)
        bias = None if call.delta_bias is None else call.delta_bias.unflatten(0, (self._ngroups, -1))
        self.bias = bias
        self.raw = self.time_first(call.delta)
        self.step = step_size(self.raw, bias, call.delta_softplus, ANY_STEP, self._dtype)
        self.decay = torch.exp(self.step.unsqueeze(-1) * self.A)  # (T, B, G, K, N)
        self.D = None if call.D is None else call.D.to(self._dtype).unflatten(0, (self._ngroups, -1))

    def time_first(self, channels: Tensor) -> Tensor:
        """(B, D, L) -> this tile's (T, B, G, K) in the dtype of the computation."""
        tile = channels[..., self._part].permute(2, 0, 1).unflatten(2, (self._ngroups, -1))
        return tile.to(self._dtype).contiguous()

    def time_last(self, tile: Tensor) -> Tensor:
        """(T, B, G, K) -> (B, D, T)."""
        return tile.flatten(2).permute(1, 2, 0)

    def group_time_first(self, groups: Tensor) -> Tensor:
        """(B, G, N, L) -> this tile's (T, B, G, N) in the dtype of the computation."""
        return groups[..., self._part].permute(3, 0, 1, 2).to(self._dtype).contiguous()

    def states(self, h: Tensor) -> Tensor:
        """The state after each step, (T, B, G, K, N), from the state before the first."""
        states = (self.step * self.u).unsqueeze(-1) * self.B.unsqueeze(3)
        for token in range(states.shape[0]):
            h = torch.addcmul(states[token], self.decay[token], h, out=states[token])
        return states

    def outputs(self, states: Tensor) -> Tensor:
        """The output before the gate, (T, B, G, K)."""
        y = torch.matmul(states, self.C.unsqueeze(-1)).squeeze(-1)
        return y if self.D is None else y.addcmul_(self.u, self.D)


def _tile_backward(
    call: SelectiveCall, part: slice, start: Tensor, dy: Tensor, dh: Tensor, out: SelectiveGradients
) -> Tensor:
    """Write a tile's gradients into out; return the gradient of the state before it."""
    tile = _Tile(call, part)
    states = tile.states(start)
    dgated = tile.time_first(dy)
    dout = dgated
    if call.z is not None and out.z is not None:
        z = tile.time_first(call.z)
        sigmoid = torch.sigmoid(z)
        dout = dgated * (z * sigmoid)
        dz = dgated * tile.outputs(states) * (sigmoid * (1 + z * (1 - sigmoid)))
        out.z[..., part] = tile.time_last(dz)
    dstates, dh_before = _state_gradients(tile, dout, dh)
    out.C[..., part] = _sum_channels(dout, states)
    out.B[..., part] = _sum_channels(tile.step * tile.u, dstates)
    dproduct = torch.matmul(dstates, tile.B.unsqueeze(-1)).squeeze(-1)  # of delta u
    du = dproduct * tile.step
    if tile.D is not None and out.D is not None:
        du.addcmul_(dout, tile.D)
        out.D.add_((dout * tile.u).sum((0, 1)).flatten())
    out.u[..., part] = tile.time_last(du)
    dlog_decay = dstates.mul_(tile.decay)
    dlog_decay[0] *= start
    dlog_decay[1:] *= states[:-1]
    out.A.add_((dlog_decay * tile.step.unsqueeze(-1)).sum((0, 1)).flatten(0, 1))
    dstep = (dlog_decay * tile.A).sum(-1).addcmul_(dproduct, tile.u)
    ddelta = step_size_backward(dstep, tile.raw, tile.bias, call.delta_softplus, ANY_STEP)
    if out.delta_bias is not None:
        out.delta_bias.add_(ddelta.sum((0, 1)).flatten())
    out.delta[..., part] = tile.time_last(ddelta)
    return dh_before


def _state_gradients(tile: _Tile, dout: Tensor, dh: Tensor) -> tuple[Tensor, Tensor]:
    """Gradient of the state after each step, (T, B, G, K, N), and of the state before the tile."""
    dstates = dout.unsqueeze(-1) * tile.C.unsqueeze(3)
    dstates[-1] += dh
    for token in reversed(range(dstates.shape[0] - 1)):
        torch.addcmul(dstates[token], tile.decay[token + 1], dstates[token + 1], out=dstates[token])
    return dstates, dstates[0] * tile.decay[0]


def _sum_channels(weights: Tensor, states: Tensor) -> Tensor:
    """Sum over a group's channels of weights (T, B, G, K) times states (T, B, G, K, N): (B, G, N, T)."""
    return torch.matmul(weights.unsqueeze(3), states).squeeze(3).permute(1, 2, 3, 0)


def _tiles(call: SelectiveCall) -> Iterator[slice]:
    seqlen = call.u.shape[-1]
    for start in range(0, seqlen, TILE_TOKENS):
        yield slice(start, min(start + TILE_TOKENS, seqlen))


def _zero_state(call: SelectiveCall) -> Tensor:
    batch, dim, _ = call.u.shape
    ngroups, dstate = call.B.shape[1:3]
    return call.u.new_zeros(batch, ngroups, dim // ngroups, dstate, dtype=compute_dtype(call.u))


def _zero_gradients(call: SelectiveCall) -> SelectiveGradients:
    """Zeros for every given tensor; what the batch shares is summed in the compute dtype."""
    zeros: dict[str, Tensor | None] = dict.fromkeys(SelectiveGradients._fields)
    for name in zeros:
        tensor = getattr(call, name)
        if tensor is not None:
            dtype = compute_dtype(call.u) if name in _SHARED else tensor.dtype
            zeros[name] = torch.zeros(tensor.shape, dtype=dtype, device=tensor.device)
    return SelectiveGradients(**zeros)  # type: ignore[arg-type]


def _as_inputs(gradients: SelectiveGradients, call: SelectiveCall) -> SelectiveGradients:
    shared = {name: getattr(gradients, name) for name in _SHARED}
    return gradients._replace(
        **{name: t.to(getattr(call, name).dtype) for name, t in shared.items() if t is not None}
    )
