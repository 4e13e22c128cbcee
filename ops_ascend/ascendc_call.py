"""A call as the AscendC kernels take it: sizes, strides, float32 parameters and the outputs to fill.

Shared by the twin and the launch on an NPU. x, B, C, z and dt stay where they are unless a kernel's moves
cannot express their strides. The kernel: csrc/kernels/ssd_forward.h; what it is told:
csrc/tiling/ssd_forward_plan.h.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ops_ascend.calls import CrossCall, Request, SSDCall

LARGEST_SIZE = 256  # of headdim and dstate: kMaxSize
KERNEL_CHUNK = 64  # tokens: kChunk, whatever the caller's chunk_size
STRIDE_LIMIT = 2**29  # elements from one row of a move to the next
# Of the operands of the matrix products of float32 tensors: float32, or float16.
PRECISIONS = ("accurate", "half")
DTYPES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}
INPUTS = ("x", "dt", "A", "B", "C", "D", "z", "dt_bias", "initial_states", "resets")
# The integers of SsdForwardCall in its order; after them come the strides of STRIDED, three each, and the
# limits of dt.
SIZES = (
    "batch", "seqlen", "nheads", "headdim", "ngroups", "dstate", "dtype", "dt_dtype", "half_operands", "skip",
    "has_z", "has_bias", "has_initial", "has_resets", "softplus", "directions", "height", "width",
    "checkpoint_every",
)  # fmt: skip
STRIDED = ("x", "dt", "B", "C", "z")


@dataclass(frozen=True)
class ForwardLaunch:
    """What one launch of the SSD forward is told.

    Attributes:
        integers: SsdForwardCall up to its limits.
        limits: of dt.
        inputs: by the names of INPUTS; None where not given.
        y: to fill; (batch, seqlen, nheads, headdim).
        final_states: to fill, float32; None for several directions.
        checkpoints: to fill, (batch, ncheckpoints, nheads, headdim, dstate) float32; None for none.
    """

    integers: list[int]
    limits: tuple[float, float]
    inputs: dict[str, Tensor | None]
    y: Tensor
    final_states: Tensor | None
    checkpoints: Tensor | None


def unsupported(dtype: torch.dtype, headdim: int, dstate: int) -> list[str]:
    """What of a valid call is beyond the kernels."""
    reasons = [
        f"{name} ({size}) must be 1 to {LARGEST_SIZE}"
        for name, size in (("headdim", headdim), ("dstate", dstate))
        if not 1 <= size <= LARGEST_SIZE
    ]
    if dtype not in DTYPES:
        reasons.append(f"x ({dtype}) must be float32, float16 or bfloat16")
    return reasons


def beyond_kernels(request: Request) -> list[str]:
    """Why there is no AscendC kernel for a call."""
    if request.op == "selective_scan":
        return ["it has no selective_scan yet"]
    return unsupported(request.dtype, request.headdim, request.dstate)


def empty_results(call: SSDCall) -> tuple[Tensor, Tensor] | None:
    """The results of a call without tokens, which needs no launch; None for one with tokens."""
    if call.x.numel() > 0:
        return None
    if call.initial_states is not None:
        return torch.empty_like(call.x), call.initial_states.float().clone()
    batch, _, nheads, headdim = call.x.shape
    return torch.empty_like(call.x), call.x.new_zeros(
        batch, nheads, headdim, call.B.shape[3], dtype=torch.float32
    )


def prepare_forward(call: SSDCall, *, half_operands: bool, checkpoint_every: int) -> ForwardLaunch:
    """Arrange a call with tokens for the kernel.

    Args:
        call: ssd_scan's, or ssd_cross_scan's.
        half_operands: float32 tensors: round the operands of the matrix products to float16.
        checkpoint_every: save the state that enters every that many chunks of 64 tokens; 0 saves none.
    """
    batch, seqlen, nheads, headdim = call.x.shape
    dstate = call.B.shape[3]
    inputs = _inputs(call)
    directions, height, width = _grid(call)
    row_steps = width if directions > 2 else 1
    strides: list[int] = []
    for name in STRIDED:
        tensor = inputs[name]
        if tensor is None:
            strides += [0, 0, 0]
            continue
        inputs[name] = tensor = _movable(tensor, row_steps)
        strides += _strides(tensor)
    x, dt = inputs["x"], inputs["dt"]
    assert x is not None
    assert dt is not None
    sizes = {
        "batch": batch, "seqlen": seqlen, "nheads": nheads, "headdim": headdim, "ngroups": call.B.shape[2],
        "dstate": dstate, "dtype": DTYPES[x.dtype], "dt_dtype": DTYPES[dt.dtype],
        "half_operands": half_operands, "skip": 0 if call.D is None else call.D.dim(),
        "has_z": call.z is not None, "has_bias": call.dt_bias is not None,
        "has_initial": call.initial_states is not None, "has_resets": call.seq_idx is not None,
        "softplus": call.dt_softplus, "directions": directions, "height": height, "width": width,
        "checkpoint_every": checkpoint_every,
    }  # fmt: skip
    states = (nheads, headdim, dstate)
    chunks = -(-seqlen // KERNEL_CHUNK)
    saved = -(-chunks // checkpoint_every) if checkpoint_every else 0
    return ForwardLaunch(
        integers=[int(sizes[name]) for name in SIZES] + strides,
        limits=call.dt_limit,
        inputs=inputs,
        y=torch.empty(call.x.shape, dtype=x.dtype, device=x.device),
        final_states=x.new_empty(batch, *states, dtype=torch.float32) if directions == 1 else None,
        checkpoints=x.new_empty(batch, saved, *states, dtype=torch.float32) if saved else None,
    )


def _inputs(call: SSDCall) -> dict[str, Tensor | None]:
    """The tensors by buffer: parameters and states in float32, resets in place of sequence numbers."""

    def wide(tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else tensor.detach().float().contiguous()

    dt = call.dt if call.dt.dtype in (torch.float32, call.x.dtype) else call.dt.float()
    given = {
        "x": call.x, "dt": dt, "A": wide(call.A), "B": call.B, "C": call.C, "D": wide(call.D), "z": call.z,
        "dt_bias": wide(call.dt_bias), "initial_states": wide(call.initial_states),
        "resets": None if call.seq_idx is None else _resets(call.seq_idx),
    }  # fmt: skip
    return {name: None if tensor is None else tensor.detach() for name, tensor in given.items()}


def _resets(seq_idx: Tensor) -> Tensor:
    """1 at every token whose sequence is not that of the token before."""
    resets = torch.zeros(seq_idx.shape, dtype=torch.float32, device=seq_idx.device)
    resets[:, 1:] = (seq_idx[:, 1:] != seq_idx[:, :-1]).float()
    return resets


def _grid(call: SSDCall) -> tuple[int, int, int]:
    """Directions, height and width; one direction is a plain sequence."""
    if isinstance(call, CrossCall) and call.directions > 1:
        return call.directions, call.height, call.width
    return 1, 1, call.x.shape[1]


def _movable(tensor: Tensor, row_steps: int) -> Tensor:
    """The tensor, copied when its rows are not dense, overlap, or lie too far apart for one move."""
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


def span_bytes(tensor: Tensor) -> int:
    """Bytes from the first element of a tensor to the end of its last."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()
