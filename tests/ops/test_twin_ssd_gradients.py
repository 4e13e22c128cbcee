"""The SSD backward kernel on the twin: golden figures and the table of cases, on both chips."""

from functools import cache, partial

import pytest
import torch

from ops_ascend import ssd_scan, twin
from ops_ascend.errors import random_ssd
from tests.ops.cases import SSD_CASES, named
from tests.ops.forward import PRECISIONS
from tests.ops.golden import SSD, draw, golden, ssd_inputs
from tests.ops.gradients import errors, exact_gradients, only, twin_gradients
from tests.ops.policy import assert_native
from tests.ops.test_twin_ssd_scan import golden_scan

ONE_SEED = (1,)
FITTING = [case for case in SSD_CASES if max(case.sizes[3], case.sizes[5]) <= 256]
scan = partial(ssd_scan, chunk_size=64, dt_softplus=True)


def golden_gradients(case, entry, tensors, chip, seed, precision):
    """Outputs and gradients with the weights that the golden figures were made with."""
    leaves = {name: t.clone().requires_grad_() for name, t in tensors.items()}
    with twin.settings(chip=chip, seed=seed, precision=precision):
        y, state = golden_scan(entry)(**leaves, backend="twin")
        weights = [torch.tensor(draw(case, n, t.shape)).float() for n, t in (("wy", y), ("wS", state))]
        ((y * weights[0]).sum() + (state * weights[1]).sum()).backward()
    return {"y": y, "final_states": state} | {f"d{name}": t.grad for name, t in leaves.items()}


@pytest.mark.parametrize("precision", ["accurate", "half"])
@pytest.mark.parametrize("case", SSD)
def test_golden_figures(case, precision, chip):
    entry = golden()["ssd"][case]
    values = ssd_inputs(case, entry)
    tensors = {name: torch.tensor(value, dtype=torch.float32) for name, value in values.items()}
    runs = [golden_gradients(case, entry, tensors, chip, seed, precision) for seed in (0, 1, 2)]
    for run in runs[1:]:
        torch.testing.assert_close(run, runs[0], rtol=0, atol=0)
    figures = {"y": entry["out"], "final_states": entry["final_states"]}
    figures |= {f"d{name}": gradient for name, gradient in entry["grads"].items()}
    assert set(figures) == set(runs[0])
    exact = {
        name: torch.tensor(figure, dtype=torch.float64).reshape(runs[0][name].shape)
        for name, figure in figures.items()
    }
    assert_native(errors(runs[0], exact), PRECISIONS[precision][2])


@cache
def case_tensors(name, dtype):
    (case,) = (case for case in SSD_CASES if case.name == name)
    op = partial(ssd_scan, chunk_size=case.chunk_size, dt_softplus=True)
    tensors = random_ssd(case.sizes, dtype)
    return op, tensors, exact_gradients(op, tensors)


@named(FITTING)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_gradients_match_the_recurrence(case, precision, chip):
    dtype, operands, judged_as = PRECISIONS[precision]
    op, tensors, exact = case_tensors(case.name, dtype)
    assert_native(errors(twin_gradients(op, tensors, chip, operands), exact), judged_as)


@pytest.mark.parametrize("precision", ["accurate", "bfloat16"])
@pytest.mark.parametrize("result", [0, 1], ids=["y", "final_states"])
@pytest.mark.parametrize("sizes", [(2, 200, 4, 16, 2, 16), (1, 70, 3, 24, 1, 40)], ids=str)
def test_gradients_of_one_result_alone(sizes, result, precision, chip):
    """The gradient of the other is not there, and the kernel does not read one."""
    dtype, operands, judged_as = PRECISIONS[precision]
    tensors, names = random_ssd(sizes, dtype), (("y", "final_states")[result],)
    op = only(result, scan)

    def with_backend(backend, **leaves):
        return op(**leaves, backend=backend)

    measured = twin_gradients(with_backend, tensors, chip, operands, ONE_SEED, names)
    assert_native(errors(measured, exact_gradients(with_backend, tensors, names)), judged_as)


@pytest.mark.parametrize("with_states", [False, True])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("with_z", [False, True])
@pytest.mark.parametrize("skip", [None, "head", "channel"])
def test_op_8_optional_arguments(skip, with_z, with_bias, with_states, chip):
    """With the gradients of the final states and without: 48 combinations."""
    tensors = random_ssd((2, 70, 2, 8, 1, 12), torch.float32)
    if skip is None:
        del tensors["D"]
    elif skip == "head":
        tensors["D"] = tensors["D"].sum(1)
    for name, given in (("z", with_z), ("dt_bias", with_bias), ("initial_states", with_states)):
        if not given:
            del tensors[name]
    for op, names in ((scan, ("y", "final_states")), (only(0, scan), ("y",))):
        measured = twin_gradients(op, tensors, chip, seeds=ONE_SEED, names=names)
        assert set(measured) == {*names, *(f"d{name}" for name in tensors)}
        assert_native(errors(measured, exact_gradients(op, tensors, names)), torch.float32)


