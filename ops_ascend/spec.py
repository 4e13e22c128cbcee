"""What the operators accept: names, shapes, dtypes and the messages for everything else."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

VALUE_DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
DIRECTIONS = (1, 2, 4)
NO_LIMIT = (0.0, math.inf)


class SSDSizes(NamedTuple):
    """Sizes of one Mamba-2 scan, named as in the paper (arXiv:2405.21060)."""

    batch: int
    seqlen: int
    nheads: int
    headdim: int
    ngroups: int
    dstate: int


class SelectiveSizes(NamedTuple):
    """Sizes of one Mamba-1 scan (arXiv:2312.00752)."""

    batch: int
    dim: int
    seqlen: int
    ngroups: int
    dstate: int


def compute_dtype(values: Tensor) -> torch.dtype:
    """The dtype of steps, decays and states: float32, or float64 for float64 tensors."""
    return torch.float64 if values.dtype == torch.float64 else torch.float32


def check_ssd(
    op: str,
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    *,
    chunk_size: int,
    D: Tensor | None,
    z: Tensor | None,
    dt_bias: Tensor | None,
    dt_limit: tuple[float, float],
    initial_states: Tensor | None = None,
    seq_idx: Tensor | None = None,
) -> SSDSizes:
    """Raise ValueError or TypeError, one sentence, unless the call is well formed; return its sizes."""
    sizes = _ssd_sizes(op, x, B)
    batch, seqlen, nheads, headdim, ngroups, dstate = sizes
    grouped, states = (batch, seqlen, ngroups, dstate), (batch, nheads, headdim, dstate)
    _check_shape(op, "B", B, grouped, "(batch, seqlen, ngroups, dstate)")
    _check_shape(op, "C", C, grouped, "(batch, seqlen, ngroups, dstate)")
    _check_shape(op, "dt", dt, (batch, seqlen, nheads), "(batch, seqlen, nheads)")
    _check_shape(op, "A", A, (nheads,), "(nheads,)")
    _check_shape(op, "z", z, (batch, seqlen, nheads, headdim), "the shape of x")
    _check_shape(op, "dt_bias", dt_bias, (nheads,), "(nheads,)")
    _check_shape(op, "initial_states", initial_states, states, "(batch, nheads, headdim, dstate)")
    _check_shape(op, "seq_idx", seq_idx, (batch, seqlen), "(batch, seqlen)")
    if D is not None and tuple(D.shape) not in ((nheads,), (nheads, headdim)):
        raise ValueError(
            f"{op}: D {_sizes(D)} must have shape (nheads,) = ({nheads},) or "
            f"(nheads, headdim) = ({nheads}, {headdim})"
        )
    wide = {"dt": dt, "A": A, "D": D, "dt_bias": dt_bias, "initial_states": initial_states}
    _check_value_dtypes(op, x=x, B=B, C=C, z=z)
    _check_floating(op, **wide)
    if seq_idx is not None and seq_idx.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"{op}: seq_idx ({seq_idx.dtype}) must be int32 or int64")
    _check_devices(op, "x", x, {"B": B, "C": C, "z": z, **wide, "seq_idx": seq_idx})
    _check_chunk_size(op, chunk_size)
    _check_dt_limit(op, dt_limit)
    return sizes


def _ssd_sizes(op: str, x: Tensor, B: Tensor) -> SSDSizes:
    _check_rank(op, "x", x, "(batch, seqlen, nheads, headdim)")
    _check_rank(op, "B", B, "(batch, seqlen, ngroups, dstate)")
    batch, seqlen, nheads, headdim = x.shape
    ngroups, dstate = B.shape[2:]
    _check_positive(op, nheads=nheads, headdim=headdim, ngroups=ngroups, dstate=dstate)
    if nheads % ngroups:
        raise ValueError(f"{op}: nheads ({nheads}) must be divisible by ngroups ({ngroups})")
    return SSDSizes(batch, seqlen, nheads, headdim, ngroups, dstate)


def check_grid(op: str, seqlen: int, height: int, width: int, directions: int) -> None:
    """Raise ValueError unless the tokens fill a grid and the directions are supported."""
    if directions not in DIRECTIONS:
        raise ValueError(f"{op}: directions ({directions}) must be 1, 2 or 4")
    if height < 0 or width < 0 or height * width != seqlen:
        raise ValueError(f"{op}: height ({height}) times width ({width}) must equal seqlen ({seqlen})")


def check_selective(
    op: str,
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    *,
    D: Tensor | None,
    z: Tensor | None,
    delta_bias: Tensor | None,
) -> SelectiveSizes:
    """Raise ValueError or TypeError, one sentence, unless the call is well formed; return its sizes."""
    _check_rank(op, "u", u, "(batch, dim, seqlen)")
    _check_rank(op, "A", A, "(dim, dstate)")
    batch, dim, seqlen = u.shape
    dstate = A.shape[1]
    _check_positive(op, dim=dim, dstate=dstate)
    _check_shape(op, "A", A, (dim, dstate), "(dim, dstate)")
    _check_shape(op, "delta", delta, (batch, dim, seqlen), "the shape of u")
    _check_shape(op, "z", z, (batch, dim, seqlen), "the shape of u")
    _check_shape(op, "D", D, (dim,), "(dim,)")
    _check_shape(op, "delta_bias", delta_bias, (dim,), "(dim,)")
    if B.dim() not in (3, 4):
        raise ValueError(
            f"{op}: B {_sizes(B)} must have shape (batch, dstate, seqlen) or (batch, ngroups, dstate, seqlen)"
        )
    ngroups = B.shape[1] if B.dim() == 4 else 1
    _check_positive(op, ngroups=ngroups)
    if dim % ngroups:
        raise ValueError(f"{op}: dim ({dim}) must be divisible by ngroups ({ngroups})")
    for name, tensor in (("B", B), ("C", C)):
        if tensor.dim() == 4:
            _check_shape(
                op, name, tensor, (batch, ngroups, dstate, seqlen), "(batch, ngroups, dstate, seqlen)"
            )
        else:
            _check_shape(op, name, tensor, (batch, dstate, seqlen), "(batch, dstate, seqlen)")
    if C.dim() != B.dim():
        raise ValueError(f"{op}: C {_sizes(C)} must have as many dimensions as B {_sizes(B)}")
    _check_value_dtypes(op, u=u, B=B, C=C, z=z)
    _check_floating(op, delta=delta, A=A, D=D, delta_bias=delta_bias)
    others = {"delta": delta, "A": A, "B": B, "C": C, "D": D, "z": z, "delta_bias": delta_bias}
    _check_devices(op, "u", u, others)
    return SelectiveSizes(batch, dim, seqlen, ngroups, dstate)


def _sizes(tensor: Tensor) -> str:
    return str(tuple(tensor.shape))


def _check_rank(op: str, name: str, tensor: Tensor, layout: str) -> None:
    rank = layout.count(",") + 1
    if tensor.dim() != rank:
        raise ValueError(f"{op}: {name} {_sizes(tensor)} must have {rank} dimensions {layout}")


def _check_positive(op: str, **sizes: int) -> None:
    for name, size in sizes.items():
        if size <= 0:
            raise ValueError(f"{op}: {name} ({size}) must be positive")


def _check_shape(op: str, name: str, tensor: Tensor | None, shape: tuple[int, ...], layout: str) -> None:
    if tensor is None:
        return
    if tensor.dim() != len(shape) or any(
        have != want for have, want in zip(tensor.shape, shape, strict=True)
    ):
        kind = f"shape {layout}" if layout.startswith("(") else layout
        raise ValueError(f"{op}: {name} {_sizes(tensor)} must have {kind} = {shape}")


def _check_value_dtypes(op: str, **tensors: Tensor | None) -> None:
    (first_name, first), *rest = ((name, t) for name, t in tensors.items() if t is not None)
    if first.dtype not in VALUE_DTYPES:
        raise TypeError(f"{op}: {first_name} ({first.dtype}) must be float32, bfloat16, float16 or float64")
    for name, tensor in rest:
        if tensor.dtype != first.dtype:
            raise TypeError(
                f"{op}: {name} ({tensor.dtype}) must have the dtype of {first_name} ({first.dtype})"
            )


def _check_floating(op: str, **tensors: Tensor | None) -> None:
    for name, tensor in tensors.items():
        if tensor is not None and tensor.dtype not in VALUE_DTYPES:
            raise TypeError(f"{op}: {name} ({tensor.dtype}) must be a real floating-point tensor")


def _check_devices(op: str, first_name: str, first: Tensor, others: dict[str, Tensor | None]) -> None:
    for name, tensor in others.items():
        if tensor is not None and tensor.device != first.device:
            raise ValueError(
                f"{op}: {name} (on {tensor.device}) must be on the device of {first_name} ({first.device})"
            )


def _check_chunk_size(op: str, chunk_size: int) -> None:
    if not isinstance(chunk_size, int) or chunk_size < 1:
        raise ValueError(f"{op}: chunk_size ({chunk_size}) must be a positive integer")


def _check_dt_limit(op: str, dt_limit: tuple[float, float]) -> None:
    if len(dt_limit) != 2 or not dt_limit[0] <= dt_limit[1]:
        raise ValueError(f"{op}: dt_limit ({dt_limit}) must be (low, high) with low <= high")
