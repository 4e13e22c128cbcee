"""What people run into, from public reports, on the CPU: rows that tests of every backend do not have."""

from functools import partial

import pytest
import torch

from ops_ascend import selective_scan, ssd_scan
from ops_ascend.errors import compare, outputs_and_gradients, random_selective, random_ssd, tensor_error
from tests.ops.policy import assert_accurate
from tests.ops.test_selective_scan import mamba_inputs
from tests.ops.test_ssd_traps import inputs
from tests.ops.test_twin_field_reports import TOKENS, far_apart

pytestmark = pytest.mark.usefixtures("cpu_libraries")
STATES = ("y", "state")
BATCHED = (*TOKENS, "initial_states", "u", "delta")
ssd = partial(ssd_scan, chunk_size=64, dt_softplus=True)
selective = partial(selective_scan, delta_softplus=True)


def run(scan, tensors):
    return outputs_and_gradients(partial(scan, backend="cpu"), tensors, STATES)


def assert_equal(have, want):
    for name, value in have.items():
        torch.testing.assert_close(value, want[name], rtol=0, atol=0, equal_nan=True, msg=name)


@pytest.mark.parametrize("seqlen", [300, 1000])
def test_op_3_the_chunk_size_is_a_hint(seqlen):
    tensors = random_ssd((1, seqlen, 2, 16, 1, 16), torch.float32)
    want = run(ssd, tensors)
    for chunk_size in (1, 16, 256, 4096):
        assert_equal(run(partial(ssd, chunk_size=chunk_size), tensors), want)


@pytest.mark.parametrize("dstate", [8, 16, 48, 64, 128, 256])
@pytest.mark.parametrize("headdim", [4, 16, 24, 32, 48, 64, 80, 128])
def test_op_11_head_and_state_sizes(headdim, dstate):
    tensors = random_ssd((1, 70, 3, headdim, 1, dstate), torch.float32)
    assert_accurate(compare(ssd, tensors, STATES, "cpu"), torch.float32)


@pytest.mark.parametrize("dstate", [257, 512])
def test_op_12_states_beyond_256(dstate):
    tensors = random_selective((1, 3, 20, 1, dstate), torch.float32)
    # All states would decay within a few tokens.
    tensors["A"] = tensors["A"] / 64
    assert_accurate(compare(selective, tensors, STATES, "cpu"), torch.float32, "cpu")


@pytest.mark.parametrize(
    ("name", "dim", "stride"), [("dt", 1, 2**29 - 8), ("x", 0, 2**31 + 64), ("B", 1, 2**29 - 8)]
)
def test_op_13_offsets_beyond_two_to_the_31(name, dim, stride):
    tensors = random_ssd((2, 6, 2, 8, 1, 8), torch.float32)
    wide = far_apart(tensors[name], dim, stride)
    assert (wide.shape[dim] - 1) * wide.stride(dim) > 2**31
    assert_equal(run(ssd, tensors | {name: wide}), run(ssd, tensors))


@pytest.mark.parametrize(("name", "dim", "stride"), [("delta", 2, 2**29 - 8), ("u", 0, 2**31 + 64)])
def test_op_13_offsets_beyond_two_to_the_31_in_a_selective_scan(name, dim, stride):
    tensors = random_selective((2, 4, 6, 1, 8), torch.float32)
    wide = far_apart(tensors[name], dim, stride)
    assert (wide.shape[dim] - 1) * wide.stride(dim) > 2**31
    assert_equal(run(selective, tensors | {name: wide}), run(selective, tensors))