@pytest.mark.parametrize("dt_dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_steps_may_have_a_dtype_of_their_own(dtype, dt_dtype, chip):
    tensors = random_ssd((1, 70, 3, 16, 1, 16), dtype)
    tensors["dt"] = tensors["dt"].to(dt_dtype)
    measured = twin_gradients(scan, tensors, chip, seeds=ONE_SEED)
    rows = {row.name: row for row in errors(measured, exact_gradients(scan, tensors))}
    # Rounded to its own dtype, which may be the narrower one.
    narrow = min(dtype, dt_dtype, key=lambda kind: -torch.finfo(kind).eps)
    assert_native([rows.pop("ddt")], torch.float32 if narrow == torch.float64 else narrow)
    assert_native(list(rows.values()), dtype)


def test_parameters_may_be_of_any_floating_dtype(chip):
    tensors = random_ssd((1, 70, 3, 16, 1, 16), torch.float32)
    for name in ("A", "D", "dt_bias", "initial_states"):
        tensors[name] = tensors[name].double()
    measured = twin_gradients(scan, tensors, chip, seeds=ONE_SEED)
    assert_native(errors(measured, exact_gradients(scan, tensors)), torch.float32)


#  chunks of 64 around the pairs that a saved state stands for, and sequences cut into segments
@pytest.mark.parametrize("seqlen", [63, 64, 65, 127, 128, 129, 192, 193, 257, 1025])
def test_every_place_of_the_end_in_a_pair_of_chunks(seqlen, chip):
    tensors = random_ssd((1, seqlen, 2, 8, 1, 8), torch.float32)
    measured = twin_gradients(scan, tensors, chip, seeds=ONE_SEED)
    assert_native(errors(measured, exact_gradients(scan, tensors)), torch.float32)


@pytest.mark.parametrize("needed", ["x", "dt", "A", "B", "C", "D", "z", "dt_bias", "initial_states"])
def test_op_4_gradient_of_one_input_with_everything_else_frozen(needed, chip):
    tensors = random_ssd((1, 64, 2, 16, 1, 16), torch.float32)

    def of_one(backend, **leaf):
        frozen = {name: t.to(leaf[needed].dtype) for name, t in tensors.items()}
        return scan(**(frozen | leaf), backend=backend)

    alone = {needed: tensors[needed]}
    measured = twin_gradients(of_one, alone, chip, seeds=ONE_SEED)
    assert_native(errors(measured, exact_gradients(of_one, alone)), torch.float32)


@pytest.mark.parametrize(
    ("nheads", "headdim", "ngroups", "dstate"),
    [(4, 128, 1, 128), (2, 256, 1, 256), (2, 256, 1, 64), (4, 64, 1, 256), (34, 64, 2, 64), (3, 200, 1, 130)],
)
def test_npu_7_large_tiles(nheads, headdim, ngroups, dstate, chip):
    tensors = random_ssd((1, 150, nheads, headdim, ngroups, dstate), torch.float32)
    measured = twin_gradients(scan, tensors, chip, seeds=ONE_SEED)
    assert_native(errors(measured, exact_gradients(scan, tensors)), torch.float32)


def test_sums_that_cancel_lose_what_rounding_the_operands_loses(chip):
    """The wider limit of NATIVE_SUMS is the operands', not the kernel's: an exact backward errs as much."""
    sums = {"dA", "ddt_bias", "dD"}
    for draw_seed in range(8):
        tensors = random_ssd((2, 40, 1, 24, 1, 48), torch.float32, seed=draw_seed)
        del tensors["z"]  # the incoming gradient is then an operand itself, and float16 holds it exactly
        tensors["D"] = tensors["D"][:, 0]
        rounded = {
            name: t.half().float() if name in ("x", "B", "C", "initial_states") else t
            for name, t in tensors.items()
        }
        exact = exact_gradients(scan, tensors)
        inherent = {row.name: row.relative_rms for row in errors(exact_gradients(scan, rounded), exact)}
        have = twin_gradients(scan, tensors, chip, "half", ONE_SEED)
        for row in errors({name: have[name] for name in sums}, exact):
            assert row.relative_rms <= 1.5 * inherent[row.name] + 5e-4, (draw_seed, row, inherent[row.name])
