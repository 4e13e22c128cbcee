"""The native Ascend kernels: which library fits the chip, and the launch of a call.

The library (csrc/npu) is built where CANN is; nothing of it was ever run on an NPU. It registers one operator
for each kernel in vmamba2_ascendc, which takes a launch's buffers in their order, the integers of the call
structure, and its other numbers if there are any; and for the partial sums that a backward leaves an operator
that tells how many, from the numbers alone.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

import torch

from ops_ascend import native
from ops_ascend.ascendc_launch import PRECISIONS, Fields, Launch, Machine, beyond_kernels
from ops_ascend.calls import Request

_precision: ContextVar[str] = ContextVar("ascendc precision", default="accurate")


@contextmanager
def precision(name: str) -> Iterator[None]:
    """Choose the operands of the matrix products of float32 tensors for the calls inside, and their backward.

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
def _operator(name: str) -> Any:
    """A native operator, from the library for the current device's chip."""
    reasons = missing() or _unusable()
    if reasons:
        raise NotImplementedError(f"ascendc: {'; '.join(reasons)}")
    arch = architecture(_chip())
    assert arch is not None
    torch.ops.load_library(str(native.library_path("npu", arch)))
    return getattr(torch.ops.vmamba2_ascendc, name).default


def _numbers(fields: Fields) -> list[list[int] | list[float]]:
    integers = [field for field in fields if isinstance(field, int)]
    others = [field for field in fields if isinstance(field, float)]
    return [integers, others] if others else [integers]


def _run(launch: Launch) -> None:
    _operator(launch.kernel)(*launch.buffers(), *_numbers(launch.fields))


def _plan(kernel: str, sums: str, fields: Fields) -> int:
    return _operator(f"{kernel}_{sums}")(*_numbers(fields))


MACHINE = Machine("ascendc", lambda: _precision.get() == "half", _plan, _run)
