"""The backends: what each is called, where it can run, and which kernels it brings."""

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass

import torch
from torch import Tensor

from ops_ascend import ascendc, chunked, tiled, twin
from ops_ascend.calls import CrossCall, Request, SelectiveCall, SelectiveGradients, SSDCall, SSDGradients

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Kernels:
    """Forward and backward of every operator, on calls that are already validated."""

    ssd_forward: Callable[[SSDCall], tuple[Tensor, Tensor]]
    ssd_backward: Callable[[SSDCall, Tensor, Tensor], SSDGradients]
    cross_forward: Callable[[CrossCall], Tensor]
    cross_backward: Callable[[CrossCall, Tensor], SSDGradients]
    selective_forward: Callable[[SelectiveCall], tuple[Tensor, Tensor]]
    selective_backward: Callable[[SelectiveCall, Tensor, Tensor], SelectiveGradients]


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
        trains: whether it has a backward.
    """

    name: str
    summary: str
    kernels: Kernels | None
    missing: Callable[[], list[str]]
    refuses: Callable[[Request], list[str]]
    auto_on: Collection[str] | None = None
    trains: bool = True


def _nothing() -> list[str]:
    return []


def _no_float64(request: Request) -> list[str]:
    kind = request.device_type
    return [f"{kind} has no float64"] if kind in ("mps", "npu") else []


_CHUNKED = Kernels(
    ssd_forward=chunked.ssd_forward,
    ssd_backward=chunked.ssd_backward,
    cross_forward=chunked.cross_forward,
    cross_backward=chunked.cross_backward,
    selective_forward=tiled.selective_forward,
    selective_backward=tiled.selective_backward,
)

_ASCENDC = Kernels(
    ssd_forward=ascendc.ssd_scan,
    ssd_backward=ascendc.ssd_scan_backward,
    cross_forward=ascendc.ssd_cross_scan,
    cross_backward=ascendc.ssd_cross_scan_backward,
    selective_forward=ascendc.selective_scan,
    selective_backward=ascendc.selective_scan_backward,
)
_TWIN = Kernels(
    ssd_forward=twin.ssd_scan,
    ssd_backward=twin.ssd_scan_backward,
    cross_forward=twin.ssd_cross_scan,
    cross_backward=twin.ssd_cross_scan_backward,
    selective_forward=twin.selective_scan,
    selective_backward=twin.selective_scan_backward,
)

# In the order in which "auto" prefers them.
BACKENDS: dict[str, Backend] = {
    backend.name: backend
    for backend in (
        Backend(
            name="ascendc",
            summary="native Ascend kernels",
            kernels=_ASCENDC,
            missing=ascendc.missing,
            refuses=ascendc.refuses,
            auto_on=("npu",),
            trains=False,
        ),
        Backend("chunked", "matrix products in plain PyTorch", _CHUNKED, _nothing, lambda request: []),
        Backend("reference", "one token at a time in float64", None, _nothing, _no_float64),
        Backend(
            name="twin",
            summary="the Ascend kernels on the CPU, checked while they run",
            kernels=_TWIN,
            missing=twin.missing,
            refuses=twin.refuses,
            auto_on=(),
            trains=False,
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
        if request.gradients and not backend.trains:
            reasons.append("it has no backward yet")
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
