"""The operators as torch.library sees them: schemas, fake kernels, autograd and FLOP formulas.

An operator takes the name of the backend that does the work, so that one schema, one fake kernel and one
autograd formula serve them all. Kernels run with autocast off: what the caller passes wide stays wide.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from ops_ascend.backend import kernels
from ops_ascend.calls import CrossCall, SelectiveCall, SSDCall
from ops_ascend.spec import compute_dtype

NAMESPACE = "vmamba2"
_LIBRARY = torch.library.Library(NAMESPACE, "DEF")

_SSD = (
    "Tensor x, Tensor dt, Tensor A, Tensor B, Tensor C, Tensor? D, Tensor? z, Tensor? dt_bias, "
    "Tensor? initial_states, Tensor? seq_idx, int chunk_size, bool dt_softplus, float dt_min, float dt_max"
)
_CROSS = (
    "Tensor x, Tensor dt, Tensor A, Tensor B, Tensor C, Tensor? D, Tensor? z, Tensor? dt_bias, "
    "int chunk_size, bool dt_softplus, float dt_min, float dt_max, int height, int width, int directions"
)
_SELECTIVE = (
    "Tensor u, Tensor delta, Tensor A, Tensor B, Tensor C, Tensor? D, Tensor? z, Tensor? delta_bias, "
    "bool delta_softplus"
)


def _returns(count: int) -> str:
    return "(" + ", ".join(["Tensor"] * count) + ")"


_LIBRARY.define(f"ssd_scan({_SSD}, str backend) -> (Tensor, Tensor)")
_LIBRARY.define(f"ssd_scan_backward(Tensor dy, Tensor dstates, {_SSD}, str backend) -> {_returns(9)}")
_LIBRARY.define(f"ssd_cross_scan({_CROSS}, str backend) -> Tensor")
_LIBRARY.define(f"ssd_cross_scan_backward(Tensor dy, {_CROSS}, str backend) -> {_returns(8)}")
_LIBRARY.define(f"selective_scan({_SELECTIVE}, str backend) -> (Tensor, Tensor)")
_LIBRARY.define(
    f"selective_scan_backward(Tensor dy, Tensor dstates, {_SELECTIVE}, str backend) -> {_returns(8)}"
)


def _named(schema: str, args: tuple[Any, ...]) -> dict[str, Any]:
    """The arguments by the names of the schema, the two limits of dt as one."""
    named = dict(zip([part.split()[-1] for part in schema.split(", ")], args, strict=True))
    return named | {"dt_limit": (named.pop("dt_min"), named.pop("dt_max"))}


def _ssd_call(*args: Any) -> SSDCall:
    return SSDCall(**_named(_SSD, args))


def _cross_call(*args: Any) -> CrossCall:
    return CrossCall(**_named(_CROSS, args), initial_states=None, seq_idx=None)


def _or_empty(gradients: tuple[Tensor | None, ...], like: Tensor) -> tuple[Tensor, ...]:
    """A schema cannot return None: the gradient of a tensor that was not given is an empty tensor."""
    return tuple(like.new_empty(0) if gradient is None else gradient for gradient in gradients)


def _without_autocast(kernel: Callable) -> Callable:
    def run(*args: Any) -> Any:
        device_type = next(arg.device.type for arg in args if isinstance(arg, Tensor))
        with torch.autocast(device_type, enabled=False):
            return kernel(*args)

    return run


def _ssd_scan(*args: Any) -> tuple[Tensor, Tensor]:
    *arguments, backend = args
    return kernels(backend).ssd_forward(_ssd_call(*arguments))


def _ssd_scan_backward(dy: Tensor, dstates: Tensor, *args: Any) -> tuple[Tensor, ...]:
    *arguments, backend = args
    return _or_empty(kernels(backend).ssd_backward(_ssd_call(*arguments), dy, dstates), dy)


def _ssd_cross_scan(*args: Any) -> Tensor:
    *arguments, backend = args
    return kernels(backend).cross_forward(_cross_call(*arguments))


def _ssd_cross_scan_backward(dy: Tensor, *args: Any) -> tuple[Tensor, ...]:
    *arguments, backend = args
    return _or_empty(kernels(backend).cross_backward(_cross_call(*arguments), dy)[:8], dy)


def _selective_scan(*args: Any) -> tuple[Tensor, Tensor]:
    *arguments, backend = args
    return kernels(backend).selective_forward(SelectiveCall(*arguments))


def _selective_scan_backward(dy: Tensor, dstates: Tensor, *args: Any) -> tuple[Tensor, ...]:
    *arguments, backend = args
    return _or_empty(kernels(backend).selective_backward(SelectiveCall(*arguments), dy, dstates), dy)


def _fresh(tensor: Tensor) -> Tensor:
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


def _fake_gradients(tensors: tuple[Tensor | None, ...], dy: Tensor) -> tuple[Tensor, ...]:
    return tuple(dy.new_empty(0) if tensor is None else _fresh(tensor) for tensor in tensors)


def _fake_ssd_scan(x: Tensor, dt: Tensor, A: Tensor, B: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    batch, _seqlen, nheads, headdim = x.shape
    return _fresh(x), x.new_empty(batch, nheads, headdim, B.shape[3], dtype=compute_dtype(x))


def _fake_selective_scan(u: Tensor, delta: Tensor, A: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return _fresh(u), u.new_empty(u.shape[0], *A.shape, dtype=compute_dtype(u))


def _fake_state_backward(count: int) -> Callable:
    return lambda dy, dstates, *args: _fake_gradients(args[:count], dy)


_OPERATORS: dict[str, tuple[Callable, Callable]] = {
    "ssd_scan": (_ssd_scan, _fake_ssd_scan),
    "ssd_scan_backward": (_ssd_scan_backward, _fake_state_backward(9)),
    "ssd_cross_scan": (_ssd_cross_scan, lambda x, *_: _fresh(x)),
    "ssd_cross_scan_backward": (_ssd_cross_scan_backward, lambda dy, *args: _fake_gradients(args[:8], dy)),
    "selective_scan": (_selective_scan, _fake_selective_scan),
    "selective_scan_backward": (_selective_scan_backward, _fake_state_backward(8)),
}
for _name, (_kernel, _fake) in _OPERATORS.items():
    # The npu of torch_npu is the dispatcher's PrivateUse1, whether or not it is installed yet.
    for _key in ("CPU", "CUDA", "PrivateUse1"):
        _LIBRARY.impl(_name, _without_autocast(_kernel), _key)
    torch.library.register_fake(f"{NAMESPACE}::{_name}", _fake, lib=_LIBRARY)

ssd_scan_op = torch.ops.vmamba2.ssd_scan.default
ssd_cross_scan_op = torch.ops.vmamba2.ssd_cross_scan.default
selective_scan_op = torch.ops.vmamba2.selective_scan.default


def _save_arguments(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    tensors = [arg for arg in inputs if isinstance(arg, Tensor)]
    ctx.save_for_backward(*tensors)
    # Where each saved tensor goes; everything else is kept as it is.
    ctx.arguments = [None if isinstance(arg, Tensor) else (arg,) for arg in inputs]


def _saved_arguments(ctx: Any) -> list[Any]:
    tensors = iter(ctx.saved_tensors)
    return [next(tensors) if kept is None else kept[0] for kept in ctx.arguments]


def _differentiate_with(backward: Any) -> Callable:
    """An autograd formula that hands the output's gradients and the arguments to a backward operator."""

    def formula(ctx: Any, *doutputs: Tensor) -> tuple[Tensor | None, ...]:
        arguments = _saved_arguments(ctx)
        gradients = backward(*doutputs, *arguments)
        wanted = zip(gradients, arguments, ctx.needs_input_grad, strict=False)
        given = [gradient if isinstance(arg, Tensor) and need else None for gradient, arg, need in wanted]
        return (*given, *[None] * (len(arguments) - len(given)))

    return formula


