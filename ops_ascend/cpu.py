"""The operators on the compiled CPU kernels of csrc/cpu, which read and write tensors where they are.

    with cpu.settings(instructions="avx2"):
        y, final_states = ops_ascend.ssd_scan(..., backend="cpu")

There is a library for each set of instructions; without settings the best that the processor has is taken.
A call gets torch.get_num_threads() threads of the OpenMP runtime that PyTorch uses, one where it is small and
one in a process that was forked. A backward needs the inputs alone.

Two runs give the same bits. So does another number of threads, but for dB and dC of a Mamba-2 scan with fewer
(batch, group) pairs than threads. Numbers too small for a normal exponent are zero.
"""

import ctypes
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from ops_ascend.calls import CrossCall, Request, SelectiveCall, SelectiveGradients, SSDCall, SSDGradients
from ops_ascend.native import INSTRUCTIONS, library_path, reasons_against
from ops_ascend.spec import compute_dtype

# The structures of csrc/cpu/call.h: integers, numbers and tensors, eight bytes each or times six.
_TENSOR = 6
_SSD_CALL = struct.Struct(f"12q2d{10 * _TENSOR}q")
_SSD_RESULTS = struct.Struct(f"{2 * _TENSOR}q")
_SSD_GRADIENTS = struct.Struct(f"{11 * _TENSOR}q")
_SELECTIVE_CALL = struct.Struct(f"7q{8 * _TENSOR}q")
_SELECTIVE_RESULTS = struct.Struct(f"{2 * _TENSOR}q")
_SELECTIVE_GRADIENTS = struct.Struct(f"{10 * _TENSOR}q")


_DTYPES = {
    torch.float32: 0,
    torch.float64: 1,
    torch.bfloat16: 2,
    torch.float16: 3,
    torch.int32: 4,
    torch.int64: 5,
}
_ABSENT = (0,) * _TENSOR
_PADDING = tuple((0,) * (4 - dimensions) for dimensions in range(5))

_Kernel = Callable[[bytes, bytes], int]


class _Library(NamedTuple):
    ssd_forward: _Kernel
    ssd_backward: _Kernel
    selective_forward: _Kernel
    selective_backward: _Kernel


_instructions: ContextVar[str | None] = ContextVar("cpu instructions", default=None)


@contextmanager
def settings(*, instructions: str) -> Iterator[None]:
    """Run what is inside, and its backward, with the library for these instructions.

    Raises:
        ValueError: there is no such set, or it cannot run here; the message says why.
    """
    if instructions not in INSTRUCTIONS:
        raise ValueError(f"cpu: instructions ({instructions!r}) must be one of {', '.join(INSTRUCTIONS)}")
    reasons = reasons_against("cpu", instructions)
    if not reasons and _library(instructions) is None:
        reasons = ["this processor does not have them"]
    if reasons:
        raise ValueError(f"cpu: instructions ({instructions!r}) cannot run here: {reasons[0]}")
    token = _instructions.set(instructions)
    try:
        yield
    finally:
        _instructions.reset(token)


def instruction_sets() -> list[str]:
    """The sets of instructions with a library that runs here, the best first."""
    return [name for name in INSTRUCTIONS if not reasons_against("cpu", name) and _library(name) is not None]


def missing() -> list[str]:
    """Why the kernels cannot run on this machine."""
    return reasons_against("cpu", "generic") or list(_broken)


def refuses(request: Request) -> list[str]:
    """Why the kernels cannot run a call: they take every size and dtype, on the CPU."""
    return [] if request.device_type == "cpu" else [f"it runs on cpu, not on {request.device_type}"]


def _openmp() -> str | None:
    """The file of the OpenMP runtime in this process: PyTorch's own before any other."""
    maps = Path("/proc/self/maps")
    if not maps.exists():
        return None
    paths = {line.split(maxsplit=5)[-1] for line in maps.read_text().splitlines() if ".so" in line}
    runtimes = [path for path in paths if Path(path).name.startswith(("libgomp", "libomp", "libiomp5"))]
    inside = Path(torch.__file__).parent
    runtimes.sort(key=lambda path: (inside not in Path(path).parents, path))
    return runtimes[0] if runtimes else "libgomp.so.1"


@cache
def _share_openmp() -> None:
    # The kernels look the runtime up among what is visible to all.
    path = _openmp()
    if path is not None:
        try:
            ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        except OSError:
            # PyTorch without OpenMP, on a machine without it: one thread runs everything.
            assert path == "libgomp.so.1", path


@cache
def _library(instructions: str) -> _Library | None:
    """The kernels for a set of instructions; None where the processor does not have it."""
    _share_openmp()
    loaded = ctypes.CDLL(str(library_path("cpu", instructions)))
    if not loaded.vmamba2_cpu_runs_here():
        return None
    kernels = [getattr(loaded, f"vmamba2_cpu_{name}") for name in _Library._fields]
    for kernel in kernels:
        kernel.argtypes, kernel.restype = (ctypes.c_char_p, ctypes.c_char_p), ctypes.c_int
    return _Library(*kernels)


@cache
def _best() -> _Library:
    built = (name for name in INSTRUCTIONS if not reasons_against("cpu", name))
    return next(library for name in built if (library := _library(name)) is not None)


