"""The SSD forward kernel on the twin, over a grid in 1, 2 and 4 orders."""

from functools import partial

import pytest
import torch

from ops_ascend import ssd_cross_scan
from ops_ascend.errors import random_ssd
from tests.ops.forward import PRECISIONS, SEEDS, errors, exact_forward, twin_forward
from tests.ops.gradients import errors as gradient_errors
from tests.ops.gradients import exact_gradients, twin_gradients
from tests.ops.policy import assert_accurate, assert_native

GRIDS = [(1, 1), (3, 5), (7, 1), (1, 6), (9, 8), (5, 27)]


def scan(height, width, directions):
    return partial(
        ssd_cross_scan, height=height, width=width, directions=directions, chunk_size=64, dt_softplus=True
    )


def inputs(height, width, dtype=torch.float32, *, batch=2, nheads=4, headdim=16, ngroups=2, dstate=24):
    tensors = random_ssd((batch, height * width, nheads, headdim, ngroups, dstate), dtype)
    del tensors["initial_states"]
    return tensors


@pytest.mark.parametrize("directions", [1, 2, 4])
@pytest.mark.parametrize(("height", "width"), GRIDS)
def test_is_the_mean_of_the_scans_in_each_order(height, width, directions, chip):
    op, tensors = scan(height, width, directions), inputs(height, width)
    outputs = twin_forward(op, tensors, chip)
    assert_accurate(errors(outputs, exact_forward(op, tensors)), torch.float32)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("directions", [2, 4])
def test_every_precision(directions, precision, chip):
    dtype, operands, judged_as = PRECISIONS[precision]
    op, tensors = scan(14, 14, directions), inputs(14, 14, dtype, headdim=32, dstate=64)
    outputs = twin_forward(op, tensors, chip, operands)
    assert outputs[0].dtype == dtype
    assert_accurate(errors(outputs, exact_forward(op, tensors)), judged_as)


@pytest.mark.parametrize("skip", [None, "head", "channel"])
@pytest.mark.parametrize("with_z", [False, True])
@pytest.mark.parametrize("directions", [1, 2, 4])
def test_op_8_optional_arguments(directions, skip, with_z, chip):
    tensors = inputs(6, 13)
    if skip is None:
        del tensors["D"]
    elif skip == "head":
        tensors["D"] = tensors["D"].sum(1)
    if not with_z:
        del tensors["z"]
    op = scan(6, 13, directions)
    outputs = twin_forward(op, tensors, chip, seeds=SEEDS[:1])
    assert_accurate(errors(outputs, exact_forward(op, tensors)), torch.float32)


@pytest.mark.parametrize(("headdim", "dstate"), [(5, 7), (1, 1), (64, 128), (128, 64), (200, 130)])
def test_head_and_state_sizes(headdim, dstate, chip):
    op, tensors = scan(5, 14, 4), inputs(5, 14, nheads=3, headdim=headdim, ngroups=1, dstate=dstate)
    outputs = twin_forward(op, tensors, chip, seeds=SEEDS[:1])
    assert_accurate(errors(outputs, exact_forward(op, tensors)), torch.float32)


@pytest.mark.parametrize("directions", [2, 4])
def test_op_10_views_of_one_projection(directions, chip):
    """x, z, B, C and dt are slices of one tensor, as the mixer passes them: nothing is copied."""
    nheads, headdim, dstate, tokens = 3, 16, 8, 6 * 9
    sizes = [nheads * headdim, nheads * headdim, dstate, dstate, nheads]
    projected = torch.randn(2, tokens, sum(sizes))
    z, x, B, C, dt = projected.split(sizes, dim=-1)
    heads = {"x": x.unflatten(-1, (nheads, headdim)), "z": z.unflatten(-1, (nheads, headdim))}
    tensors = heads | {"dt": dt, "A": -torch.rand(nheads), "B": B.unsqueeze(2), "C": C.unsqueeze(2)}
    op = scan(6, 9, directions)
    (have,) = twin_forward(op, tensors, chip)
    (want,) = twin_forward(op, {name: t.contiguous() for name, t in tensors.items()}, chip)
    assert torch.equal(have, want)


@pytest.mark.parametrize(("batch", "height", "width"), [(0, 2, 3), (2, 0, 3)])
def test_op_21_empty_batch_or_grid(batch, height, width, chip):
    tensors = inputs(height, width, batch=batch)
    measured = twin_gradients(scan(height, width, 4), tensors, chip, seeds=SEEDS[:1], names=("y",))
    assert measured["y"].shape == tensors["x"].shape
    for name, tensor in tensors.items():
        assert torch.equal(measured[f"d{name}"], torch.zeros_like(tensor)), name


@pytest.mark.parametrize("directions", [1, 2, 4])
@pytest.mark.parametrize(("height", "width"), GRIDS)
def test_gradients_are_those_of_the_mean(height, width, directions, chip):
    op, tensors = scan(height, width, directions), inputs(height, width, headdim=8, dstate=12)
    measured = twin_gradients(op, tensors, chip, names=("y",))
    assert_native(gradient_errors(measured, exact_gradients(op, tensors, ("y",))), torch.float32)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("directions", [2, 4])
def test_gradients_in_every_precision(directions, precision, chip):
    dtype, operands, judged_as = PRECISIONS[precision]
    op, tensors = scan(9, 11, directions), inputs(9, 11, dtype, headdim=24, dstate=32)
    measured = twin_gradients(op, tensors, chip, operands, SEEDS[:1], ("y",))
    assert_native(gradient_errors(measured, exact_gradients(op, tensors, ("y",))), judged_as)


@pytest.mark.parametrize("skip", [None, "head", "channel"])
@pytest.mark.parametrize("with_z", [False, True])
@pytest.mark.parametrize("with_bias", [False, True])
def test_op_8_gradients_of_optional_arguments(skip, with_z, with_bias, chip):
    tensors = inputs(3, 13, headdim=8, dstate=8)
    if skip is None:
        del tensors["D"]
    elif skip == "head":
        tensors["D"] = tensors["D"].sum(1)
    for name, given in (("z", with_z), ("dt_bias", with_bias)):
        if not given:
            del tensors[name]
    op = scan(3, 13, 4)
    measured = twin_gradients(op, tensors, chip, seeds=SEEDS[1:2], names=("y",))
    assert set(measured) == {"y", *(f"d{name}" for name in tensors)}
    assert_native(gradient_errors(measured, exact_gradients(op, tensors, ("y",))), torch.float32)


def test_op_20_two_runs_are_equal_bit_for_bit(chip):
    op, tensors = scan(6, 13, 4), inputs(6, 13)
    first, second = (twin_gradients(op, tensors, chip, seeds=SEEDS[:1], names=("y",)) for _ in range(2))
    for name, value in first.items():
        assert torch.equal(value, second[name]), name
