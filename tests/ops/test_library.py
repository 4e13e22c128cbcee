"""What torch.library promises: schemas, fake kernels, autograd, compile, export, autocast, memory."""

import math

import pytest
import torch
from torch.library import opcheck
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from ops_ascend import chunked, selective_scan, ssd_cross_scan, ssd_scan
from ops_ascend.chunk_scan import scan_slice, scan_slice_backward
from ops_ascend.errors import outputs_and_gradients, random_selective, random_ssd, tensor_error

OPS = torch.ops.vmamba2
SSD_NAMES = ("x", "dt", "A", "B", "C", "D", "z", "dt_bias", "initial_states")
SELECTIVE_NAMES = ("u", "delta", "A", "B", "C", "D", "z", "delta_bias")
NO_LIMIT = (0.0, math.inf)


def ssd_tensors(dtype=torch.float32):
    return random_ssd((2, 12, 4, 3, 2, 5), dtype)


def cross_tensors(dtype=torch.float32):
    tensors = ssd_tensors(dtype)
    del tensors["initial_states"]
    return tensors


def selective_tensors(dtype=torch.float32):
    return random_selective((2, 6, 20, 2, 3), dtype)


def leaves(tensors, names):
    return [tensors[name].requires_grad_() if name in tensors else None for name in names]


# id -> (public call on tensors by name, tensors, names of its outputs)
PUBLIC = {
    "ssd_scan": (
        lambda **t: ssd_scan(**t, chunk_size=5, dt_softplus=True),
        ssd_tensors,
        ("y", "final_states"),
    ),
    "ssd_cross_scan": (
        lambda **t: ssd_cross_scan(**t, height=3, width=4, directions=4, chunk_size=5, dt_softplus=True),
        cross_tensors,
        ("y",),
    ),
    "selective_scan": (
        lambda **t: selective_scan(**t, delta_softplus=True),
        selective_tensors,
        ("y", "last_state"),
    ),
}
operators = pytest.mark.parametrize("name", PUBLIC)
fast_backends = pytest.mark.parametrize("backend", ["cpu", "chunked"], indirect=True)


@fast_backends
@pytest.mark.parametrize("given", [(), ("D",), ("z", "dt_bias"), SSD_NAMES], ids=str)
def test_ex_3_opcheck_ssd_scan(given, backend):
    tensors = {n: t for n, t in ssd_tensors().items() if n in (*SSD_NAMES[:5], *given)}
    arguments = leaves(tensors, SSD_NAMES)
    for save in (False, True):
        opcheck(OPS.ssd_scan.default, (*arguments, None, 5, True, *NO_LIMIT, save, backend))


@fast_backends
def test_ex_3_opcheck_ssd_scan_packed(backend):
    seq_idx = torch.tensor([0] * 5 + [1] * 7).repeat(2, 1)
    arguments = leaves(ssd_tensors(), SSD_NAMES)
    opcheck(OPS.ssd_scan.default, (*arguments, seq_idx, 5, True, *NO_LIMIT, True, backend))


@fast_backends
@pytest.mark.parametrize("directions", [1, 2, 4])
def test_ex_3_opcheck_ssd_cross_scan(directions, backend):
    arguments = leaves(cross_tensors(), SSD_NAMES[:8])
    opcheck(OPS.ssd_cross_scan.default, (*arguments, 5, True, *NO_LIMIT, 3, 4, directions, backend))


@fast_backends
@pytest.mark.parametrize("given", [(), ("D",), SELECTIVE_NAMES], ids=str)
def test_ex_3_opcheck_selective_scan(given, backend):
    tensors = {n: t for n, t in selective_tensors().items() if n in (*SELECTIVE_NAMES[:5], *given)}
    opcheck(OPS.selective_scan.default, (*leaves(tensors, SELECTIVE_NAMES), True, True, backend))


@operators
def test_ex_3_torch_compile_in_one_graph(name):
    call, make, outputs = PUBLIC[name]
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    have, want = (outputs_and_gradients(f, make(), outputs) for f in (compiled, call))
    for tensor, value in have.items():
        torch.testing.assert_close(value, want[tensor], msg=tensor)


@operators
def test_ex_3_torch_compile_under_float16_autocast(name):
    call, make, outputs = PUBLIC[name]
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    with torch.autocast("cpu", torch.float16):
        have, want = (outputs_and_gradients(f, make(torch.float16), outputs) for f in (compiled, call))
    for tensor, value in have.items():
        torch.testing.assert_close(value, want[tensor], msg=tensor)
    assert have["y"].dtype == torch.float32


@operators
def test_ex_3_torch_export_with_a_dynamic_batch(name):
    call, make, _ = PUBLIC[name]
    tensors = make()
    names = tuple(tensors)

    class Module(torch.nn.Module):
        def forward(self, *values):
            return call(**dict(zip(names, values, strict=True)))

    batch = torch.export.Dim("batch", min=1, max=64)
    batched = {"x", "dt", "B", "C", "z", "initial_states", "u", "delta"}
    shapes = {"values": tuple({0: batch} if n in batched else None for n in names)}
    program = torch.export.export(Module(), tuple(tensors.values()), dynamic_shapes=shapes)
    larger = {n: torch.cat([t, t, t]) if n in batched else t for n, t in make().items()}
    have, want = program.module()(*larger.values()), call(**larger)
    torch.testing.assert_close(have, want)


