"""The Mamba-2 operators in plain PyTorch with a hand-written backward; runs on any device.

The scan itself is chunk_scan.py; here are the steps, the skip D x, the gate silu(z), the grid orders, and the
slicing of the batch: work goes in slices whose temporaries stay near WORKSPACE_BYTES, and nothing but the
inputs is kept for backward.
"""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from ops_ascend import grid
from ops_ascend.calls import CrossCall, SSDCall, SSDGradients
from ops_ascend.chunk_scan import ScanGradients, ScanInputs, chunk_length, scan_slice, scan_slice_backward
from ops_ascend.spec import compute_dtype
from ops_ascend.step import step_size, step_size_backward

WORKSPACE_BYTES = 48 * 2**20


def ssd_forward(call: SSDCall) -> tuple[Tensor, Tensor]:
    """y, (B, L, H, P) in the dtype of x, and final states, (B, H, P, N), float32 or wider."""
    y = torch.empty_like(call.x, memory_format=torch.contiguous_format)
    final_states = _empty_states(call)
    for part in _slices(call, directions=1):
        scanned, states = scan_slice(_inputs(call, part))
        y[part].copy_(_skip_and_gate(scanned, call, part))
        final_states[part] = states
    return y, final_states


def ssd_backward(call: SSDCall, dy: Tensor, dfinal_states: Tensor) -> SSDGradients:
    """Gradients of ssd_forward, each in the shape and dtype of its tensor."""
    total = _GradientSums(call)
    for part in _slices(call, directions=1):
        inputs = _inputs(call, part)
        dscanned = _gate_backward(call, part, dy)
        dstates = dfinal_states[part].to(inputs.step.dtype)
        gradients, y = scan_slice_backward(inputs, dscanned, dstates, with_y=call.z is not None)
        total.add(part, dy, dscanned, gradients, y)
    return total.result()


def cross_forward(call: CrossCall) -> Tensor:
    """Mean over the grid orders of one scan each, (B, L, H, P) in the dtype of x."""
    y = torch.empty_like(call.x, memory_format=torch.contiguous_format)
    for part in _slices(call, call.directions):
        scanned, _ = scan_slice(_cross_inputs(call, part))
        y[part].copy_(_skip_and_gate(_mean_directions(scanned, call), call, part))
    return y


def cross_backward(call: CrossCall, dy: Tensor) -> SSDGradients:
    """Gradients of cross_forward, each in the shape and dtype of its tensor."""
    total = _GradientSums(call)
    for part in _slices(call, call.directions):
        inputs = _cross_inputs(call, part)
        dmean = _gate_backward(call, part, dy)
        dscanned = _into_orders(dmean / call.directions, call)
        no_states = torch.zeros((), dtype=inputs.step.dtype, device=dy.device)
        sizes = (inputs.x.shape[0], *inputs.x.shape[2:], inputs.B.shape[3])
        gradients, scanned = scan_slice_backward(
            inputs, dscanned, no_states.expand(sizes), with_y=call.z is not None
        )
        y = None if scanned is None else _mean_directions(scanned, call)
        total.add(part, dy, dmean, _sum_gradients(gradients, call), y)
    return total.result()


