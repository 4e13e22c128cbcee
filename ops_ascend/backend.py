"""The backends: what each is called, where it can run, and which kernels it brings."""

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from ops_ascend import ascendc, chunked, cpu, tiled, twin
from ops_ascend.ascendc_launch import Machine
from ops_ascend.ascendc_scan import SelectiveScan, SSDScan
from ops_ascend.calls import CrossCall, Request, SelectiveCall, SelectiveGradients, SSDCall, SSDGradients
from ops_ascend.spec import compute_dtype

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Kernels:
    """Forward and backward of every operator, on calls that are already validated.

    A forward with `save` may return, after its results, a tensor that its backward is handed. A backward
    takes None for the gradient of a result that has none.

    Attributes:
        ssd_forward: y and final states of a call; takes `save`.
        ssd_backward: takes the call, what was saved, and the gradients of y and of the final states.
        ssd_saved: the shape of what ssd_forward saves.
        cross_forward: y of a call; saves nothing.
        cross_backward: takes the call and the gradient of y.
        selective_forward: y and last state of a call; takes `save`.
        selective_backward: as ssd_backward.
        selective_saved: as ssd_saved.
    """

    ssd_forward: Callable[[SSDCall, bool], tuple[Tensor, Tensor, Tensor | None]]
    ssd_backward: Callable[[SSDCall, Tensor, Tensor | None, Tensor | None], SSDGradients]
    ssd_saved: Callable[[SSDCall], tuple[int, ...]]
    cross_forward: Callable[[CrossCall], Tensor]
    cross_backward: Callable[[CrossCall, Tensor], SSDGradients]
    selective_forward: Callable[[SelectiveCall, bool], tuple[Tensor, Tensor, Tensor | None]]
    selective_backward: Callable[[SelectiveCall, Tensor, Tensor | None, Tensor | None], SelectiveGradients]
    selective_saved: Callable[[SelectiveCall], tuple[int, ...]]


@dataclass(frozen=True)
class Backend:
    """One way to run the operators.

    Attributes:
        name: as users spell it.
        summary: what it is, in a few words.
        kernels: its kernels; None for the reference, whose gradients are PyTorch's own.
        missing: reasons why it cannot run on this machine at all.
        refuses: reasons why it cannot run a call.
        auto_on: types of devices on which "auto" considers it; None for all.
    """

    name: str
    summary: str
    kernels: Kernels | None
    missing: Callable[[], list[str]]
    refuses: Callable[[Request], list[str]]
    auto_on: Collection[str] | None = None


def _nothing() -> list[str]:
    return []


def _no_float64(request: Request) -> list[str]:
    kind = request.device_type
    return [f"{kind} has no float64"] if kind in ("mps", "npu") else []


_Call = TypeVar("_Call", SSDCall, SelectiveCall)
_Gradients = TypeVar("_Gradients", SSDGradients, SelectiveGradients)


def _saving_nothing(
    forward: Callable[[_Call], tuple[Tensor, Tensor]],
) -> Callable[[_Call, bool], tuple[Tensor, Tensor, None]]:
    def run(call: _Call, save: bool) -> tuple[Tensor, Tensor, None]:
        return *forward(call), None

    return run


def _from_inputs_alone(
    backward: Callable[[_Call, Tensor, Tensor], _Gradients],
) -> Callable[[_Call, Tensor, Tensor | None, Tensor | None], _Gradients]:
    """A backward that needs nothing saved, and both of its gradients."""

    def run(call: _Call, saved: Tensor, dy: Tensor | None, dstates: Tensor | None) -> _Gradients:
        if dy is None:
            dy = torch.zeros_like(call.x if isinstance(call, SSDCall) else call.u)
        if dstates is None:
            shape = call.states_shape()
            dstates = torch.zeros(shape, dtype=compute_dtype(dy), device=dy.device)
        return backward(call, dy, dstates)

    return run


def _nothing_saved(call: SSDCall | SelectiveCall) -> tuple[int, ...]:
    return (0,)


