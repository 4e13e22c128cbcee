"""The comparison of training steps."""

import json

import pytest
import timm
import torch

import ops_ascend
import vmamba2
from ops_ascend.benchmark.measure import Timed
from ops_ascend.benchmark.timing import Summary
from vmamba2 import cli
from vmamba2.tools import benchmark, networks
from vmamba2.tools.benchmark import Result, Row, Step, verdicts

assert vmamba2.models
SMALL = ["--model", "vmamba2_nano", "--image-size", "32", "--batch", "2", "--threads", "1", "--repeat", "1"]


def row(name, seconds, peak_mib, peer=True):
    timed = Timed(Summary(seconds, seconds, seconds), Summary(seconds, seconds, seconds), 3)
    return Row(name, peer, timed=timed, peak_bytes=peak_mib * 2**20)


def test_the_command_measures_and_writes(capsys, tmp_path):
    file = tmp_path / "step.jsonl"
    arguments = ["--backend", "chunked", "--against", "peers", "--no-memory", "--json", str(file)]
    assert cli.main(["benchmark", *SMALL, *arguments]) == 0
    out = capsys.readouterr().out
    assert "vmamba2_nano, 32 px, batch 2" in out
    records = [json.loads(line) for line in file.read_text().splitlines()]
    rows = {r["name"]: r for r in records if r["kind"] == "training step"}
    assert list(rows) == ["chunked", "einsum", "einsum_64"]
    assert all(r["gradient_error"] < 1e-4 and r["timed"]["wall"]["median"] > 0 for r in rows.values())
    assert {r["quantity"] for r in records if r["kind"] == "verdict"} == {"time", "CPU time"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "vmamba2_tiney"], "unknown model 'vmamba2_tiney'; did you mean 'vmamba2_tiny'?"),
        (["--backend", "cpuu"], "unknown backend 'cpuu'; did you mean 'cpu'?"),
        (["--against", "einsun"], "unknown backend or peer 'einsun'; did you mean 'einsum'?"),
    ],
)
def test_a_mistake_is_named(capsys, arguments, message):
    assert cli.main(["benchmark", *arguments]) == 2
    assert capsys.readouterr().err == f"benchmark: {message}\n"


def test_a_backend_that_cannot_run_is_refused(capsys):
    assert cli.main(["benchmark", *SMALL, "--backend", "ascendc"]) == 1
    assert "backend 'ascendc' cannot run here" in capsys.readouterr().err


@pytest.mark.parametrize("peer", networks.FAMILIES[0].peers)
def test_a_peer_in_place_of_the_operator_is_the_same_network(peer):
    torch.manual_seed(0)
    model = timm.create_model("vmamba2_nano").eval()
    images = torch.randn(2, 3, 40, 32)
    family = networks.family_of("vmamba2_nano")
    with networks.variant(model, family, "reference"), torch.no_grad():
        want = model(images)
    original = ops_ascend.ssd_cross_scan
    with networks.variant(model, family, peer), torch.no_grad():
        assert ops_ascend.ssd_cross_scan is not original
        torch.testing.assert_close(model(images), want, rtol=1e-4, atol=1e-5)


def test_what_was_replaced_comes_back_after_an_error():
    model = timm.create_model("vmamba2_nano")
    family, original = networks.family_of("vmamba2_nano"), ops_ascend.ssd_cross_scan
    for name in (*family.peers, "reference"):
        with pytest.raises(ZeroDivisionError), networks.variant(model, family, name):
            raise ZeroDivisionError
    assert ops_ascend.ssd_cross_scan is original
    assert {m.scan_backend for m in model.modules() if hasattr(m, "scan_backend")} == {"auto"}


def test_a_backend_that_computes_something_else_is_not_timed(capsys, monkeypatch):
    def flipped(*arguments, **options):
        return original(*arguments, **options).flip(-1)

    original = ops_ascend.ssd_cross_scan
    # The backends go through the operator; the peers take its place.
    monkeypatch.setattr(ops_ascend, "ssd_cross_scan", flipped)
    assert benchmark.main([*SMALL, "--backend", "chunked", "--against", "peers", "--no-memory"]) == 1
    assert "chunked is WRONG: its gradients are" in capsys.readouterr().out


def test_bars_are_judged_against_the_best_peer():
    result = Result("cpu", [row("cpu", 2, 100, False), row("a", 9, 500), row("b", 7, 390)])
    judged = {v["quantity"]: v for v in verdicts(Step("vmamba2_tiny", 224, 4, 2), result)}
    assert judged["time"] == {"quantity": "time", "peer": "b", "ratio": 3.5, "bar": 4, "passed": False}
    assert (judged["memory"]["ratio"], judged["memory"]["passed"]) == (3.9, False)
    assert judged["CPU time"]["passed"] is None
    other = {v["quantity"]: v for v in verdicts(Step("vmamba2_micro", 224, 4, 2), result)}
    assert other["time"]["bar"] is None