def _kernels() -> _Library:
    chosen = _instructions.get()
    if chosen is None:
        return _best()
    library = _library(chosen)
    assert library is not None, chosen
    return library


def _load() -> list[str]:
    """Load what calls without settings will use; why that fails, if it does."""
    if reasons_against("cpu", "generic"):
        return []
    try:
        _best()
    except OSError as error:
        return [f"the CPU library cannot be loaded: {error}"]
    return []


_broken = _load()


def _fields(tensor: Tensor | None) -> tuple[int, ...]:
    if tensor is None:
        return _ABSENT
    strides = tensor.stride()
    return (tensor.data_ptr(), _DTYPES[tensor.dtype], *strides, *_PADDING[len(strides)])


def _all_fields(tensors: tuple[Tensor | None, ...]) -> list[int]:
    return [field for tensor in tensors for field in _fields(tensor)]


def _run(kernel: _Kernel, call: bytes, results: bytes) -> None:
    if kernel(call, results):
        raise MemoryError("the CPU kernels found no memory for what a scan needs on its way")


def _like(tensor: Tensor) -> Tensor:
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


def _like_optional(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else _like(tensor)


def _ssd_fields(call: SSDCall) -> bytes:
    batch, seqlen, nheads, headdim = call.x.shape
    ngroups, dstate = call.B.shape[2:]
    per_channel = call.D is not None and call.D.dim() == 2
    grid = (call.directions, call.height, call.width) if isinstance(call, CrossCall) else (0, 0, 0)
    tensors = (
        call.x, call.dt, call.A, call.B, call.C, call.D, call.z, call.dt_bias, call.initial_states,
        call.seq_idx,
    )  # fmt: skip
    return _SSD_CALL.pack(
        batch,
        seqlen,
        nheads,
        headdim,
        ngroups,
        dstate,
        call.dt_softplus,
        per_channel,
        *grid,
        torch.get_num_threads(),
        *call.dt_limit,
        *_all_fields(tensors),
    )


def ssd_forward(call: SSDCall, save: bool) -> tuple[Tensor, Tensor, None]:
    """Give y and the final states of a call; nothing is saved."""
    y = _like(call.x)
    final_states = call.x.new_empty(call.states_shape(), dtype=compute_dtype(call.x))
    results = _SSD_RESULTS.pack(*_all_fields((y, final_states)))
    _run(_kernels().ssd_forward, _ssd_fields(call), results)
    return y, final_states, None


def ssd_backward(
    call: SSDCall, saved: Tensor | None, dy: Tensor | None, dstates: Tensor | None
) -> SSDGradients:
    """Give the gradients of a call from those of y and of the final states, None for one that is zero."""
    gradients = SSDGradients(
        x=_like(call.x),
        dt=_like(call.dt),
        A=_like(call.A),
        B=_like(call.B),
        C=_like(call.C),
        D=_like_optional(call.D),
        z=_like_optional(call.z),
        dt_bias=_like_optional(call.dt_bias),
        initial_states=_like_optional(call.initial_states),
    )
    results = _SSD_GRADIENTS.pack(*_all_fields((dy, dstates, *gradients)))
    _run(_kernels().ssd_backward, _ssd_fields(call), results)
    return gradients


def cross_forward(call: CrossCall) -> Tensor:
    """Give y of a call."""
    y = _like(call.x)
    _run(_kernels().ssd_forward, _ssd_fields(call), _SSD_RESULTS.pack(*_all_fields((y, None))))
    return y


def cross_backward(call: CrossCall, dy: Tensor) -> SSDGradients:
    """Give the gradients of a call from that of y."""
    return ssd_backward(call, None, dy, None)


def _selective_fields(call: SelectiveCall) -> bytes:
    batch, dim, seqlen = call.u.shape
    ngroups, dstate = call.B.shape[1:3]
    tensors = (call.u, call.delta, call.A, call.B, call.C, call.D, call.z, call.delta_bias)
    return _SELECTIVE_CALL.pack(
        batch,
        dim,
        seqlen,
        ngroups,
        dstate,
        call.delta_softplus,
        torch.get_num_threads(),
        *_all_fields(tensors),
    )


def selective_forward(call: SelectiveCall, save: bool) -> tuple[Tensor, Tensor, None]:
    """Give y and the last state of a call; nothing is saved."""
    y = _like(call.u)
    last_state = call.u.new_empty(call.states_shape(), dtype=compute_dtype(call.u))
    results = _SELECTIVE_RESULTS.pack(*_all_fields((y, last_state)))
    _run(_kernels().selective_forward, _selective_fields(call), results)
    return y, last_state, None


def selective_backward(
    call: SelectiveCall, saved: Tensor | None, dy: Tensor | None, dstates: Tensor | None
) -> SelectiveGradients:
    """Give the gradients of a call from those of y and of the last state, None for one that is zero."""
    gradients = SelectiveGradients(
        u=_like(call.u),
        delta=_like(call.delta),
        A=_like(call.A),
        B=_like(call.B),
        C=_like(call.C),
        D=_like_optional(call.D),
        z=_like_optional(call.z),
        delta_bias=_like_optional(call.delta_bias),
    )
    results = _SELECTIVE_GRADIENTS.pack(*_all_fields((dy, dstates, *gradients)))
    _run(_kernels().selective_backward, _selective_fields(call), results)
    return gradients