@operators
def test_second_derivatives_are_refused_with_the_way_out(name):
    call, make, _ = PUBLIC[name]
    tensors = {n: t.requires_grad_() for n, t in make().items()}
    y = call(**tensors)
    y = y if isinstance(y, torch.Tensor) else y[0]
    (gradient,) = torch.autograd.grad(y.sum(), tensors["A"], create_graph=True)
    with pytest.raises(NotImplementedError, match=f"{name}: second derivatives need backend='reference'"):
        gradient.sum().backward()


@operators
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast_leaves_steps_decays_and_states_wide(name, dtype):
    """With float32 tensors the result under autocast is that without it, to the last bit."""
    call, make, outputs = PUBLIC[name]
    want = outputs_and_gradients(call, make(), outputs)
    with torch.autocast("cpu", dtype):
        have = outputs_and_gradients(call, make(), outputs)
    for tensor, value in have.items():
        assert torch.equal(value, want[tensor]), tensor


@operators
def test_nothing_but_the_inputs_is_saved_for_backward(name):
    call, make, _ = PUBLIC[name]
    tensors = {n: t.requires_grad_() for n, t in make().items()}
    inputs = {t.data_ptr() for t in tensors.values()}
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        call(**tensors)
    assert saved
    assert {t.data_ptr() for t in saved if t.numel() > 0} <= inputs


@fast_backends
@pytest.mark.parametrize("name", ["ssd_scan", "selective_scan"])
@pytest.mark.parametrize("used", [(0,), (1,), ()], ids=["y", "states", "nothing"])
def test_a_result_that_nothing_depends_on_has_no_gradient(name, used, backend):
    """The backward is told so, instead of being handed zeros to read."""
    call, make, _ = PUBLIC[name]

    def gradients(backend):
        tensors = {n: t.double().requires_grad_() for n, t in make().items()}
        results = call(**tensors, backend=backend)
        total = sum((results[i].sum() for i in used), start=0 * tensors["A"].sum())
        return torch.autograd.grad(total, list(tensors.values()), allow_unused=True, materialize_grads=True)

    handed = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func._schema.name.endswith(f"{name}_backward"):
                handed.append([gradient is not None for gradient in args[:2]])
            return func(*args, **(kwargs or {}))

    with Watch():
        have = gradients(backend)
    assert handed == ([[i in used for i in range(2)]] if used else [])
    torch.testing.assert_close(have, gradients("reference"))


class LargestTensor(TorchDispatchMode):
    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(tensor, torch.Tensor):
                # What it occupies, not what it shows: an expanded view is small.
                self.elements = max(self.elements, tensor.untyped_storage().nbytes() // tensor.element_size())
        return result


def test_nothing_grows_with_the_square_of_the_sequence():
    """Temporaries of a scan of 4,096 tokens: at most the inputs' size, a quarter of L x L."""
    tensors = random_ssd((1, 4096, 1, 64, 1, 64), torch.float32)
    call = chunked.SSDCall(**tensors, seq_idx=None, chunk_size=64, dt_softplus=True, dt_limit=NO_LIMIT)
    inputs = chunked._inputs(call, slice(0, 1))
    with LargestTensor() as largest:
        y, states = scan_slice(inputs)
        scan_slice_backward(inputs, y, states, with_y=True)
    assert largest.elements <= 4096 * 64


def test_the_batch_is_cut_into_slices_that_change_nothing(monkeypatch):
    tensors = random_ssd((5, 40, 2, 8, 1, 8), torch.float64)

    def run():
        return outputs_and_gradients(PUBLIC["ssd_scan"][0], tensors, ("y", "final_states"))

    whole = run()
    monkeypatch.setattr(chunked, "WORKSPACE_BYTES", 1)
    for name, value in run().items():
        assert tensor_error(name, value, whole[name]).relative_rms <= 1e-13, name


@pytest.mark.parametrize(
    ("name", "multiply_adds"),
    [("ssd_scan", 3 * 2 * 12 * 4 * 3 * 5), ("ssd_cross_scan", 4 * 3 * 2 * 12 * 4 * 3 * 5),
     ("selective_scan", 3 * 2 * 6 * 20 * 3)],
)  # fmt: skip
def test_flop_counter_counts_two_per_multiply_add_of_the_recurrence(name, multiply_adds):
    call, make, _ = PUBLIC[name]
    tensors = {n: t.to("meta").requires_grad_() for n, t in make().items()}
    with FlopCounterMode(display=False) as forward:
        y = call(**tensors)
    assert forward.get_total_flops() == 2 * multiply_adds
    with FlopCounterMode(display=False) as backward:
        (y if isinstance(y, torch.Tensor) else y[0]).sum().backward()
    assert backward.get_total_flops() == 4 * multiply_adds
