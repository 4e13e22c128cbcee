"""The SSD forward kernel on the twin: golden figures and the table of cases, on both chips."""

from functools import cache, partial

import pytest
import torch

from ops_ascend import ssd_scan
from ops_ascend.errors import random_ssd
from tests.ops.cases import SSD_CASES, named
from tests.ops.forward import PRECISIONS, errors, exact_forward, twin_forward
from tests.ops.golden import SSD, golden, ssd_inputs
from tests.ops.policy import assert_accurate

precisions = pytest.mark.parametrize("precision", PRECISIONS)
FITTING = [case for case in SSD_CASES if max(case.sizes[3], case.sizes[5]) <= 256]


def golden_scan(entry):
    limit = tuple(entry["dt_limit"] or (0.0, float("inf")))
    seq_idx = None if entry["seq_idx"] is None else torch.tensor(entry["seq_idx"])
    softplus = entry["dt_softplus"]
    return partial(
        ssd_scan, chunk_size=entry["chunk_size"], dt_softplus=softplus, dt_limit=limit, seq_idx=seq_idx
    )


@pytest.mark.parametrize("precision", ["accurate", "half"])
@pytest.mark.parametrize("case", SSD)
def test_golden_figures(case, precision, chip):
    entry = golden()["ssd"][case]
    values = ssd_inputs(case, entry)
    tensors = {name: torch.tensor(value, dtype=torch.float32) for name, value in values.items()}
    outputs = twin_forward(golden_scan(entry), tensors, chip, precision)
    figures = [torch.tensor(entry[name], dtype=torch.float64) for name in ("out", "final_states")]
    exact = [figure.reshape(out.shape) for figure, out in zip(figures, outputs, strict=True)]
    assert_accurate(errors(outputs, exact), PRECISIONS[precision][2])


@cache
def case_tensors(name, dtype):
    (case,) = (case for case in SSD_CASES if case.name == name)
    scan = partial(ssd_scan, chunk_size=case.chunk_size, dt_softplus=True)
    tensors = random_ssd(case.sizes, dtype)
    return scan, tensors, exact_forward(scan, tensors)


@named(FITTING)
@precisions
def test_outputs_match_the_recurrence(case, precision, chip):
    dtype, operands, judged_as = PRECISIONS[precision]
    scan, tensors, exact = case_tensors(case.name, dtype)
    outputs = twin_forward(scan, tensors, chip, operands)
    assert outputs[0].dtype == dtype
    assert outputs[1].dtype == torch.float32
    assert_accurate(errors(outputs, exact), judged_as)


@pytest.mark.parametrize("dstate", [257, 512])
def test_op_12_a_wider_state_is_refused_with_the_limit(dstate, chip):
    tensors = random_ssd((1, 40, 2, 16, 1, dstate), torch.float32)
    with pytest.raises(NotImplementedError) as raised:
        ssd_scan(**tensors, chunk_size=16, backend="twin")
    assert (
        str(raised.value) == f"ssd_scan: backend 'twin' cannot run here: dstate ({dstate}) must be 1 to 256"
    )


@pytest.mark.parametrize("with_states", [False, True])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("with_z", [False, True])
@pytest.mark.parametrize("skip", [None, "head", "channel"])
def test_op_8_optional_arguments(skip, with_z, with_bias, with_states, chip):
    tensors = random_ssd((2, 70, 4, 12, 2, 20), torch.float32)
    if skip is None:
        del tensors["D"]
    elif skip == "head":
        tensors["D"] = tensors["D"].sum(1)
    for name, given in (("z", with_z), ("dt_bias", with_bias), ("initial_states", with_states)):
        if not given:
            del tensors[name]
    scan = partial(ssd_scan, chunk_size=64, dt_softplus=True)
    outputs = twin_forward(scan, tensors, chip, seeds=(0,))
    assert_accurate(errors(outputs, exact_forward(scan, tensors)), torch.float32)


@pytest.mark.parametrize("dt_dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_steps_may_have_a_dtype_of_their_own(dtype, dt_dtype, chip):
    tensors = random_ssd((1, 70, 3, 16, 1, 16), dtype)
    tensors["dt"] = tensors["dt"].to(dt_dtype)
    scan = partial(ssd_scan, chunk_size=64, dt_softplus=True)
    outputs = twin_forward(scan, tensors, chip, seeds=(0,))
    assert_accurate(errors(outputs, exact_forward(scan, tensors)), dtype)


@pytest.mark.parametrize("every", [1, 3])
def test_checkpoints_are_the_states_that_enter_their_chunks(every, chip):
    from ops_ascend import twin
    from ops_ascend.calls import SSDCall

    tensors = random_ssd((2, 500, 4, 16, 2, 16), torch.float32)
    options = {"seq_idx": None, "chunk_size": 64, "dt_softplus": True, "dt_limit": (0.0, float("inf"))}
    with twin.settings(chip=chip, checkpoint_every=every):
        checkpoints = twin.ssd_forward(SSDCall(**tensors, **options)).checkpoints
    starts = range(0, 500, 64 * every)
    assert checkpoints.shape == (2, len(starts), 4, 16, 16)
    exact = [tensors["initial_states"].double()]
    for end in starts[1:]:
        before = {n: t[:, :end] if n in ("x", "dt", "B", "C", "z") else t for n, t in tensors.items()}
        exact.append(exact_forward(partial(ssd_scan, chunk_size=64, dt_softplus=True), before)[1])
    rows = errors((checkpoints,), (torch.stack(exact, dim=1),))
    assert_accurate(rows, torch.float32)
