"""SSD calls as the AscendC kernels take them: sizes, strides, float32 parameters and the outputs to fill.

x, B, C, z, dy and dt stay where they are unless a kernel's moves cannot express their strides. The kernels:
csrc/kernels/ssd_forward.h, ssd_backward.h; what they are told: csrc/tiling/ssd_forward_plan.h,
ssd_backward_plan.h.
"""

import torch
from torch import Tensor

from ops_ascend.ascendc_launch import DTYPES, Fields, Launch, Plan, wide
from ops_ascend.calls import CrossCall, SSDCall

KERNEL_CHUNK = 64  # tokens: kChunk, whatever the caller's chunk_size
SAVED_EVERY = 2  # chunks from one state to the next that the backward starts from
STRIDE_LIMIT = 2**29  # elements from one row of a move to the next
# The integers of SsdForwardCall in its order; after them come the strides of STRIDED, three each, and the
# limits of dt.
SIZES = (
    "batch", "seqlen", "nheads", "headdim", "ngroups", "dstate", "dtype", "dt_dtype", "half_operands", "skip",
    "has_z", "has_bias", "has_initial", "has_resets", "softplus", "directions", "height", "width",
    "checkpoint_every",
)  # fmt: skip
STRIDED = ("x", "dt", "B", "C", "z")


def prepare_forward(call: SSDCall, *, half_operands: bool, checkpoint_every: int) -> Launch:
    """Arrange the forward of a call with tokens.

    Args:
        call: ssd_scan's, or ssd_cross_scan's.
        half_operands: float32 tensors: round the operands of the matrix products to float16.
        checkpoint_every: save the state that enters every that many chunks of 64 tokens; 0 saves none.

    Returns:
        A launch with the outputs y, (batch, seqlen, nheads, headdim); final_states, float32, None for several
        directions; checkpoints, (batch, ncheckpoints, nheads, headdim, dstate) float32, None for none.
    """
    inputs = _inputs(call) | {"initial_states": wide(call.initial_states), "resets": _resets(call)}
    fields = _fields(call, inputs, half_operands, checkpoint_every)
    saved = saved_shape(call, checkpoint_every)
    x = call.x
    outputs = {
        "y": torch.empty(x.shape, dtype=x.dtype, device=x.device),
        "final_states": None if _grid(call)[0] > 1 else x.new_empty(call.states_shape(), dtype=torch.float32),
        "checkpoints": x.new_empty(saved, dtype=torch.float32) if checkpoint_every else None,
    }
    return Launch("ssd_forward", fields, inputs, outputs)


def prepare_backward(
    call: SSDCall,
    checkpoints: Tensor,
    dy: Tensor,
    dfinal_states: Tensor | None,
    *,
    half_operands: bool,
    plan: Plan,
) -> Launch:
    """Arrange the backward of a plain call with tokens, D given per head or not at all.

    Args:
        call: ssd_scan's.
        checkpoints: of the forward, (batch, ncheckpoints, nheads, headdim, dstate), every SAVED_EVERY chunks.
        dy: gradient of y.
        dfinal_states: gradient of the final states; None for zeros.
        half_operands: as in prepare_forward.
        plan: as in Machine.

    Returns:
        A launch whose outputs are the gradients, not all of them summed: dB and dC, with several parts, are
        (parts, batch, seqlen, ngroups, dstate) in float32; dA, dD and ddt_bias are (batch, 2, nheads).
    """
    inputs = _inputs(call) | {"resets": _resets(call), "checkpoints": checkpoints}
    fields = _fields(call, inputs, half_operands, SAVED_EVERY)
    dy = _movable(dy, row_steps=1)
    inputs |= {"dy": dy, "dfinal_states": wide(dfinal_states)}
    # has_dy, has_dfinal, dy_strides
    fields += (1, int(dfinal_states is not None), *_strides(dy))
    return Launch(
        "ssd_backward", fields, inputs, _gradient_buffers(call, plan("ssd_backward", "parts", fields))
    )


