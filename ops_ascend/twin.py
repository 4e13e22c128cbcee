"""The CPU twin: the AscendC kernels compiled for the host and checked while they run. For tests and tools.

    with twin.settings(chip="950PR", seed=3, precision="half"):
        y, final_states = ops_ascend.ssd_scan(..., backend="twin")
    twin.last_report()["gm_bytes"]

Every run is judged (bounds, alignment, uninitialised reads, races, hand-offs between cores): a finding is a
TwinError with one sentence. Times in a report are modelled. What is checked and counted: csrc/twin/README.md.
"""

import ctypes
import json
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

from torch import Tensor

from ops_ascend.ascendc_call import prepare_forward
from ops_ascend.ascendc_launch import PRECISIONS, Fields, Launch, Machine, beyond_kernels, span_bytes
from ops_ascend.ascendc_scan import refuse
from ops_ascend.calls import CrossCall, Request, SSDCall
from ops_ascend.native import CHIPS, library_path, reasons_against


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
        checkpoint_every: ssd_forward() saves the state that enters every that many chunks of 64 tokens; 0
            saves none. An operator whose gradients are wanted saves what its backward needs.
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


class TwinRun(NamedTuple):
    """What the twin says of a launch: counters and modelled timeline, and a Chrome trace if asked for."""

    report: dict[str, Any]
    trace: str | None


class TwinResult(NamedTuple):
    """What an SSD forward gave: y, the states, and what the twin says of it."""

    y: Tensor
    final_states: Tensor | None
    checkpoints: Tensor | None
    report: dict[str, Any]
    trace: str | None


_settings: ContextVar[TwinSettings] = ContextVar("twin settings")
# Not a context variable: a backward runs in a copy of its forward's context.
_newest = threading.local()


@contextmanager
def settings(**changes: Any) -> Iterator[TwinSettings]:
    """Run what is inside, and its backward, with these fields of TwinSettings changed."""
    token = _settings.set(replace(current_settings(), **changes))
    try:
        yield _settings.get()
    finally:
        _settings.reset(token)


def current_settings() -> TwinSettings:
    """The settings in force."""
    return _settings.get(TwinSettings())


def last_report() -> dict[str, Any]:
    """The report of the newest launch of this thread; empty before the first.

    A call whose sequences are cut into segments is two launches: "first_report" is that of the one that
    finds the segments' states, everything else is the report of the one that computes y.
    """
    return getattr(_newest, "report", {})


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


class _Options(ctypes.Structure):
    _fields_ = (("seed", ctypes.c_int64), ("trace", ctypes.c_int64), ("only_blocks", ctypes.c_int64))


@cache
def library(chip: str) -> ctypes.CDLL:
    """The twin of a chip; its functions give text, those of kernels take pointers.

    Raises:
        NotImplementedError: it is not built, or was built from other sources; the message says what to do.
    """
    reasons = reasons_against("twin", CHIPS[chip])
    if reasons:
        raise NotImplementedError(reasons[0])
    loaded = ctypes.CDLL(str(library_path("twin", CHIPS[chip])))
    for function, arguments in {
        "vmamba2_twin_trace": [],
        "vm_planted_name": [ctypes.c_int],
        "vm_planted_expects": [ctypes.c_int],
        "vm_planted_run": [ctypes.c_int, ctypes.c_uint64],
    }.items():
        getattr(loaded, function).argtypes = arguments
        getattr(loaded, function).restype = ctypes.c_char_p
    return loaded


def _ask(function: str, *structures: Any) -> dict[str, Any]:
    """The JSON answer of a function of the library in force; a call that a kernel refuses is a ValueError."""
    called = getattr(library(current_settings().chip), function)
    called.restype = ctypes.c_char_p
    answer = json.loads(called(*(ctypes.byref(structure) for structure in structures)))
    if "refused" in answer:
        raise ValueError(answer["refused"])
    return answer


def _call_structure(fields: Fields) -> Any:
    packed = struct.pack("".join("q" if isinstance(field, int) else "d" for field in fields), *fields)
    return ctypes.create_string_buffer(packed, len(packed))


def _buffers_structure(buffers: list[Tensor | None]) -> Any:
    """The addresses of all buffers, then their sizes."""
    addresses = [0 if tensor is None else tensor.data_ptr() for tensor in buffers]
    sizes = [0 if tensor is None else span_bytes(tensor) for tensor in buffers]
    return (ctypes.c_int64 * (2 * len(buffers)))(*addresses, *sizes)


def run(launch: Launch, *, trace: bool = False, only_blocks: int = 0) -> TwinRun:
    """Run a launch on the twin, with the settings in force; its outputs are filled.

    Args:
        launch: with buffers on the CPU.
        trace: also return a Chrome trace of the modelled timeline of one block.
        only_blocks: run that many blocks only and leave the rest of the outputs unwritten; 0 runs all.

    Raises:
        TwinError: the kernel broke a rule of the chip.
        ValueError: the kernel refuses the call.
        NotImplementedError: the twin is not built.
    """
    options = _Options(current_settings().seed, trace, only_blocks)
    call, buffers = _call_structure(launch.fields), _buffers_structure(launch.buffers())
    answer = _ask(f"vmamba2_twin_{launch.kernel}", call, buffers, options)
    report = answer["report"] or {}
    if answer.get("first_report"):
        report["first_report"] = answer["first_report"]
    _newest.report = report
    if answer["fault"]:
        raise TwinError(answer["fault"])
    text = library(current_settings().chip).vmamba2_twin_trace().decode() if trace else None
    return TwinRun(report, text)


def tiling(kernel: str, fields: Fields) -> dict[str, int]:
    """What the host tiling decides for a call on the chip in force: tasks, parts, bytes.

    Raises:
        ValueError: the kernel refuses the call.
    """
    return _ask(f"vmamba2_{kernel}_tiling", _call_structure(fields))


def plan(kernel: str, sums: str, fields: Fields) -> int:
    """How many partial sums a kernel leaves to its caller: "parts" of dB and dC, "rows" of parameters."""
    return tiling(kernel, fields)[sums]


def half_operands() -> bool:
    """Whether the operands of the matrix products of float32 tensors are float16."""
    return current_settings().precision == "half"


MACHINE = Machine("twin", half_operands, plan, run)


def _prepared(call: SSDCall) -> Launch:
    return prepare_forward(
        call, half_operands=half_operands(), checkpoint_every=current_settings().checkpoint_every
    )


def ssd_forward(call: SSDCall, *, trace: bool = False, only_blocks: int = 0) -> TwinResult:
    """Run the SSD forward of a call with tokens, of ssd_scan or ssd_cross_scan; see run().

    Raises:
        TwinError, ValueError, NotImplementedError: as run(), or the call is beyond the kernel.
    """
    op = "ssd_cross_scan" if isinstance(call, CrossCall) else "ssd_scan"
    refuse(MACHINE, op, call.x, call.x.shape[3], call.B.shape[3])
    launch = _prepared(call)
    report, text = run(launch, trace=trace, only_blocks=only_blocks)
    outputs = launch.outputs
    return TwinResult(launch.output("y"), outputs["final_states"], outputs["checkpoints"], report, text)


def ssd_forward_tiling(call: SSDCall) -> dict[str, int]:
    """tiling() of the SSD forward of a call."""
    return tiling("ssd_forward", _prepared(call).fields)