def equals_split_batches(scan, tensors):
    """Results of the first, a middle and the last batch entry must be those of the entry alone."""
    leaves = {name: t.requires_grad_() for name, t in tensors.items()}
    batch = len(next(iter(leaves.values())))
    y, state = scan(**leaves, backend="cpu")
    (y.pow(2).sum() + state.pow(2).sum()).backward()
    for entry in (0, batch // 2, batch - 1):
        some = slice(entry, entry + 1)
        one = {n: (t[some] if n in BATCHED or t.dim() > 3 else t).detach() for n, t in leaves.items()}
        alone = {n: t.double().requires_grad_() for n, t in one.items()}
        exact = scan(**alone, backend="reference")
        sum(result.pow(2).sum() for result in exact).backward()
        rows = [
            tensor_error(n, have[some], want) for n, have, want in zip(STATES, (y, state), exact, strict=True)
        ]
        rows += [
            tensor_error(f"d{n}", leaves[n].grad[some], t.grad)
            for n, t in alone.items()
            if t.shape[:1] == (1,) and leaves[n].shape[0] == batch
        ]
        assert len(rows) >= 6
        assert_accurate(rows, torch.float32, "cpu")


def test_op_14_more_programs_than_a_grid_axis_holds():
    equals_split_batches(ssd, random_ssd((10_923, 32, 6, 4, 1, 4), torch.float32))


def test_op_14_more_channels_than_a_grid_axis_holds():
    equals_split_batches(selective, random_selective((10_923, 6, 8, 1, 2), torch.float32))
    tensors = random_selective((1, 65_538, 4, 1, 2), torch.float32)
    assert_accurate(compare(selective, tensors, STATES, "cpu"), torch.float32, "cpu")


def assert_nan_where(exact, measured):
    assert exact["y"].isnan().any()
    for name, want in exact.items():
        assert measured[name][want.isnan()].isnan().all(), name


@pytest.mark.parametrize("name", ["x", "dt", "A", "B", "C", "D", "z", "dt_bias", "initial_states"])
def test_t12_nan_goes_where_it_goes_in_the_recurrence_gradients_too(name):
    tensors = random_ssd((1, 40, 2, 8, 1, 8), torch.float32)
    tensors[name].view(-1)[tensors[name].numel() // 2] = torch.nan
    limited = partial(ssd, dt_limit=(0.001, 0.1))
    exact = outputs_and_gradients(partial(limited, backend="reference"), tensors, STATES)
    assert_nan_where(exact, run(limited, tensors))


@pytest.mark.parametrize("name", ["u", "delta", "A", "B", "C"])
def test_s9_nan_goes_where_it_goes_in_the_recurrence_gradients_too(name):
    tensors = mamba_inputs(40, 0.0, -1.0)
    tensors[name].view(-1)[tensors[name].numel() // 2] = torch.nan
    exact = outputs_and_gradients(partial(selective, backend="reference"), tensors, STATES)
    assert_nan_where(exact, run(selective, tensors))


@pytest.mark.parametrize("value", [float("inf"), 1e38])
def test_infinities_are_not_turned_into_numbers(value):
    tensors = inputs(40, 0.0, -1.0)
    tensors["x"][0, 10] = value
    tensors["C"] *= 100
    exact, _ = ssd(**tensors, backend="reference")
    y, _ = ssd(**tensors, backend="cpu")
    assert not y[~exact.isfinite()].isfinite().any()


@pytest.mark.parametrize("wide", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("values", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_every_tensor_may_have_its_own_dtype_and_its_gradient_has_it_too(values, wide):
    sets = [
        (ssd, random_ssd((2, 40, 4, 8, 2, 8), values), ("x", "B", "C", "z")),
        (selective, random_selective((2, 6, 40, 2, 8), values), ("u", "B", "C", "z")),
    ]
    for scan, tensors, own in sets:
        mixed = {name: t if name in own else t.to(wide) for name, t in tensors.items()}
        measured = run(scan, mixed)
        for name, tensor in mixed.items():
            assert measured[f"d{name}"].dtype == tensor.dtype, name
        exact = outputs_and_gradients(
            partial(scan, backend="reference"), {n: t.double() for n, t in mixed.items()}, STATES
        )
        for name, want in exact.items():
            dtype = measured[name].dtype
            # Of a float64 tensor too: everything is computed in float32.
            judged_as = torch.float32 if dtype == torch.float64 else dtype
            assert_accurate([tensor_error(name, measured[name], want)], judged_as)


@pytest.mark.parametrize("used", [0, 1])
def test_one_result_alone_has_the_gradients_of_the_recurrence(used):
    """The kernel is told that the gradient of the other is absent."""
    for scan, tensors in (
        (ssd, random_ssd((2, 40, 4, 8, 2, 8), torch.float32)),
        (selective, random_selective((2, 6, 40, 2, 8), torch.float32)),
    ):
        rows = compare(lambda scan=scan, **t: scan(**t)[used], tensors, ("result",), "cpu")
        assert_accurate(rows, torch.float32, "cpu")
