"""The operators on the AscendC kernels: what stands around a launch, whichever machine runs it.

Calls without tokens need no launch. The kernels leave some sums to the caller, and know a skip D per head in
the backward and plain sequences only: D per channel and the orders of a grid are composed here, without
anything that depends on the order in which threads run.
"""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from ops_ascend import ascendc_selective, grid
from ops_ascend.ascendc_call import SAVED_EVERY, prepare_backward, prepare_forward, saved_shape
from ops_ascend.ascendc_launch import Machine, beyond_kernels
from ops_ascend.calls import CrossCall, Request, SelectiveCall, SelectiveGradients, SSDCall, SSDGradients


def refuse(machine: Machine, op: str, values: Tensor, headdim: int, dstate: int) -> None:
    """Raise NotImplementedError for sizes and dtypes that no kernel takes."""
    reasons = beyond_kernels(Request(op, values.device.type, values.dtype, headdim, dstate, gradients=False))
    if reasons:
        raise NotImplementedError(f"{op}: backend {machine.name!r} cannot run this: {'; '.join(reasons)}")


class SSDScan:
    """ssd_scan and ssd_cross_scan, forward and backward."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def saved(self, call: SSDCall) -> tuple[int, ...]:
        """The shape of what forward saves."""
        return saved_shape(call)

    def forward(self, call: SSDCall, save: bool) -> tuple[Tensor, Tensor, Tensor | None]:
        """y, final states, and with `save` the states that the backward starts from."""
        self._check("ssd_scan", call)
        if call.x.numel() == 0:
            saved = call.x.new_empty(self.saved(call), dtype=torch.float32) if save else None
            return torch.empty_like(call.x), _initial_states(call), saved
        launch = prepare_forward(
            call, half_operands=self._machine.half_operands(), checkpoint_every=SAVED_EVERY if save else 0
        )
        self._machine.run(launch)
        return launch.output("y"), launch.output("final_states"), launch.outputs["checkpoints"]

    def backward(
        self, call: SSDCall, saved: Tensor, dy: Tensor | None, dfinal_states: Tensor | None
    ) -> SSDGradients:
        """Gradients of forward, each in the dtype of its tensor.

        Args:
            call: the forward's.
            saved: what the forward saved; without elements it is computed again.
            dy: gradient of y; None for zeros.
            dfinal_states: gradient of the final states; None for zeros.
        """
        self._check("ssd_scan", call)
        if call.x.numel() == 0:
            return _no_tokens(call, dfinal_states)
        if dy is None:
            dy = torch.zeros_like(call.x)
        head_skip = _with_head_skip(call)
        gradients = self._plain_backward(head_skip, saved, dy, dfinal_states)
        if head_skip is not call:
            gradients = _add_channel_skip(gradients, call, dy)
        return SSDGradients(**_in_dtypes(gradients._asdict(), call))  # type: ignore[arg-type]

    def cross_forward(self, call: CrossCall) -> Tensor:
        """Mean over the grid orders of one scan each."""
        self._check("ssd_cross_scan", call)
        if call.x.numel() == 0:
            return torch.empty_like(call.x)
        launch = prepare_forward(call, half_operands=self._machine.half_operands(), checkpoint_every=0)
        self._machine.run(launch)
        return launch.output("y")

    def cross_backward(self, call: CrossCall, dy: Tensor) -> SSDGradients:
        """Gradients of cross_forward: those of one plain scan whose batch holds every order, summed."""
        self._check("ssd_cross_scan", call)
        if call.x.numel() == 0:
            return _no_tokens(call, None)
        head_skip = _with_head_skip(call)
        orders = grid.grid_orders(call.height, call.width, call.directions, call.x.device)
        ordered_dy = grid.reorder(dy / call.directions, orders)
        gradients = self._plain_backward(_in_orders(head_skip, orders), None, ordered_dy, None)
        gradients = _sum_orders(gradients, call)._replace(initial_states=None)
        if head_skip is not call:
            gradients = _add_channel_skip(gradients, call, dy)
        return SSDGradients(**_in_dtypes(gradients._asdict(), call))  # type: ignore[arg-type]

    def _check(self, op: str, call: SSDCall) -> None:
        refuse(self._machine, op, call.x, call.x.shape[3], call.B.shape[3])

    def _plain_backward(
        self, call: SSDCall, saved: Tensor | None, dy: Tensor, dfinal_states: Tensor | None
    ) -> SSDGradients:
        """Gradients of a call that the kernel takes as it is; sums are float32."""
        if saved is None or saved.numel() == 0:
            # The states do not depend on the skip and the gate.
            saved = self.forward(replace(call, D=None, z=None), save=True)[2]
            assert saved is not None
        half = self._machine.half_operands()
        scaling = _Scaling(call, dy, dfinal_states) if _rounds_to_half(call, half) else None
        if scaling is not None:
            dy = scaling.up(dy)
            dfinal_states = None if dfinal_states is None else scaling.up(dfinal_states)
        launch = prepare_backward(call, saved, dy, dfinal_states, half_operands=half, plan=self._machine.plan)
        self._machine.run(launch)
        # dA, dD and ddt_bias of every sequence and vector core; dB and dC where a group is in several parts.
        summed = {
            "dA": _sum(launch.outputs["dA"], (0, 1)),
            "dD": _sum(launch.outputs["dD"], (0, 1)),
            "ddt_bias": _sum(launch.outputs["ddt_bias"], (0, 1)),
            "dB": _sum_parts(launch.output("dB"), call.B),
            "dC": _sum_parts(launch.output("dC"), call.C),
        }
        gradients = {name.removeprefix("d"): t for name, t in {**launch.outputs, **summed}.items()}
        if scaling is not None:
            gradients = {name: None if t is None else scaling.down(t) for name, t in gradients.items()}
        return SSDGradients(**gradients)  # type: ignore[arg-type]


class SelectiveScan:
    """selective_scan, forward and backward."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def saved(self, call: SelectiveCall) -> tuple[int, ...]:
        """The shape of what forward saves."""
        return (ascendc_selective.saved_elements(call),)

    def forward(self, call: SelectiveCall, save: bool) -> tuple[Tensor, Tensor, Tensor | None]:
        """y, the last state, and with `save` the states that the backward starts from."""
        self._check(call)
        if call.u.numel() == 0:
            state = call.u.new_zeros(call.states_shape(), dtype=torch.float32)
            return torch.empty_like(call.u), state, None
        launch = ascendc_selective.prepare_forward(call, save=save)
        self._machine.run(launch)
        return launch.output("y"), launch.output("last_state"), launch.outputs["checkpoints"]

    def backward(
        self, call: SelectiveCall, saved: Tensor, dy: Tensor | None, dlast_state: Tensor | None
    ) -> SelectiveGradients:
        """Gradients of forward, each in the dtype of its tensor; the arguments as in SSDScan.backward."""
        self._check(call)
        if call.u.numel() == 0:
            return SelectiveGradients(**_zeros(call, SelectiveGradients._fields))  # type: ignore[arg-type]
        if saved.numel() == 0 and ascendc_selective.saved_elements(call) > 0:
            again = self.forward(call, save=True)[2]
            assert again is not None
            saved = again
        launch = ascendc_selective.prepare_backward(call, saved, dy, dlast_state, plan=self._machine.plan)
        self._machine.run(launch)
        summed = {
            "dA": _sum(launch.outputs["dA"], (0,)),
            "dD": _sum(launch.outputs["dD"], (0,)),
            "ddelta_bias": _sum(launch.outputs["ddelta_bias"], (0,)),
            "dB": _sum_parts(launch.output("dB"), call.B),
            "dC": _sum_parts(launch.output("dC"), call.C),
        }
        gradients = {name.removeprefix("d"): t for name, t in {**launch.outputs, **summed}.items()}
        return SelectiveGradients(**_in_dtypes(gradients, call))  # type: ignore[arg-type]

    def _check(self, call: SelectiveCall) -> None:
        refuse(self._machine, "selective_scan", call.u, 1, call.A.shape[1])


