"""The operators as torch.library sees them: schemas, fake kernels, autograd and FLOP formulas.

An operator takes the name of the backend that does the work, so that one schema, one fake kernel and one
autograd formula serve them all. Kernels run with autocast off: what the caller passes wide stays wide.

An operator with states has one more result, `saved`: what its backward wants back, with `save` and where that
is anything; else empty. The gradient of a result that nothing depends on is None.
"""

import contextvars
import math
from collections.abc import Callable, Iterable
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


_STATE_GRADIENTS = "Tensor? dy, Tensor? dstates, Tensor saved"
_LIBRARY.define(f"ssd_scan({_SSD}, bool save, str backend) -> {_returns(3)}")
_LIBRARY.define(f"ssd_scan_backward({_STATE_GRADIENTS}, {_SSD}, str backend) -> {_returns(9)}")
_LIBRARY.define(f"ssd_cross_scan({_CROSS}, str backend) -> Tensor")
_LIBRARY.define(f"ssd_cross_scan_backward(Tensor dy, {_CROSS}, str backend) -> {_returns(8)}")
_LIBRARY.define(f"selective_scan({_SELECTIVE}, bool save, str backend) -> {_returns(3)}")
_LIBRARY.define(f"selective_scan_backward({_STATE_GRADIENTS}, {_SELECTIVE}, str backend) -> {_returns(8)}")


def _named(schema: str, args: tuple[Any, ...]) -> dict[str, Any]:
    """The arguments by the names of the schema, the two limits of dt as one."""
    named = dict(zip([part.split()[-1] for part in schema.split(", ")], args, strict=True))
    return named | {"dt_limit": (named.pop("dt_min"), named.pop("dt_max"))}


def _ssd_call(*args: Any) -> SSDCall:
    return SSDCall(**_named(_SSD, args))


def _cross_call(*args: Any) -> CrossCall:
    return CrossCall(**_named(_CROSS, args), initial_states=None, seq_idx=None)


def _or_empty(results: Iterable[Tensor | None], like: Tensor) -> tuple[Tensor, ...]:
    """A schema cannot return None: what is not there is an empty tensor."""
    return tuple(like.new_empty(0) if result is None else result for result in results)


def _without_autocast(kernel: Callable) -> Callable:
    def run(*args: Any) -> Any:
        device_type = next(arg.device.type for arg in args if isinstance(arg, Tensor))
        with torch.autocast(device_type, enabled=False):
            return kernel(*args)

    return run


def _ssd_scan(*args: Any) -> tuple[Tensor, ...]:
    *arguments, save, backend = args
    return _or_empty(kernels(backend).ssd_forward(_ssd_call(*arguments), save), _floats(args[0]))


def _ssd_scan_backward(
    dy: Tensor | None, dstates: Tensor | None, saved: Tensor, *args: Any
) -> tuple[Tensor, ...]:
    *arguments, backend = args
    return _or_empty(kernels(backend).ssd_backward(_ssd_call(*arguments), saved, dy, dstates), args[0])


def _ssd_cross_scan(*args: Any) -> Tensor:
    *arguments, backend = args
    return kernels(backend).cross_forward(_cross_call(*arguments))


def _ssd_cross_scan_backward(dy: Tensor, *args: Any) -> tuple[Tensor, ...]:
    *arguments, backend = args
    return _or_empty(kernels(backend).cross_backward(_cross_call(*arguments), dy)[:8], args[0])


def _selective_scan(*args: Any) -> tuple[Tensor, ...]:
    *arguments, save, backend = args
    return _or_empty(kernels(backend).selective_forward(SelectiveCall(*arguments), save), _floats(args[0]))


def _selective_scan_backward(
    dy: Tensor | None, dstates: Tensor | None, saved: Tensor, *args: Any
) -> tuple[Tensor, ...]:
    *arguments, backend = args
    call = SelectiveCall(*arguments)
    return _or_empty(kernels(backend).selective_backward(call, saved, dy, dstates), args[0])


def _fresh(tensor: Tensor) -> Tensor:
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


def _floats(tensor: Tensor, *sizes: int) -> Tensor:
    """An empty float32 tensor: what saved states are."""
    return tensor.new_empty(sizes or (0,), dtype=torch.float32)


