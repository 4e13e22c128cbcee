"""Selective scan calls as the AscendC kernels take them: sizes, strides, float32 parameters, outputs to fill.

u, delta, B, C, z and dy stay where they are when their time axis is dense. The kernels:
csrc/kernels/selective_scan.h; what they are told: csrc/tiling/selective_scan_plan.h.
"""

import torch
from torch import Tensor

from ops_ascend.ascendc_launch import DTYPES, Fields, Launch, Plan, wide
from ops_ascend.calls import SelectiveCall

SAVED_EVERY = 28  # tokens
# The integers of SelectiveScanCall in its order; after them come the strides of CHANNELS, two each, and of B
# and C, three each.
SIZES = (
    "batch", "dim", "seqlen", "ngroups", "dstate", "dtype", "delta_dtype", "has_d", "has_z", "has_bias",
    "softplus", "save", "has_dy", "has_dlast",
)  # fmt: skip
CHANNELS = ("u", "delta", "z", "dy")


def prepare_forward(call: SelectiveCall, *, save: bool) -> Launch:
    """Arrange the forward of a call with tokens.

    Args:
        call: selective_scan's.
        save: also save the states that the backward starts from.

    Returns:
        A launch with the outputs y, (batch, dim, seqlen); last_state, (batch, dim, dstate) float32;
        checkpoints, float32 in an order of the kernel's own, None for none.
    """
    inputs = _inputs(call)
    u = call.u
    saved = saved_elements(call) if save else 0
    outputs = {
        "y": torch.empty(u.shape, dtype=u.dtype, device=u.device),
        "last_state": u.new_empty(call.states_shape(), dtype=torch.float32),
        "checkpoints": u.new_empty(saved, dtype=torch.float32) if saved else None,
    }
    return Launch("selective_scan", _fields(call, inputs, save, {}), inputs, outputs)


def prepare_backward(
    call: SelectiveCall,
    checkpoints: Tensor,
    dy: Tensor | None,
    dlast_state: Tensor | None,
    *,
    plan: Plan,
) -> Launch:
    """Arrange the backward of a call with tokens.

    Args:
        call: selective_scan's.
        checkpoints: of its forward.
        dy: gradient of y; None for zeros.
        dlast_state: gradient of the last state; None for zeros.
        plan: as in Machine.

    Returns:
        A launch whose outputs are the gradients, not all of them summed: dB and dC, with several parts, are
        (parts, batch, ngroups, dstate, seqlen) in float32; dA, dD and ddelta_bias have an axis of rows in
        front, each the sum over some of the batch.
    """
    inputs = _inputs(call)
    gradients = {
        "dy": None if dy is None else _time_dense(dy),
        "dlast_state": wide(dlast_state),
    }
    fields = _fields(call, inputs, True, gradients)
    inputs |= {"checkpoints": checkpoints if checkpoints.numel() else None, **gradients}
    parts, rows = (plan("selective_scan", sums, fields) for sums in ("parts", "rows"))
    outputs = _gradient_buffers(call, inputs, parts, rows)
    return Launch("selective_scan_backward", fields, inputs, outputs)


def saved_elements(call: SelectiveCall) -> int:
    """How many numbers the forward saves: a state between every two segments of SAVED_EVERY tokens."""
    batch, dim, seqlen = call.u.shape
    # Not max: torch.compile asks with a length that may vary.
    states: int = torch.sym_max((seqlen - 1) // SAVED_EVERY, 0)  # type: ignore[assignment]
    return batch * dim * call.A.shape[1] * states


def _gradient_buffers(
    call: SelectiveCall, inputs: dict[str, Tensor | None], parts: int, rows: int
) -> dict[str, Tensor | None]:
    u, delta, B = call.u, inputs["delta"], call.B
    assert delta is not None

    def sums(*shape: int) -> Tensor:
        return u.new_empty(shape, dtype=torch.float32)

    grouped = [u.new_empty(B.shape) if parts == 1 else sums(parts, *B.shape) for _ in range(2)]
    return {
        "du": u.new_empty(u.shape),
        "ddelta": delta.new_empty(u.shape),
        "dA": sums(rows, *call.A.shape),
        "dB": grouped[0],
        "dC": grouped[1],
        "dD": None if call.D is None else sums(rows, u.shape[1]),
        "dz": None if call.z is None else u.new_empty(u.shape),
        "ddelta_bias": None if call.delta_bias is None else sums(rows, u.shape[1]),
    }


def _inputs(call: SelectiveCall) -> dict[str, Tensor | None]:
    """The tensors of both kernels by buffer."""
    delta = call.delta if call.delta.dtype in (torch.float32, call.u.dtype) else call.delta.float()
    return {
        "u": _time_dense(call.u),
        "delta": _time_dense(delta),
        "A": wide(call.A),
        "B": _time_dense(call.B),
        "C": _time_dense(call.C),
        "D": wide(call.D),
        "z": None if call.z is None else _time_dense(call.z),
        "delta_bias": wide(call.delta_bias),
    }


def _fields(
    call: SelectiveCall,
    inputs: dict[str, Tensor | None],
    save: bool,
    gradients: dict[str, Tensor | None],
) -> Fields:
    """SelectiveScanCall."""
    batch, dim, seqlen = call.u.shape
    delta = inputs["delta"]
    assert delta is not None
    sizes = {
        "batch": batch, "dim": dim, "seqlen": seqlen, "ngroups": call.B.shape[1], "dstate": call.A.shape[1],
        "dtype": DTYPES[call.u.dtype], "delta_dtype": DTYPES[delta.dtype], "has_d": call.D is not None,
        "has_z": call.z is not None, "has_bias": call.delta_bias is not None,
        "softplus": call.delta_softplus, "save": save, "has_dy": gradients.get("dy") is not None,
        "has_dlast": gradients.get("dlast_state") is not None,
    }  # fmt: skip
    strides: list[int] = []
    for name in CHANNELS:
        tensor = inputs[name] if name in inputs else gradients.get(name)
        strides += [0, 0] if tensor is None else tensor.stride()[:2]
    for name in ("B", "C"):
        tensor = inputs[name]
        assert tensor is not None
        strides += tensor.stride()[:3]
    return *(int(sizes[name]) for name in SIZES), *strides


def _time_dense(tensor: Tensor) -> Tensor:
    """The tensor, copied when its tokens are not side by side."""
    tensor = tensor.detach()
    return tensor if tensor.shape[-1] == 1 or tensor.stride(-1) == 1 else tensor.contiguous()