def _slices(call: SSDCall, directions: int) -> Iterator[slice]:
    """Parts of the batch whose temporaries stay near WORKSPACE_BYTES."""
    batch, seqlen, nheads, headdim = call.x.shape
    ngroups, dstate = call.B.shape[2:]
    length = chunk_length(seqlen, call.chunk_size)
    # About eight copies of x and of B in the compute dtype, and three (Q, Q) matrices per chunk and group.
    per_token = 8 * (nheads * headdim + ngroups * dstate) + 3 * ngroups * length
    states = 2 * nheads * headdim * dstate * (seqlen // length + 1)
    entry_bytes = directions * (seqlen * per_token + states) * compute_dtype(call.x).itemsize
    entries = max(1, WORKSPACE_BYTES // max(entry_bytes, 1))
    for start in range(0, batch, entries):
        yield slice(start, min(start + entries, batch))


def _inputs(call: SSDCall, part: slice) -> ScanInputs:
    dtype = compute_dtype(call.x)
    initial = call.initial_states
    return ScanInputs(
        x=call.x[part],
        step=step_size(call.dt[part], call.dt_bias, call.dt_softplus, call.dt_limit, dtype),
        A=call.A.to(dtype),
        B=call.B[part],
        C=call.C[part],
        states=None if initial is None else initial[part].to(dtype),
        segments=None if call.seq_idx is None else _segments(call.seq_idx[part]),
        chunk_size=call.chunk_size,
    )


def _cross_inputs(call: CrossCall, part: slice) -> ScanInputs:
    inputs = _inputs(call, part)
    if call.directions == 1:
        return inputs
    orders = grid.grid_orders(call.height, call.width, call.directions, call.x.device)
    x, step, B, C = (grid.reorder(t, orders) for t in (inputs.x, inputs.step, inputs.B, inputs.C))
    return ScanInputs(x, step, inputs.A, B, C, None, None, call.chunk_size)


def _into_orders(tokens: Tensor, call: CrossCall) -> Tensor:
    if call.directions == 1:
        return tokens
    return grid.reorder(tokens, grid.grid_orders(call.height, call.width, call.directions, tokens.device))


def _sum_directions(tokens: Tensor, call: CrossCall) -> Tensor:
    if call.directions == 1:
        return tokens
    positions = grid.grid_positions(call.height, call.width, call.directions, tokens.device)
    return grid.sum_directions(tokens, positions)


def _mean_directions(tokens: Tensor, call: CrossCall) -> Tensor:
    return _sum_directions(tokens, call).div_(call.directions)


def _sum_gradients(gradients: ScanGradients, call: CrossCall) -> ScanGradients:
    x, step, B, C = (
        _sum_directions(t, call) for t in (gradients.x, gradients.step, gradients.B, gradients.C)
    )
    return ScanGradients(x, step, gradients.A, B, C, gradients.states)


def _segments(seq_idx: Tensor) -> Tensor:
    """Ids that grow by one where seq_idx changes: a sequence that comes back later is a new one."""
    changes = F.pad(seq_idx[:, 1:] != seq_idx[:, :-1], (1, 0))[:, : seq_idx.shape[1]]
    return changes.cumsum(1)


def _per_channel(D: Tensor) -> Tensor:
    """(H,) or (H, P) -> broadcastable against (B, L, H, P)."""
    return D.unsqueeze(-1) if D.dim() == 1 else D


def _skip_and_gate(y: Tensor, call: SSDCall, part: slice) -> Tensor:
    """Apply D x and silu(z) to what the scan gave, in place."""
    if call.D is not None:
        y.addcmul_(call.x[part].to(y.dtype), _per_channel(call.D).to(y.dtype))
    if call.z is not None:
        y.mul_(F.silu(call.z[part].to(y.dtype)))
    return y


def _gate_backward(call: SSDCall, part: slice, dy: Tensor) -> Tensor:
    """Gradient of the gate's input, in the compute dtype."""
    dtype = compute_dtype(call.x)
    # A gradient expanded from a scalar has zero strides, which sends bmm down its slow path.
    dgated = dy[part].to(dtype).contiguous()
    return dgated if call.z is None else dgated * F.silu(call.z[part].to(dtype))


def _empty_states(call: SSDCall) -> Tensor:
    batch, _, nheads, headdim = call.x.shape
    return call.x.new_empty(batch, nheads, headdim, call.B.shape[3], dtype=compute_dtype(call.x))


# Summed over the batch, so kept in the compute dtype until the last slice.
_SHARED = ("A", "D", "dt_bias")


class _GradientSums:
    """Collects the slices' gradients: tokens are stored, what the batch shares is added up."""

    def __init__(self, call: SSDCall) -> None:
        self.call = call
        self.sums: dict[str, Tensor] = {}
        for name in SSDGradients._fields:
            tensor = getattr(call, name)
            if tensor is not None:
                dtype = compute_dtype(call.x) if name in _SHARED else tensor.dtype
                # Zeros, for an empty batch or sequence has no slice that would write them.
                self.sums[name] = torch.zeros(tensor.shape, dtype=dtype, device=tensor.device)

    def add(
        self, part: slice, dy: Tensor, dskipped: Tensor, scan: ScanGradients, scanned: Tensor | None
    ) -> None:
        """Add one slice.

        Args:
            part: the slice of the batch.
            dy: gradient of the operator's output, whole batch.
            dskipped: gradient of what enters the gate, this slice.
            scan: the scan's own gradients.
            scanned: the scan's y, when there is a gate.
        """
        call, sums, dx = self.call, self.sums, scan.x
        if call.D is not None:
            x, D = call.x[part].to(dx.dtype), _per_channel(call.D).to(dx.dtype)
            if scanned is not None:
                scanned.addcmul_(x, D)
            dx.addcmul_(dskipped, D)
            dD = (dskipped * x).sum((0, 1))
            sums["D"] += dD.sum(-1) if call.D.dim() == 1 else dD
        if call.z is not None:
            assert scanned is not None
            sums["z"][part] = _silu_backward(call.z[part].to(dx.dtype), dy[part].to(dx.dtype) * scanned)
        ddt = step_size_backward(scan.step, call.dt[part], call.dt_bias, call.dt_softplus, call.dt_limit)
        if call.dt_bias is not None:
            sums["dt_bias"] += ddt.sum((0, 1))
        if call.initial_states is not None:
            sums["initial_states"][part] = scan.states
        sums["A"] += scan.A
        for name, gradient in (("x", dx), ("dt", ddt), ("B", scan.B), ("C", scan.C)):
            sums[name][part] = gradient

    def result(self) -> SSDGradients:
        """The gradients in the dtypes of their tensors."""
        gradients: dict[str, Tensor | None] = dict.fromkeys(SSDGradients._fields)
        for name, total in self.sums.items():
            gradients[name] = total.to(getattr(self.call, name).dtype)
        return SSDGradients(**gradients)  # type: ignore[arg-type]


def _silu_backward(z: Tensor, dgate: Tensor) -> Tensor:
    sigmoid = torch.sigmoid(z)
    return dgate * sigmoid * (1 + z * (1 - sigmoid))
