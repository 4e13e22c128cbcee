"""The CPU twin: the AscendC kernels compiled for the host and checked while they run. For tests and tools.

    with twin.settings(chip="950PR", seed=3, precision="half"):
        y, final_states = ops_ascend.ssd_scan(..., backend="twin")
    twin.last_report()["gm_bytes"]

Every run is judged (bounds, alignment, uninitialised reads, races, hand-offs between cores): a finding is a
TwinError with one sentence. Times in a report are modelled. What is checked and counted: csrc/twin/README.md.
"""

import ctypes
import json
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ops_ascend.ascendc_call import (
    INPUTS,
    PRECISIONS,
    SIZES,
    STRIDED,
    ForwardLaunch,
    beyond_kernels,
    empty_results,
    prepare_forward,
    span_bytes,
    unsupported,
)
from ops_ascend.calls import CrossCall, Request, SelectiveCall, SelectiveGradients, SSDCall, SSDGradients
from ops_ascend.native import CHIPS, library_path, reasons_against

_OUTPUTS = ("y", "final_states", "checkpoints")


class TwinError(RuntimeError):
    """A kernel broke a rule of the chip; the message is the twin's sentence."""


@dataclass(frozen=True)
class TwinSettings:
    """How the twin runs.

    Attributes:
        chip: "910B3" or "950PR".
        seed: of the order in which pipes run.
        precision: of the operands of the matrix products of float32 tensors: "accurate" (float32) or "half"
            (float16).
        checkpoint_every: save the state that enters every that many chunks of 64 tokens; 0 saves none.
    """

    chip: str = "910B3"
    seed: int = 0
    precision: str = "accurate"
    checkpoint_every: int = 0

    def __post_init__(self) -> None:
        if self.chip not in CHIPS:
            raise ValueError(f"twin: chip ({self.chip!r}) must be one of {', '.join(CHIPS)}")
        if self.precision not in PRECISIONS:
            raise ValueError(f"twin: precision ({self.precision!r}) must be one of {', '.join(PRECISIONS)}")
        if self.checkpoint_every < 0:
            raise ValueError(f"twin: checkpoint_every ({self.checkpoint_every}) must not be negative")


class TwinResult(NamedTuple):
    """What a run gave: y, the states, and the report with counters and the modelled timeline."""

    y: Tensor
    final_states: Tensor | None
    checkpoints: Tensor | None
    report: dict[str, Any]
    trace: str | None


_settings: ContextVar[TwinSettings] = ContextVar("twin settings")
_last_report: ContextVar[dict[str, Any]] = ContextVar("twin report")


@contextmanager
def settings(**changes: Any) -> Iterator[TwinSettings]:
    """Run what is inside with these fields of TwinSettings changed."""
    token = _settings.set(replace(current_settings(), **changes))
    try:
        yield _settings.get()
    finally:
        _settings.reset(token)


def current_settings() -> TwinSettings:
    """The settings in force."""
    return _settings.get(TwinSettings())


def last_report() -> dict[str, Any]:
    """The report of the newest call of this thread; empty before the first.

    A call whose sequences are cut into segments is two launches: "first_report" is that of the one that
    finds the segments' states, everything else is the report of the one that computes y.
    """
    return _last_report.get({})


def missing() -> list[str]:
    """Why the twin cannot run on this machine."""
    # A plain loop: the compiler of PyTorch 2.6 traces through this, and knows no next() with a default.
    for arch in CHIPS.values():
        reasons = reasons_against("twin", arch)
        if reasons:
            return reasons
    return []


def refuses(request: Request) -> list[str]:
    """Why the twin cannot run a call."""
    if request.device_type != "cpu":
        return [f"it runs on cpu, not on {request.device_type}"]
    return beyond_kernels(request)


class _Call(ctypes.Structure):
    """SsdForwardCall of csrc/tiling/ssd_forward_plan.h."""

    _fields_ = (
        ("integers", ctypes.c_int64 * (len(SIZES) + 3 * len(STRIDED))),
        ("limits", ctypes.c_double * 2),
    )


class _Buffers(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p * (len(INPUTS) + len(_OUTPUTS))),
        ("bytes", ctypes.c_int64 * (len(INPUTS) + len(_OUTPUTS))),
    )


class _Options(ctypes.Structure):
    _fields_ = (("seed", ctypes.c_int64), ("trace", ctypes.c_int64), ("only_blocks", ctypes.c_int64))


@cache
def library(chip: str) -> ctypes.CDLL:
    """The twin of a chip, with the signatures of its C interface set.

    Raises:
        NotImplementedError: it is not built, or was built from other sources; the message says what to do.
    """
    reasons = reasons_against("twin", CHIPS[chip])
    if reasons:
        raise NotImplementedError(reasons[0])
    loaded = ctypes.CDLL(str(library_path("twin", CHIPS[chip])))
    call, buffers, options = (ctypes.POINTER(kind) for kind in (_Call, _Buffers, _Options))
    for function, arguments in {
        "vmamba2_ssd_forward_tiling": [call],
        "vmamba2_twin_ssd_forward": [call, buffers, options],
        "vmamba2_twin_trace": [],
        "vm_planted_name": [ctypes.c_int],
        "vm_planted_expects": [ctypes.c_int],
        "vm_planted_run": [ctypes.c_int, ctypes.c_uint64],
    }.items():
        getattr(loaded, function).argtypes = arguments
        getattr(loaded, function).restype = ctypes.c_char_p
    return loaded