def saved_shape(call: SSDCall, checkpoint_every: int = SAVED_EVERY) -> tuple[int, ...]:
    """(batch, ncheckpoints, nheads, headdim, dstate): the states that enter every that many chunks."""
    batch, *state = call.states_shape()
    chunks = -(-call.x.shape[1] // KERNEL_CHUNK)
    return batch, -(-chunks // checkpoint_every) if checkpoint_every else 0, *state


def _gradient_buffers(call: SSDCall, parts: int) -> dict[str, Tensor | None]:
    x, B = call.x, call.B

    def values(*shape: int) -> Tensor:
        return x.new_empty(shape)

    def sums(*shape: int) -> Tensor:
        return x.new_empty(shape, dtype=torch.float32)

    per_head = (x.shape[0], 2, x.shape[2])
    grouped = [values(*B.shape) if parts == 1 else sums(parts, *B.shape) for _ in range(2)]
    return {
        "dx": values(*x.shape),
        "ddt": sums(*x.shape[:3]),
        "dB": grouped[0],
        "dC": grouped[1],
        "dz": None if call.z is None else values(*x.shape),
        "dA": sums(*per_head),
        "dD": None if call.D is None else sums(*per_head),
        "ddt_bias": None if call.dt_bias is None else sums(*per_head),
        "dinitial_states": sums(*call.states_shape()),
    }


def _inputs(call: SSDCall) -> dict[str, Tensor | None]:
    """The tensors of both kernels by buffer: parameters in float32, the rest where a kernel can move it."""
    dt = call.dt if call.dt.dtype in (torch.float32, call.x.dtype) else call.dt.float()
    directions, _, width = _grid(call)
    tokens = {"x": call.x, "dt": dt, "B": call.B, "C": call.C, "z": call.z}
    moved = {
        name: None if tensor is None else _movable(tensor, width if directions > 2 else 1)
        for name, tensor in tokens.items()
    }
    return {
        "x": moved["x"], "dt": moved["dt"], "A": wide(call.A), "B": moved["B"], "C": moved["C"],
        "D": wide(call.D), "z": moved["z"], "dt_bias": wide(call.dt_bias),
    }  # fmt: skip


def _fields(
    call: SSDCall, inputs: dict[str, Tensor | None], half_operands: bool, checkpoint_every: int
) -> Fields:
    """SsdForwardCall."""
    batch, seqlen, nheads, headdim = call.x.shape
    directions, height, width = _grid(call)
    dt = inputs["dt"]
    assert dt is not None
    sizes = {
        "batch": batch, "seqlen": seqlen, "nheads": nheads, "headdim": headdim, "ngroups": call.B.shape[2],
        "dstate": call.B.shape[3], "dtype": DTYPES[call.x.dtype], "dt_dtype": DTYPES[dt.dtype],
        "half_operands": half_operands and call.x.dtype == torch.float32,
        "skip": 0 if call.D is None else call.D.dim(), "has_z": call.z is not None,
        "has_bias": call.dt_bias is not None, "has_initial": call.initial_states is not None,
        "has_resets": call.seq_idx is not None, "softplus": call.dt_softplus, "directions": directions,
        "height": height, "width": width, "checkpoint_every": checkpoint_every,
    }  # fmt: skip
    strides: list[int] = []
    for name in STRIDED:
        tensor = inputs[name]
        strides += [0, 0, 0] if tensor is None else _strides(tensor)
    low, high = call.dt_limit
    return *(int(sizes[name]) for name in SIZES), *strides, float(low), float(high)


def _resets(call: SSDCall) -> Tensor | None:
    """1 at every token whose sequence is not that of the token before."""
    if call.seq_idx is None:
        return None
    resets = torch.zeros(call.seq_idx.shape, dtype=torch.float32, device=call.seq_idx.device)
    resets[:, 1:] = (call.seq_idx[:, 1:] != call.seq_idx[:, :-1]).float()
    return resets


def _grid(call: SSDCall) -> tuple[int, int, int]:
    """Directions, height and width; one direction is a plain sequence."""
    if isinstance(call, CrossCall) and call.directions > 1:
        return call.directions, call.height, call.width
    return 1, 1, call.x.shape[1]


def _movable(tensor: Tensor, row_steps: int) -> Tensor:
    """The tensor, copied when its rows are not dense, overlap, or lie too far apart for one move."""
    tensor = tensor.detach()
    row = tensor.stride(1)
    dense = tensor.shape[-1] == 1 or tensor.stride(-1) == 1
    apart = tensor.shape[1] == 1 or tensor.shape[-1] <= row < -(-STRIDE_LIMIT // row_steps)
    return tensor if dense and apart else tensor.contiguous()


def _strides(tensor: Tensor) -> list[int]:
    """Strides of batch, token and head or group; those of one element only are put in order."""
    batch, token, third = (tensor.stride(i) if tensor.shape[i] > 1 else 0 for i in range(3))
    # (batch, seqlen, nheads): dt's third axis is its row.
    third = 1 if tensor.dim() == 3 else third
    return [batch, token if tensor.shape[1] > 1 else tensor.shape[-1], third]
