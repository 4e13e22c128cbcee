"""The native Ascend kernels: which library fits the chip, and the launch of a call.

The library (csrc/npu) is built where CANN is; nothing of it was ever run on an NPU. It registers one
operator, vmamba2_ascendc::ssd_forward, which takes what ascendc_call.prepare_forward arranges.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ops_ascend import native
from ops_ascend.ascendc_call import (
    INPUTS,
    PRECISIONS,
    beyond_kernels,
    empty_results,
    prepare_forward,
    unsupported,
)
from ops_ascend.calls import CrossCall, Request, SelectiveCall, SelectiveGradients, SSDCall, SSDGradients

_precision: ContextVar[str] = ContextVar("ascendc precision", default="accurate")


@contextmanager
def precision(name: str) -> Iterator[None]:
    """Choose the operands of the matrix products of float32 tensors for the calls inside.

    Args:
        name: "accurate", float32, which is also the default outside; or "half": operands are rounded to
            float16, states and decays stay float32.

    Raises:
        ValueError: there is no precision of that name.
    """
    if name not in PRECISIONS:
        raise ValueError(f"ascendc: precision ({name!r}) must be one of {', '.join(PRECISIONS)}")
    token = _precision.set(name)
    try:
        yield
    finally:
        _precision.reset(token)


def missing() -> list[str]:
    """Why no native library can be used on this machine; does not touch a device."""
    reasons = [native.reasons_against("npu", arch) for arch in native.CHIPS.values()]
    return reasons[0] if all(reasons) else []


def refuses(request: Request) -> list[str]:
    """Why the native kernels cannot run a call."""
    if request.device_type != "npu":
        return [f"it runs on npu, not on {request.device_type}"]
    reasons = beyond_kernels(request)
    # torch.compile cannot trace the question which chip this is; the launch asks it again.
    if reasons or missing() or torch.compiler.is_compiling():
        return reasons
    return _unusable()


def architecture(device_name: str) -> int | None:
    """The architecture of a chip by the name that torch_npu gives it; None for one without kernels."""
    if device_name.startswith(("Ascend910B", "Ascend910_93")):
        return 2201
    return 3510 if device_name.startswith("Ascend950") else None


def _chip() -> str:
    return torch.npu.get_device_name()  # type: ignore[attr-defined]


def _unusable() -> list[str]:
    """Why the library for the current device's chip cannot be loaded; nothing where there is no device."""
    if not hasattr(torch, "npu") or not torch.npu.is_available():
        return []
    arch = architecture(_chip())
    return [f"it has no kernels for {_chip()}"] if arch is None else native.reasons_against("npu", arch)


@cache
def _operator() -> Any:
    """The native operator, from the library for the current device's chip."""
    reasons = missing() or _unusable()
    if reasons:
        raise NotImplementedError(f"ascendc: {'; '.join(reasons)}")
    arch = architecture(_chip())
    assert arch is not None
    torch.ops.load_library(str(native.library_path("npu", arch)))
    return torch.ops.vmamba2_ascendc.ssd_forward.default


def _ssd_forward(op: str, call: SSDCall) -> tuple[Tensor, Tensor | None]:
    reasons = unsupported(call.x.dtype, call.x.shape[3], call.B.shape[3])
    if reasons:
        raise NotImplementedError(f"{op}: backend 'ascendc' cannot run this: {'; '.join(reasons)}")
    empty = empty_results(call)
    if empty is not None:
        return empty
    half = _precision.get() == "half" and call.x.dtype == torch.float32
    launch = prepare_forward(call, half_operands=half, checkpoint_every=0)
    inputs = [launch.inputs[name] for name in INPUTS]
    _operator()(*inputs, launch.y, launch.final_states, None, launch.integers, list(launch.limits))
    return launch.y, launch.final_states


def ssd_scan(call: SSDCall) -> tuple[Tensor, Tensor]:
    """Forward of ssd_scan."""
    y, final_states = _ssd_forward("ssd_scan", call)
    assert final_states is not None
    return y, final_states


def ssd_cross_scan(call: CrossCall) -> Tensor:
    """Forward of ssd_cross_scan."""
    return _ssd_forward("ssd_cross_scan", call)[0]


def _not_yet(op: str, what: str) -> NotImplementedError:
    return NotImplementedError(f"{op}: backend 'ascendc' has no {what} yet; use 'auto' or 'chunked'")


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