def _rounds_to_half(call: SSDCall, half_operands: bool) -> bool:
    return call.x.dtype == torch.float16 or (call.x.dtype == torch.float32 and half_operands)


class _Scaling:
    """A power of two that brings incoming gradients into the range of float16.

    What the kernel hands from one product to the next in float16 is dy times x and a step, say: without this
    it would be lost below 6e-5 for the gradients of an unscaled loss. Gradients are linear in dy, so all of
    them are multiplied before the kernel and divided after it, exactly and without a word to the host.
    """

    _LARGEST = 4  # the exponent of the largest incoming gradient, at most
    # The exponent of the largest product of it with x, B and C, at most: sums over the tokens of a chunk, and
    # over steps of 1, still fit float16.
    _LARGEST_PRODUCT = 12

    def __init__(self, call: SSDCall, dy: Tensor, dfinal_states: Tensor | None) -> None:
        x, B, C = (tensor.abs().amax().float() for tensor in (call.x, call.B, call.C))
        headdim, heads, dstate = call.x.shape[3], call.x.shape[2] // call.B.shape[2], call.B.shape[3]
        largest = dy.abs().amax().float()
        # Of dx through C B^T; of C B^T itself; of dB and dC.
        through = headdim * heads * x
        gain = torch.stack([dstate * B * C, through, through * B, through * C]).amax()
        product = largest * gain
        if dfinal_states is not None:
            dstates = dfinal_states.abs().amax().float()
            largest = torch.maximum(largest, dstates)
            product = torch.maximum(product, dstates * torch.maximum(dstate * B, through))
        bias, mantissa = 127, 23
        exponent = torch.maximum(
            (largest.view(torch.int32) >> mantissa) - self._LARGEST,
            (product.view(torch.int32) >> mantissa) - self._LARGEST_PRODUCT,
        )
        # Nothing but zeros gives 0; infinity and NaN stay what they are whatever they are multiplied with.
        shift = torch.where(largest > 0, bias - exponent, 0).clamp(1 - bias, bias - 1)
        self._up = ((bias + shift) << mantissa).view(torch.float32)
        self._down = ((bias - shift) << mantissa).view(torch.float32)

    def up(self, gradient: Tensor) -> Tensor:
        return (gradient.float() * self._up).to(gradient.dtype)

    def down(self, gradient: Tensor) -> Tensor:
        return (gradient.float() * self._down).to(gradient.dtype)