def _refuse_second_derivative(name: str) -> Callable:
    def formula(ctx: Any, *_: Any) -> None:
        raise NotImplementedError(f"{name}: second derivatives need backend='reference'")

    return formula


for _name in ("ssd_scan", "ssd_cross_scan", "selective_scan"):
    _backward = getattr(torch.ops.vmamba2, f"{_name}_backward").default
    torch.library.register_autograd(
        f"{NAMESPACE}::{_name}",
        _differentiate_with(_backward),
        setup_context=_save_arguments,
        lib=_LIBRARY,
    )
    torch.library.register_autograd(
        f"{NAMESPACE}::{_name}_backward", _refuse_second_derivative(_name), lib=_LIBRARY
    )


# FLOP formulas see shapes in place of tensors. They count two per multiply-add of the recurrence (decay the
# state, add dt x B^T, read it with C), whatever a backend does to compute it; backward counts twice that.
def _ssd_flops(x: Any, B: Any, directions: int = 1) -> int:
    return 2 * 3 * math.prod(x) * B[3] * directions


@register_flop_formula(torch.ops.vmamba2.ssd_scan)
def _ssd_scan_flops(x: Any, dt: Any, A: Any, B: Any, *_: Any, **__: Any) -> int:
    return _ssd_flops(x, B)


@register_flop_formula(torch.ops.vmamba2.ssd_scan_backward)
def _ssd_scan_backward_flops(dy: Any, dstates: Any, *forward: Any, **_: Any) -> int:
    return 2 * _ssd_scan_flops(*forward)


@register_flop_formula(torch.ops.vmamba2.ssd_cross_scan)
def _ssd_cross_scan_flops(x: Any, dt: Any, A: Any, B: Any, *rest: Any, **_: Any) -> int:
    *_rest, directions, _backend = rest
    return _ssd_flops(x, B, directions)


@register_flop_formula(torch.ops.vmamba2.ssd_cross_scan_backward)
def _ssd_cross_scan_backward_flops(dy: Any, *forward: Any, **_: Any) -> int:
    return 2 * _ssd_cross_scan_flops(*forward)


@register_flop_formula(torch.ops.vmamba2.selective_scan)
def _selective_scan_flops(u: Any, delta: Any, A: Any, *_: Any, **__: Any) -> int:
    return 2 * 3 * math.prod(u) * A[1]


@register_flop_formula(torch.ops.vmamba2.selective_scan_backward)
def _selective_scan_backward_flops(dy: Any, dstates: Any, *forward: Any, **_: Any) -> int:
    return 2 * _selective_scan_flops(*forward)
