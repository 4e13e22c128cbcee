from functools import partial

import pytest
import torch

from ops_ascend import ssd_cross_scan, ssd_scan
from ops_ascend.errors import compare, outputs_and_gradients, random_ssd, tensor_error
from tests.ops.policy import assert_accurate

TOKENS = ("x", "dt", "B", "C", "z")


def inputs(height, width, dtype=torch.float64, *, batch=2, nheads=4, ngroups=2):
    tensors = random_ssd((batch, height * width, nheads, 8, ngroups, 6), dtype)
    del tensors["initial_states"]
    return tensors


def scan(height, width, directions, chunk_size=8, **options):
    return partial(
        ssd_cross_scan,
        height=height,
        width=width,
        directions=directions,
        chunk_size=chunk_size,
        dt_softplus=True,
        **options,
    )


def one_scan_for_each_order(height, width, directions):
    """The definition, written down without the operator's own order table."""

    def columns(t):
        return t.unflatten(1, (height, width)).transpose(1, 2).flatten(1, 2)

    def rows(t):
        return t.unflatten(1, (width, height)).transpose(1, 2).flatten(1, 2)

    def same(t):
        return t

    def back(t):
        return t.flip(1)

    orders = [
        (same, same),
        (back, back),
        (columns, rows),
        (lambda t: columns(t).flip(1), lambda t: rows(t.flip(1))),
    ]

    def run(**tensors):
        total = 0
        for there, home in orders[:directions]:
            ordered = {name: there(t) if name in TOKENS else t for name, t in tensors.items()}
            total = total + home(ssd_scan(**ordered, chunk_size=8, dt_softplus=True, backend="reference")[0])
        return total / directions

    return run


@pytest.mark.parametrize("directions", [1, 2, 4])
@pytest.mark.parametrize(("height", "width"), [(1, 1), (3, 5), (4, 4), (7, 1), (1, 6)])
def test_is_the_mean_of_one_scan_for_each_order(height, width, directions, backend):
    tensors = inputs(height, width)
    have = outputs_and_gradients(scan(height, width, directions, backend=backend), tensors, ("y",))
    want = outputs_and_gradients(one_scan_for_each_order(height, width, directions), tensors, ("y",))
    rows = [tensor_error(name, value, want[name]) for name, value in have.items()]
    assert_accurate(rows, torch.float64)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_outputs_and_gradients_are_accurate(dtype, backend):
    tensors = random_ssd((2, 196, 6, 16, 2, 32), dtype)
    del tensors["initial_states"]
    assert_accurate(compare(scan(14, 14, 4, 64), tensors, ("y",), backend), dtype, backend)


@pytest.mark.parametrize("skip", [None, "head", "channel"])
@pytest.mark.parametrize("with_z", [False, True])
@pytest.mark.parametrize("with_bias", [False, True])
def test_op_8_optional_arguments(skip, with_z, with_bias, backend):
    tensors = inputs(3, 4)
    if skip is None:
        del tensors["D"]
    elif skip == "head":
        tensors["D"] = tensors["D"].sum(1)
    for name, given in (("z", with_z), ("dt_bias", with_bias)):
        if not given:
            del tensors[name]
    rows = compare(scan(3, 4, 4), tensors, ("y",), backend)
    assert {row.name for row in rows} == {"y", *(f"d{name}" for name in tensors)}
    assert_accurate(rows, torch.float64)


@pytest.mark.parametrize("name", ["x", "dt", "A", "B", "C", "D", "z", "dt_bias"])
def test_op_4_gradcheck_of_each_input_alone(name, backend):
    tensors = random_ssd((1, 6, 2, 2, 1, 2), torch.float64)
    del tensors["initial_states"]

    def of_one(value):
        return scan(2, 3, 4, 4, backend=backend)(**(tensors | {name: value}))

    assert torch.autograd.gradcheck(of_one, (tensors[name].requires_grad_(),))


def test_transposing_the_grid_transposes_the_result(backend):
    tensors = inputs(3, 5)
    transposed = {
        name: t.unflatten(1, (3, 5)).transpose(1, 2).flatten(1, 2) if name in TOKENS else t
        for name, t in tensors.items()
    }
    have = scan(5, 3, 4, backend=backend)(**transposed)
    want = scan(3, 5, 4, backend=backend)(**tensors)
    torch.testing.assert_close(have.unflatten(1, (5, 3)).transpose(1, 2).flatten(1, 2), want)


def test_op_20_two_runs_are_equal_bit_for_bit(backend):
    torch.use_deterministic_algorithms(True)
    tensors = inputs(6, 7, torch.float32)
    runs = [outputs_and_gradients(scan(6, 7, 4, backend=backend), tensors, ("y",)) for _ in range(2)]
    for name, value in runs[0].items():
        assert torch.equal(value, runs[1][name]), name


@pytest.mark.parametrize(("batch", "height", "width"), [(0, 2, 3), (2, 0, 3), (2, 0, 0)])
def test_op_21_empty_batch_or_grid(batch, height, width, backend):
    leaves = {n: t.requires_grad_() for n, t in inputs(height, width, torch.float32, batch=batch).items()}
    y = scan(height, width, 4, backend=backend)(**leaves)
    assert y.shape == leaves["x"].shape
    y.sum().backward()
    for name, leaf in leaves.items():
        assert torch.equal(leaf.grad, torch.zeros_like(leaf)), name


def test_runs_under_inference_mode_first_and_trains_afterwards(backend):
    """The order tables are cached; a table made under inference mode could not be saved for backward."""
    tensors = inputs(2, 9)
    with torch.inference_mode():
        scan(2, 9, 4, backend=backend)(**tensors)
    outputs_and_gradients(scan(2, 9, 4, backend=backend), tensors, ("y",))
