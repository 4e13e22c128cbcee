"""The backend `twin`: settings, reports, refusals, and what torch.library promises."""

import json
import math
from functools import partial

import pytest
import torch
from torch.library import opcheck

from ops_ascend import selective_scan, ssd_cross_scan, ssd_scan, twin
from ops_ascend.ascendc_launch import span_bytes
from ops_ascend.calls import SSDCall
from ops_ascend.errors import outputs_and_gradients, random_selective, random_ssd

pytestmark = pytest.mark.usefixtures("twin_libraries")
SIZES = (2, 70, 4, 16, 2, 16)


def call():
    options = {"seq_idx": None, "chunk_size": 64, "dt_softplus": True, "dt_limit": (0.0, math.inf)}
    return SSDCall(**random_ssd(SIZES, torch.float32), **options)


def scan(**options):
    return ssd_scan(**random_ssd(SIZES, torch.float32), chunk_size=64, backend="twin", **options)


def test_settings_hold_inside_their_block_only():
    assert twin.current_settings() == twin.TwinSettings()
    with twin.settings(chip="950PR", seed=4):
        with twin.settings(precision="half") as inner:
            assert inner == twin.TwinSettings(chip="950PR", seed=4, precision="half")
        assert twin.current_settings() == twin.TwinSettings(chip="950PR", seed=4)
    assert twin.current_settings() == twin.TwinSettings()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"chip": "910B"}, "twin: chip ('910B') must be one of 910B3, 950PR"),
        ({"precision": "fp16"}, "twin: precision ('fp16') must be one of accurate, half"),
        ({"checkpoint_every": -1}, "twin: checkpoint_every (-1) must not be negative"),
    ],
)
def test_settings_name_what_is_wrong(changes, message):
    with pytest.raises(ValueError) as raised, twin.settings(**changes):  # noqa: PT011 - compared below
        pass
    assert str(raised.value) == message


def test_the_report_is_of_the_chip_and_the_seed(chip):
    with twin.settings(chip=chip, seed=5):
        scan()
        report = twin.last_report()
    assert (report["kernel"], report["chip"], report["seed"]) == ("ssd_forward", chip, 5)
    assert report["blocks"] == report["blocks_simulated"] > 1
    assert {path["to"] for path in report["paths"]} >= {"UB", "L1", "L0A", "L0B", "GM"}


def test_the_same_seed_gives_the_same_report(chip):
    with twin.settings(chip=chip, seed=3):
        first, second = (twin.ssd_forward(call()).report for _ in range(2))
    assert first == second


def test_a_call_in_segments_reports_both_launches(chip):
    """One head over many chunks: the sequence is cut to fill the cores."""
    tensors = random_ssd((1, 2048, 1, 8, 1, 8), torch.float32)
    with twin.settings(chip=chip):
        ssd_scan(**tensors, chunk_size=64, dt_softplus=True, backend="twin")
        report = twin.last_report()
        assert report["first_report"]["kernel"] == "ssd_forward (segment states)"
        assert report["first_report"]["gm_bytes"]["ring"] > 0
        scan()
        assert "first_report" not in twin.last_report()


def test_the_trace_is_one_for_chrome(chip):
    with twin.settings(chip=chip):
        result = twin.ssd_forward(call(), trace=True)
    events = json.loads(result.trace)["traceEvents"]
    assert {"ph", "ts", "name"} <= set(max(events, key=len))
    assert twin.ssd_forward(call()).trace is None


def test_a_part_of_the_blocks_can_be_run(chip):
    with twin.settings(chip=chip):
        report = twin.ssd_forward(call(), only_blocks=1).report
    assert report["blocks_simulated"] == 1 < report["blocks"]


def test_a_broken_rule_is_an_error_with_one_sentence(chip, monkeypatch):
    """Told a size that is one element short, the twin finds the kernel outside its buffer."""
    monkeypatch.setattr(twin, "span_bytes", lambda tensor: span_bytes(tensor) - tensor.element_size())
    with twin.settings(chip=chip), pytest.raises(twin.TwinError) as raised:
        scan()
    assert "must stay inside the buffer of" in str(raised.value)
    assert str(raised.value).startswith("ssd_forward, block ")


def test_auto_never_takes_the_twin(monkeypatch):
    from ops_ascend import backend

    monkeypatch.setattr(backend, "BACKENDS", {"twin": backend.BACKENDS["twin"]})
    with pytest.raises(NotImplementedError, match="no backend can run on cpu"):
        ssd_scan(**random_ssd(SIZES, torch.float32), chunk_size=64)


REFUSED = [
    (lambda: scan_of(torch.float64, 16, 16), "x (torch.float64) must be float32, float16 or bfloat16"),
    (lambda: scan_of(torch.float32, 300, 16), "headdim (300) must be 1 to 256"),
    (lambda: scan_of(torch.float32, 16, 300), "dstate (300) must be 1 to 256"),
]