def _answer(text: bytes) -> dict[str, Any]:
    """The JSON answer of the library; a call that the kernel does not take is a ValueError."""
    answer = json.loads(text)
    if "refused" in answer:
        raise ValueError(answer["refused"])
    return answer


def ssd_forward(call: SSDCall, *, trace: bool = False, only_blocks: int = 0) -> TwinResult:
    """Run the SSD forward of ssd_scan or ssd_cross_scan on the twin, with the settings in force.

    Args:
        call: the arguments, on the CPU.
        trace: also return a Chrome trace of the modelled timeline of one block.
        only_blocks: run that many blocks only and leave the rest of the outputs unwritten; 0 runs all.

    Raises:
        TwinError: the kernel broke a rule of the chip.
        ValueError: the kernel refuses the call.
        NotImplementedError: the call is beyond the kernel's sizes or dtypes, or the twin is not built.
    """
    reasons = unsupported(call.x.dtype, call.x.shape[3], call.B.shape[3])
    if reasons:
        raise NotImplementedError(f"{_op(call)}: backend 'twin' cannot run this: {'; '.join(reasons)}")
    chosen = current_settings()
    empty = empty_results(call)
    if empty is not None:
        return TwinResult(*empty, None, {}, None)
    twin = library(chosen.chip)
    launch = _launch(call, chosen)
    buffers = [*(launch.inputs[name] for name in INPUTS), launch.y, launch.final_states, launch.checkpoints]
    given = _Buffers()
    for i, tensor in enumerate(buffers):
        given.data[i] = None if tensor is None else tensor.data_ptr()
        given.bytes[i] = 0 if tensor is None else span_bytes(tensor)
    options = _Options(chosen.seed, trace, only_blocks)
    answer = _answer(
        twin.vmamba2_twin_ssd_forward(
            ctypes.byref(_struct(launch)), ctypes.byref(given), ctypes.byref(options)
        )
    )
    report = answer["report"] or {}
    if answer["first_report"]:
        report["first_report"] = answer["first_report"]
    _last_report.set(report)
    if answer["fault"]:
        raise TwinError(answer["fault"])
    text = twin.vmamba2_twin_trace().decode() if trace else None
    return TwinResult(launch.y, launch.final_states, launch.checkpoints, report, text)


def ssd_forward_tiling(call: SSDCall) -> dict[str, int]:
    """What the host tiling decides for a call on the chip in force: tasks, parts, segments, bytes.

    Raises:
        ValueError: the kernel refuses the call.
    """
    chosen = current_settings()
    launch = _launch(call, chosen)
    return _answer(library(chosen.chip).vmamba2_ssd_forward_tiling(ctypes.byref(_struct(launch))))


def _launch(call: SSDCall, chosen: TwinSettings) -> ForwardLaunch:
    half = chosen.precision == "half" and call.x.dtype == torch.float32
    return prepare_forward(call, half_operands=half, checkpoint_every=chosen.checkpoint_every)


def _struct(launch: ForwardLaunch) -> _Call:
    struct = _Call()
    struct.integers[:] = launch.integers
    struct.limits[:] = launch.limits
    return struct


def _op(call: SSDCall) -> str:
    return "ssd_cross_scan" if isinstance(call, CrossCall) else "ssd_scan"


def ssd_scan(call: SSDCall) -> tuple[Tensor, Tensor]:
    """Forward of ssd_scan."""
    result = ssd_forward(call)
    assert result.final_states is not None
    return result.y, result.final_states


def ssd_cross_scan(call: CrossCall) -> Tensor:
    """Forward of ssd_cross_scan."""
    return ssd_forward(call).y


def _not_yet(op: str, what: str) -> NotImplementedError:
    return NotImplementedError(f"{op}: backend 'twin' has no {what} yet; use 'auto' or 'chunked'")


def ssd_scan_backward(call: SSDCall, dy: Tensor, dstates: Tensor) -> SSDGradients:
    """Not there yet."""
    raise _not_yet("ssd_scan", "backward")


def ssd_cross_scan_backward(call: CrossCall, dy: Tensor) -> SSDGradients:
    """Not there yet."""
    raise _not_yet("ssd_cross_scan", "backward")


def selective_scan(call: SelectiveCall) -> tuple[Tensor, Tensor]:
    """Not there yet."""
    raise _not_yet("selective_scan", "kernel")


def selective_scan_backward(call: SelectiveCall, dy: Tensor, dstates: Tensor) -> SelectiveGradients:
    """Not there yet."""
    raise _not_yet("selective_scan", "backward")
