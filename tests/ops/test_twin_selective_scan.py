"""The selective scan kernels on the twin, outputs and gradients: golden figures and the table of cases."""

from functools import cache, partial

import pytest
import torch

from ops_ascend import selective_scan, twin
from ops_ascend.ascendc_selective import SAVED_EVERY, prepare_forward, saved_elements
from ops_ascend.calls import SelectiveCall
from ops_ascend.errors import random_selective
from tests.ops.cases import SELECTIVE_CASES, named
from tests.ops.forward import as_tuple
from tests.ops.golden import SELECTIVE, draw, golden, selective_inputs
from tests.ops.gradients import errors, exact_gradients, only, twin_gradients
from tests.ops.policy import assert_native

ONE_SEED = (1,)
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
scan = partial(selective_scan, delta_softplus=True)
dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=str)


@pytest.mark.parametrize("case", SELECTIVE)
def test_golden_figures(case, chip):
    entry = golden()["selective_scan"][case]
    values = selective_inputs(case, entry)
    runs = []
    for seed in (0, 1, 2):
        leaves = {n: torch.tensor(v, dtype=torch.float32, requires_grad=True) for n, v in values.items()}
        with twin.settings(chip=chip, seed=seed):
            y, state = selective_scan(**leaves, delta_softplus=entry["delta_softplus"], backend="twin")
            weights = [torch.tensor(draw(case, n, t.shape)).float() for n, t in (("wy", y), ("wS", state))]
            ((y * weights[0]).sum() + (state * weights[1]).sum()).backward()
        runs.append({"y": y, "state": state} | {f"d{name}": t.grad for name, t in leaves.items()})
    for run in runs[1:]:
        torch.testing.assert_close(run, runs[0], rtol=0, atol=0)
    figures = {"y": entry["out"], "state": entry["last_state"]}
    figures |= {f"d{name}": gradient for name, gradient in entry["grads"].items()}
    assert set(figures) == set(runs[0])
    exact = {
        name: torch.tensor(figure, dtype=torch.float64).reshape(runs[0][name].shape)
        for name, figure in figures.items()
    }
    assert_native(errors(runs[0], exact), torch.float32)


@cache
def case_tensors(name, dtype):
    (case,) = (case for case in SELECTIVE_CASES if case.name == name)
    tensors = random_selective(case.sizes, dtype)
    return tensors, exact_gradients(scan, tensors)


@named(SELECTIVE_CASES)
@dtypes
def test_outputs_and_gradients_match_the_recurrence(case, dtype, chip):
    tensors, exact = case_tensors(case.name, dtype)
    measured = twin_gradients(scan, tensors, chip)
    assert measured["y"].dtype == dtype
    assert measured["state"].dtype == torch.float32
    assert_native(errors(measured, exact), dtype)


def test_the_forward_alone_saves_nothing_and_gives_the_same(chip):
    tensors = random_selective((2, 40, 100, 1, 8), torch.float32)
    with twin.settings(chip=chip), torch.no_grad():
        alone = as_tuple(scan(**tensors, backend="twin"))
    with_gradients = twin_gradients(scan, tensors, chip, seeds=ONE_SEED)
    for have, name in zip(alone, ("y", "state"), strict=True):
        assert torch.equal(have, with_gradients[name])


#  batch dim seqlen ngroups dstate: around the lanes of an instruction, stretches of time, chunks of states
SIZES = [
    (1, 1, 1, 1, 1), (2, 63, 27, 1, 7), (2, 64, 28, 1, 8), (1, 65, 29, 1, 9), (3, 128, 56, 2, 16),
    (1, 130, 57, 2, 17), (2, 33, 85, 3, 5), (1, 12, 300, 4, 40), (1, 20, 30, 1, 128), (1, 6, 60, 2, 256),
    (50, 16, 49, 1, 8), (1, 640, 40, 1, 8), (1, 8, 1000, 1, 8),
]  # fmt: skip


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_sizes_around_those_of_the_chip(sizes, chip):
    tensors = random_selective(sizes, torch.float32)
    measured = twin_gradients(scan, tensors, chip, seeds=ONE_SEED)
    assert_native(errors(measured, exact_gradients(scan, tensors)), torch.float32)


@dtypes
@pytest.mark.parametrize("result", [0, 1], ids=["y", "last_state"])
def test_gradients_of_one_result_alone(result, dtype, chip):
    tensors, names = random_selective((2, 24, 70, 2, 8), dtype), (("y", "state")[result],)

    def with_backend(backend, **leaves):
        return scan(**leaves, backend=backend)[result]

    measured = twin_gradients(with_backend, tensors, chip, seeds=ONE_SEED, names=names)
    assert_native(errors(measured, exact_gradients(with_backend, tensors, names)), dtype)