def _fake_gradients(tensors: tuple[Tensor | None, ...]) -> tuple[Tensor, ...]:
    first = tensors[0]
    assert first is not None
    return _or_empty((None if tensor is None else _fresh(tensor) for tensor in tensors), first)


def _fake_ssd_scan(*args: Any) -> tuple[Tensor, ...]:
    *arguments, save, backend = args
    call = _ssd_call(*arguments)
    states = call.x.new_empty(call.states_shape(), dtype=compute_dtype(call.x))
    return _fresh(call.x), states, _floats(call.x, *(kernels(backend).ssd_saved(call) if save else ()))


def _fake_selective_scan(*args: Any) -> tuple[Tensor, ...]:
    *arguments, save, backend = args
    call = SelectiveCall(*arguments)
    state = call.u.new_empty(call.states_shape(), dtype=compute_dtype(call.u))
    return _fresh(call.u), state, _floats(call.u, *(kernels(backend).selective_saved(call) if save else ()))


def _fake_state_backward(count: int) -> Callable:
    return lambda dy, dstates, saved, *args: _fake_gradients(args[:count])


_OPERATORS: dict[str, tuple[Callable, Callable]] = {
    "ssd_scan": (_ssd_scan, _fake_ssd_scan),
    "ssd_scan_backward": (_ssd_scan_backward, _fake_state_backward(9)),
    "ssd_cross_scan": (_ssd_cross_scan, lambda x, *_: _fresh(x)),
    "ssd_cross_scan_backward": (_ssd_cross_scan_backward, lambda dy, *args: _fake_gradients(args[:8])),
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
    # A backward may run on a thread of its own: what a backend was told holds there too.
    ctx.context = contextvars.copy_context()


def _save_arguments_and_states(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    *arguments, _save, backend = inputs
    saved = output[-1]
    ctx.mark_non_differentiable(saved)
    # Zeros would be read as if they were gradients.
    ctx.set_materialize_grads(False)
    _save_arguments(ctx, (saved, *arguments, backend), output)


def _saved_arguments(ctx: Any) -> list[Any]:
    tensors = iter(ctx.saved_tensors)
    return [next(tensors) if kept is None else kept[0] for kept in ctx.arguments]


def _differentiate_with(backward: Any, states: bool) -> Callable:
    """An autograd formula that hands the outputs' gradients and the arguments to a backward operator.

    Args:
        backward: the operator.
        states: whether there is a gradient of states, and the first argument is what the forward saved.
    """

    def formula(ctx: Any, *doutputs: Tensor | None) -> tuple[Tensor | None, ...]:
        needed = ctx.needs_input_grad
        results = doutputs[:2] if states else doutputs
        if all(gradient is None for gradient in results):
            return (None,) * len(needed)
        arguments = _saved_arguments(ctx)
        # A copy: a context is entered once at a time, and two backwards of one forward may overlap.
        gradients = ctx.context.copy().run(backward, *results, *arguments)
        wanted = zip(gradients, arguments[states:], needed, strict=False)
        given = [gradient if isinstance(arg, Tensor) and need else None for gradient, arg, need in wanted]
        return (*given, *[None] * (len(needed) - len(given)))

    return formula


def _refuse_second_derivative(name: str) -> Callable:
    def formula(ctx: Any, *_: Any) -> None:
        raise NotImplementedError(f"{name}: second derivatives need backend='reference'")

    return formula


for _name, _states in (("ssd_scan", True), ("ssd_cross_scan", False), ("selective_scan", True)):
    _backward = getattr(torch.ops.vmamba2, f"{_name}_backward").default
    torch.library.register_autograd(
        f"{NAMESPACE}::{_name}",
        _differentiate_with(_backward, _states),
        setup_context=_save_arguments_and_states if _states else _save_arguments,
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
def _ssd_scan_backward_flops(dy: Any, dstates: Any, saved: Any, *forward: Any, **_: Any) -> int:
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
def _selective_scan_backward_flops(dy: Any, dstates: Any, saved: Any, *forward: Any, **_: Any) -> int:
    return 2 * _selective_scan_flops(*forward)