_CHUNKED = Kernels(
    ssd_forward=_saving_nothing(chunked.ssd_forward),
    ssd_backward=_from_inputs_alone(chunked.ssd_backward),
    ssd_saved=_nothing_saved,
    cross_forward=chunked.cross_forward,
    cross_backward=chunked.cross_backward,
    selective_forward=_saving_nothing(tiled.selective_forward),
    selective_backward=_from_inputs_alone(tiled.selective_backward),
    selective_saved=_nothing_saved,
)
_CPU = Kernels(
    ssd_forward=cpu.ssd_forward,
    ssd_backward=cpu.ssd_backward,
    ssd_saved=_nothing_saved,
    cross_forward=cpu.cross_forward,
    cross_backward=cpu.cross_backward,
    selective_forward=cpu.selective_forward,
    selective_backward=cpu.selective_backward,
    selective_saved=_nothing_saved,
)


def _native(machine: Machine) -> Kernels:
    ssd, selective = SSDScan(machine), SelectiveScan(machine)
    return Kernels(
        ssd_forward=ssd.forward,
        ssd_backward=ssd.backward,
        ssd_saved=ssd.saved,
        cross_forward=ssd.cross_forward,
        cross_backward=ssd.cross_backward,
        selective_forward=selective.forward,
        selective_backward=selective.backward,
        selective_saved=selective.saved,
    )


# In the order in which "auto" prefers them.
BACKENDS: dict[str, Backend] = {
    backend.name: backend
    for backend in (
        Backend(
            name="ascendc",
            summary="native Ascend kernels",
            kernels=_native(ascendc.MACHINE),
            missing=ascendc.missing,
            refuses=ascendc.refuses,
            auto_on=("npu",),
        ),
        Backend("cpu", "compiled kernels for the CPU", _CPU, cpu.missing, cpu.refuses, auto_on=("cpu",)),
        Backend("chunked", "matrix products in plain PyTorch", _CHUNKED, _nothing, lambda request: []),
        Backend("reference", "one token at a time in float64", None, _nothing, _no_float64),
        Backend(
            name="twin",
            summary="the Ascend kernels on the CPU, checked while they run",
            kernels=_native(twin.MACHINE),
            missing=twin.missing,
            refuses=twin.refuses,
            auto_on=(),
        ),
    )
}


def backends() -> dict[str, list[str]]:
    """Every backend's name with the reasons why it cannot run on this machine; an empty list when it can."""
    return {name: backend.missing() for name, backend in BACKENDS.items()}


def kernels(name: str) -> Kernels:
    """The kernels of a backend that was chosen by choose()."""
    found = BACKENDS[name].kernels
    assert found is not None, f"{name} has no kernels of its own"
    return found


def choose(requested: str, request: Request) -> str:
    """The backend that runs a call.

    A backend named by the user is taken or refused, never replaced. "auto" takes the first that can run the
    call and logs once, per operator, device type and choice, why those before it were passed over.

    Raises:
        ValueError: there is no backend of that name.
        NotImplementedError: the named backend, or every backend, cannot run the call; the message says why.
    """
    op, device_type = request.op, request.device_type
    if requested != "auto":
        if requested not in BACKENDS:
            known = ", ".join(["auto", *BACKENDS])
            raise ValueError(f"{op}: backend ({requested!r}) must be one of {known}")
        reasons = _reasons(BACKENDS[requested], request)
        if reasons:
            raise NotImplementedError(f"{op}: backend {requested!r} cannot run here: {'; '.join(reasons)}")
        return requested
    passed_over: dict[str, list[str]] = {}
    for name, backend in BACKENDS.items():
        if backend.auto_on is not None and device_type not in backend.auto_on:
            continue
        reasons = _reasons(backend, request)
        if not reasons:
            _log_once(op, device_type, name, passed_over)
            return name
        passed_over[name] = reasons
    listed = "; ".join(f"{name}: {', '.join(reasons)}" for name, reasons in passed_over.items())
    raise NotImplementedError(f"{op}: no backend can run on {device_type}: {listed}")


def _reasons(backend: Backend, request: Request) -> list[str]:
    return [*backend.missing(), *backend.refuses(request)]


_logged: set[tuple[str, str, str]] = set()


def _log_once(op: str, device_type: str, name: str, passed_over: dict[str, list[str]]) -> None:
    # A logger call would break a graph that torch.compile traces, and on meta tensors nothing runs.
    if torch.compiler.is_compiling() or device_type == "meta" or (op, device_type, name) in _logged:
        return
    _logged.add((op, device_type, name))
    skipped = "".join(f"; not {other}: {', '.join(why)}" for other, why in passed_over.items())
    log.info("%s on %s runs with backend %s%s", op, device_type, name, skipped)