@pytest.mark.parametrize("softplus", [False, True])
@pytest.mark.parametrize("given", range(8))
def test_op_8_optional_arguments(given, softplus, chip):
    tensors = random_selective((2, 10, 40, 1, 5), torch.float32)
    for bit, name in enumerate(("D", "z", "delta_bias")):
        if not given >> bit & 1:
            del tensors[name]
    if not softplus:
        # A step below zero is growth without bounds.
        steps = {n: tensors[n].abs() * 0.1 for n in ("delta", "delta_bias") if n in tensors}
        tensors |= steps
    op = partial(selective_scan, delta_softplus=softplus)
    for run, names in ((op, ("y", "state")), (only(0, op), ("y",))):
        measured = twin_gradients(run, tensors, chip, seeds=ONE_SEED, names=names)
        assert set(measured) == {*names, *(f"d{name}" for name in tensors)}
        assert_native(errors(measured, exact_gradients(run, tensors, names)), torch.float32)


@pytest.mark.parametrize("delta_dtype", [torch.float64, *DTYPES], ids=str)
@dtypes
def test_steps_may_have_a_dtype_of_their_own(dtype, delta_dtype, chip):
    tensors = random_selective((1, 20, 40, 2, 8), dtype)
    tensors["delta"] = tensors["delta"].to(delta_dtype)
    measured = twin_gradients(scan, tensors, chip, seeds=ONE_SEED)
    rows = {row.name: row for row in errors(measured, exact_gradients(scan, tensors))}
    narrow = max(dtype, delta_dtype, key=lambda kind: torch.finfo(kind).eps)
    assert_native([rows.pop("ddelta")], narrow)
    assert_native(list(rows.values()), dtype)


def test_b_and_c_without_groups(chip):
    tensors = random_selective((2, 20, 40, 1, 8), torch.float32)
    shared = tensors | {name: tensors[name].squeeze(1) for name in ("B", "C")}
    have, want = (twin_gradients(scan, t, chip, seeds=ONE_SEED) for t in (shared, tensors))
    for name, value in have.items():
        assert torch.equal(value, want[name].view_as(value)), name


@pytest.mark.parametrize("needed", ["u", "delta", "A", "B", "C", "D", "z", "delta_bias"])
def test_op_4_gradient_of_one_input_with_everything_else_frozen(needed, chip):
    tensors = random_selective((1, 12, 40, 2, 5), torch.float32)

    def of_one(backend, **leaf):
        frozen = {name: t.to(leaf[needed].dtype) for name, t in tensors.items()}
        return scan(**(frozen | leaf), backend=backend)

    alone = {needed: tensors[needed]}
    measured = twin_gradients(of_one, alone, chip, seeds=ONE_SEED)
    assert_native(errors(measured, exact_gradients(of_one, alone)), torch.float32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_op_20_two_runs_are_equal_bit_for_bit(dtype, chip):
    tensors = random_selective((2, 40, 60, 2, 8), dtype)
    first, second = (twin_gradients(scan, tensors, chip, seeds=ONE_SEED) for _ in range(2))
    for name, value in first.items():
        assert torch.equal(value, second[name]), name


def call_of(sizes, dtype=torch.float32):
    return SelectiveCall(**random_selective(sizes, dtype), delta_softplus=True)


@pytest.mark.parametrize(
    "sizes", [(2, 40, 196, 1, 8), (1, 4, 28, 1, 1), (1, 4, 29, 2, 3), (2, 70, 500, 2, 256)]
)
@dtypes
def test_saved_states_are_counted_as_the_kernel_does(sizes, dtype, chip):
    """The size is needed where there is no library: by fake kernels."""
    call = call_of(sizes, dtype)
    with twin.settings(chip=chip):
        plan = twin.tiling("selective_scan", prepare_forward(call, save=True).fields)
    assert plan["save_every"] == SAVED_EVERY
    assert plan["checkpoint_floats"] == saved_elements(call)


#  batch dim seqlen: the stages of MambaVision at 224 pixels, windows of 14 x 14 and 7 x 7
MAMBA_VISION = [(8, 160, 196), (8, 320, 49), (32, 256, 196), (32, 512, 49), (16, 784, 49)]


@pytest.mark.parametrize(("batch", "dim", "seqlen"), MAMBA_VISION)
def test_windows_of_mamba_vision_fill_the_vector_cores(batch, dim, seqlen, chip):
    call = call_of((batch, dim, seqlen, 1, 8))
    with twin.settings(chip=chip):
        plan = twin.tiling("selective_scan", prepare_forward(call, save=True).fields)
    cores = {"910B3": 40, "950PR": 64}[chip]
    # A task is at least a block of 64 channels.
    possible = batch * -(-dim // 64)
    for blocks in (plan["blocks"], plan["backward_blocks"]):
        assert blocks >= min(cores, possible) * 0.75


@pytest.mark.parametrize("dstate", [1, 3, 8, 16, 64, 100, 256])
def test_npu_7_every_buffer_fits_the_chip(dstate, chip):
    for sizes in ((8, 160, 196, 1, dstate), (1, 6, 5, 2, dstate), (2, 2048, 49, 8, dstate)):
        with twin.settings(chip=chip):
            plan = twin.tiling("selective_scan", prepare_forward(call_of(sizes), save=True).fields)
        limit = {"910B3": 192 * 1024 - 256, "950PR": 248 * 1024}[chip]
        assert 0 < plan["ub_bytes"] <= limit
        assert 0 < plan["backward_ub_bytes"] <= limit
