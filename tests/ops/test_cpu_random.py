"""Random calls of the compiled CPU kernels: sizes, options and strides that no table thought of."""

import random
from functools import partial

import pytest
import torch

from ops_ascend import cpu, ssd_cross_scan
from ops_ascend.errors import outputs_and_gradients, tensor_error
from tests.ops.policy import CAPS, _assert_within
from tests.ops.test_twin_random import random_call, random_selective_call

pytestmark = pytest.mark.usefixtures("cpu_libraries")


@pytest.fixture
def instructions_in_turn(seed):
    """Seeds take turns with the sets of instructions that run here."""
    here = cpu.instruction_sets()
    with cpu.settings(instructions=here[seed % len(here)]):
        yield


def spread_out(tensor, draw):
    """The same values with an innermost stride of 2 or 3 and NaN between, other axes, or as they are."""
    kind = draw.randrange(4)
    if kind == 0 or tensor.dim() == 0:
        return tensor
    if kind == 1:
        axes = list(range(tensor.dim()))
        draw.shuffle(axes)
        back = sorted(range(tensor.dim()), key=axes.__getitem__)
        return tensor.permute(axes).contiguous().permute(back)
    wider = torch.full((*tensor.shape[:-1], kind * tensor.shape[-1]), torch.nan).to(tensor.dtype)
    return wider[..., ::kind].copy_(tensor)


def assert_accurate_sums(scan, tensors, names):
    """Within the caps; sums over all tokens may cancel to little of what went in."""
    wide = {n: t.double() if t.is_floating_point() else t for n, t in tensors.items()}
    exact = outputs_and_gradients(partial(scan, backend="reference"), wide, names)
    measured = outputs_and_gradients(partial(scan, backend="cpu"), tensors, names)
    rows = [tensor_error(name, value, exact[name]) for name, value in measured.items()]
    _assert_within(rows, {name: CAPS[value.dtype] for name, value in measured.items()})


@pytest.mark.usefixtures("instructions_in_turn")
@pytest.mark.parametrize("seed", range(80))
def test_random_ssd_calls_are_accurate(seed):
    draw = random.Random(seed)
    scan, tensors, _ = random_call(seed)
    names = ("y",) if scan.func is ssd_cross_scan else ("y", "state")
    assert_accurate_sums(scan, {n: spread_out(t, draw) for n, t in tensors.items()}, names)


@pytest.mark.usefixtures("instructions_in_turn")
@pytest.mark.parametrize("seed", range(80))
def test_random_selective_scans_are_accurate(seed):
    draw = random.Random(seed)
    scan, tensors = random_selective_call(seed)
    assert_accurate_sums(scan, {n: spread_out(t, draw) for n, t in tensors.items()}, ("y", "state"))
