"""The backends: what each is called, where it can run, and which kernels it brings."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ops_ascend import chunked, tiled
from ops_ascend.calls import CrossCall, SelectiveCall, SelectiveGradients, SSDCall, SSDGradients

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
        refuses: reasons why it cannot run on a device of this type.
    """

    name: str
    summary: str
    kernels: Kernels | None
    missing: Callable[[], list[str]]
    refuses: Callable[[str], list[str]]


def _nothing() -> list[str]:
    return []


def _no_float64(device_type: str) -> list[str]:
    return [f"{device_type} has no float64"] if device_type in ("mps", "npu") else []


_CHUNKED = Kernels(
    ssd_forward=chunked.ssd_forward,
    ssd_backward=chunked.ssd_backward,
    cross_forward=chunked.cross_forward,
    cross_backward=chunked.cross_backward,
    selective_forward=tiled.selective_forward,
    selective_backward=tiled.selective_backward,
)

# In the order in which "auto" prefers them.
BACKENDS: dict[str, Backend] = {
    backend.name: backend
    for backend in (
        Backend("chunked", "matrix products in plain PyTorch", _CHUNKED, _nothing, lambda device_type: []),
        Backend("reference", "one token at a time in float64", None, _nothing, _no_float64),
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


def choose(op: str, requested: str, device: torch.device) -> str:
    """The backend that runs a call on this device.

    A backend named by the user is taken or refused, never replaced. "auto" takes the first that can run and
    logs once, per operator and device type, which one that is and why those before it were passed over.

    Raises:
        ValueError: there is no backend of that name.
        NotImplementedError: the named backend, or every backend, cannot run here; the message says why.
    """
    if requested != "auto":
        if requested not in BACKENDS:
            known = ", ".join(["auto", *BACKENDS])
            raise ValueError(f"{op}: backend ({requested!r}) must be one of {known}")
        reasons = _reasons(BACKENDS[requested], device.type)
        if reasons:
            raise NotImplementedError(f"{op}: backend {requested!r} cannot run here: {'; '.join(reasons)}")
        return requested
    passed_over: dict[str, list[str]] = {}
    for name, backend in BACKENDS.items():
        reasons = _reasons(backend, device.type)
        if not reasons:
            _log_once(op, device.type, name, passed_over)
            return name
        passed_over[name] = reasons
    listed = "; ".join(f"{name}: {', '.join(reasons)}" for name, reasons in passed_over.items())
    raise NotImplementedError(f"{op}: no backend can run on {device}: {listed}")


def _reasons(backend: Backend, device_type: str) -> list[str]:
    return [*backend.missing(), *backend.refuses(device_type)]


_logged: set[tuple[str, str]] = set()


def _log_once(op: str, device_type: str, name: str, passed_over: dict[str, list[str]]) -> None:
    # A logger call would break a graph that torch.compile traces, and on meta tensors nothing runs.
    if torch.compiler.is_compiling() or device_type == "meta" or (op, device_type) in _logged:
        return
    _logged.add((op, device_type))
    skipped = "".join(f"; not {other}: {', '.join(why)}" for other, why in passed_over.items())
    log.info("%s on %s runs with backend %s%s", op, device_type, name, skipped)