def scan_of(dtype, headdim, dstate):
    return ssd_scan(**random_ssd((1, 5, 2, headdim, 1, dstate), dtype), chunk_size=64, backend="twin")


@pytest.mark.parametrize(("run", "reason"), REFUSED, ids=[row[1] for row in REFUSED])
def test_what_the_kernel_does_not_take_is_refused(run, reason):
    with pytest.raises(NotImplementedError) as raised:
        run()
    assert str(raised.value) == f"ssd_scan: backend 'twin' cannot run here: {reason}"


def test_it_runs_on_the_cpu_only():
    tensors = {name: t.to("meta") for name, t in random_ssd(SIZES, torch.float32).items()}
    with pytest.raises(NotImplementedError, match="it runs on cpu, not on meta"):
        ssd_scan(**tensors, chunk_size=64, backend="twin")


def selective(**tensors):
    return selective_scan(**tensors, delta_softplus=True, backend="twin")


def cross(**tensors):
    return ssd_cross_scan(**tensors, height=7, width=10, directions=4, chunk_size=64, backend="twin")


@pytest.mark.parametrize("seed", [0, 5])
def test_the_newest_report_is_that_of_the_backward(seed, chip):
    with twin.settings(chip=chip, seed=seed):
        kernels = []
        for op, tensors in (
            (partial(ssd_scan, chunk_size=64, backend="twin"), random_ssd(SIZES, torch.float32)),
            (selective, random_selective((2, 6, 40, 1, 4), torch.float32)),
        ):
            y, _ = op(**{name: t.requires_grad_() for name, t in tensors.items()})
            kernels.append(twin.last_report()["kernel"])
            y.sum().backward()
            report = twin.last_report()
            kernels.append(report["kernel"])
            assert (report["chip"], report["seed"]) == (chip, seed)
    assert kernels == ["ssd_forward", "ssd_backward", "selective_scan", "selective_scan_backward"]


NAMES = ("x", "dt", "A", "B", "C", "D", "z", "dt_bias", "initial_states")
ALONE = ("test_schema", "test_faketensor")


@pytest.mark.parametrize("save", [False, True])
def test_ex_3_opcheck(save):
    """All of it with gradients; what the forward saves has the shape that the fake kernel gives."""
    tensors = random_ssd(SIZES, torch.float32)
    options = (None, 64, True, 0.0, math.inf, save, "twin")
    arguments = [tensors[name] for name in NAMES]
    opcheck(torch.ops.vmamba2.ssd_scan.default, (*arguments, *options), test_utils=ALONE)
    leaves = [t.requires_grad_() for t in arguments]
    opcheck(torch.ops.vmamba2.ssd_scan.default, (*leaves, *options))
    options = (64, True, 0.0, math.inf, 7, 10, 4, "twin")
    opcheck(torch.ops.vmamba2.ssd_cross_scan.default, (*leaves[:8], *options))


@pytest.mark.parametrize("save", [False, True])
def test_ex_3_opcheck_of_the_selective_scan(save):
    tensors = random_selective((2, 6, 40, 2, 4), torch.float32)
    names = ("u", "delta", "A", "B", "C", "D", "z", "delta_bias")
    leaves = [tensors[name].requires_grad_() for name in names]
    opcheck(torch.ops.vmamba2.selective_scan.default, (*leaves, True, save, "twin"))


@pytest.mark.parametrize(
    ("run", "tensors", "names"),
    [
        (
            partial(ssd_scan, chunk_size=64, dt_softplus=True, backend="twin"),
            random_ssd(SIZES, torch.float32),
            ("y", "state"),
        ),
        (selective, random_selective((2, 6, 40, 2, 4), torch.float32), ("y", "state")),
    ],
    ids=["ssd_scan", "selective_scan"],
)
def test_ex_3_torch_compile_in_one_graph(run, tensors, names):
    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        torch.testing.assert_close(compiled(**tensors), run(**tensors), rtol=0, atol=0)
    have, want = (outputs_and_gradients(f, tensors, names) for f in (compiled, run))
    torch.testing.assert_close(have, want, rtol=0, atol=0)


def test_ex_2_torch_compile_with_a_length_that_varies():
    def run(**tensors):
        return ssd_scan(**tensors, chunk_size=64, backend="twin")[0] + selective(**channels(tensors))[
            0
        ].mT.unsqueeze(-1)

    def channels(tensors):
        u, B = tensors["x"].flatten(2).mT, tensors["B"].permute(0, 2, 3, 1)
        return {"u": u, "delta": u, "A": -torch.ones(u.shape[1], 16), "B": B, "C": B}

    compiled = torch.compile(run, fullgraph=True, backend="aot_eager", dynamic=True)
    for seqlen in (70, 20, 300):
        tensors = random_ssd((2, seqlen, 4, 1, 2, 16), torch.float32)
        have, want = (outputs_and_gradients(f, tensors, ("y",)) for f in (compiled, run))
        torch.testing.assert_close(have, want, rtol=0, atol=0)