def _initial_states(call: SSDCall) -> Tensor:
    if call.initial_states is not None:
        return call.initial_states.float().clone()
    return call.x.new_zeros(call.states_shape(), dtype=torch.float32)


def _zeros(call: SSDCall | SelectiveCall, names: tuple[str, ...]) -> dict[str, Tensor | None]:
    """Zeros for every given tensor."""
    tensors = {name: getattr(call, name) for name in names}
    return {name: None if tensor is None else torch.zeros_like(tensor) for name, tensor in tensors.items()}


def _no_tokens(call: SSDCall, dfinal_states: Tensor | None) -> SSDGradients:
    """Zeros, but the gradient of the final states is that of the initial ones."""
    gradients = _zeros(call, SSDGradients._fields)
    if call.initial_states is not None and dfinal_states is not None:
        gradients["initial_states"] = dfinal_states.to(call.initial_states.dtype, copy=True)
    return SSDGradients(**gradients)  # type: ignore[arg-type]


def _with_head_skip(call: SSDCall) -> SSDCall:
    """The call without a skip per channel, which the backward kernel does not know."""
    return replace(call, D=None) if call.D is not None and call.D.dim() == 2 else call


def _add_channel_skip(gradients: SSDGradients, call: SSDCall, dy: Tensor) -> SSDGradients:
    """Add what D x, (nheads, headdim) times (batch, seqlen, nheads, headdim), passes on."""
    assert call.D is not None
    # Without gaps: PyTorch rounds silu of strided and of dense tensors differently.
    x, D, dskip = _dense(call.x), call.D.float(), _dense(dy)
    dz = gradients.z
    if call.z is not None:
        assert dz is not None
        z = _dense(call.z)
        dz = dz.float() + torch.ops.aten.silu_backward(dskip * D * x, z)
        dskip = dskip * F.silu(z)
    return gradients._replace(x=gradients.x.float() + dskip * D, D=(dskip * x).sum((0, 1)), z=dz)


def _dense(tensor: Tensor) -> Tensor:
    return tensor.detach().float().contiguous()


def _in_orders(call: SSDCall, orders: Tensor) -> SSDCall:
    """A plain call whose batch holds the tokens in every order."""
    ordered = {
        name: None if tensor is None else grid.reorder(tensor, orders)
        for name, tensor in (("x", call.x), ("dt", call.dt), ("B", call.B), ("C", call.C), ("z", call.z))
    }
    return SSDCall(
        **ordered,  # type: ignore[arg-type]
        A=call.A,
        D=call.D,
        dt_bias=call.dt_bias,
        initial_states=None,
        seq_idx=None,
        chunk_size=call.chunk_size,
        dt_softplus=call.dt_softplus,
        dt_limit=call.dt_limit,
    )


def _sum_orders(gradients: SSDGradients, call: CrossCall) -> SSDGradients:
    positions = grid.grid_positions(call.height, call.width, call.directions, call.x.device)
    summed = {}
    for name in ("x", "dt", "B", "C", "z"):
        tensor = getattr(gradients, name)
        summed[name] = None if tensor is None else grid.sum_directions(tensor.float(), positions)
    return gradients._replace(**summed)  # type: ignore[arg-type]


def _sum(partial: Tensor | None, dims: tuple[int, ...]) -> Tensor | None:
    return None if partial is None else partial.sum(dims)


def _sum_parts(gradient: Tensor, like: Tensor) -> Tensor:
    """Sum over the parts in front, if there are any."""
    return gradient.sum(0) if gradient.dim() > like.dim() else gradient


def _in_dtypes(
    gradients: dict[str, Tensor | None], call: SSDCall | SelectiveCall
) -> dict[str, Tensor | None]:
    """Each gradient in the dtype of its tensor; None for what was not given."""
    cast: dict[str, Tensor | None] = {}
    for name, gradient in gradients.items():
        tensor = getattr(call, name)
        cast[name] = None if tensor is None or gradient is None else gradient.to(tensor.dtype)
    return cast
