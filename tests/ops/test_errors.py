import subprocess
import sys

import pytest
import torch

from ops_ascend import errors
from ops_ascend.errors import tensor_error


def test_op_19_errors_are_relative_to_the_tensor():
    exact = torch.full((100,), 1e5)
    row = tensor_error("dx", exact + 1, exact)
    assert row.relative_rms == pytest.approx(1e-5)
    assert row.max_abs == pytest.approx(1.0)
    assert row.cosine == pytest.approx(1.0)


def test_op_19_a_wrong_direction_and_a_nan_show():
    exact = torch.randn(100, generator=torch.Generator().manual_seed(0))
    assert tensor_error("dx", -exact, exact).cosine == pytest.approx(-1.0)
    assert tensor_error("dx", torch.zeros(100), exact).relative_rms == pytest.approx(1.0)
    assert not tensor_error("dx", exact.clone().fill_(torch.nan), exact).relative_rms <= 1e9
    assert tensor_error("dx", torch.ones(3), torch.zeros(3)).relative_rms == float("inf")


@pytest.mark.parametrize("op", ["ssd_scan", "ssd_cross_scan", "selective_scan"])
def test_op_19_the_command_prints_relative_error_and_cosine_of_each_gradient(op):
    command = [sys.executable, "-m", "ops_ascend.errors", "--op", op, "--dtype", "bfloat16"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert lines[0] == f"{op}, bfloat16, backend auto on cpu, against float64"
    rows = {line.split()[0]: [float(figure) for figure in line.split()[1:]] for line in lines[2:]}
    assert {"y", "dA", "dB", "dC", "dD", "dz"} <= set(rows)
    for name, (relative_rms, _max_abs, cosine_gap) in rows.items():
        assert 0 < relative_rms < 5e-3, name
        assert cosine_gap < 1e-4, name


@pytest.mark.parametrize("op", ["ssd_scan", "ssd_cross_scan", "selective_scan"])
@pytest.mark.usefixtures("twin_libraries")
def test_the_command_compares_the_twin(op, capsys):
    assert errors.main(["--op", op, "--backend", "twin"]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = {line.split()[0]: float(line.split()[1]) for line in lines[2:]}
    assert {"y", "dA", "dB", "dC", "dD", "dz"} <= set(rows)
    assert all(0 < error < 1e-5 for error in rows.values())


def test_the_command_leaves_out_gradients_when_told(capsys):
    assert errors.main(["--op", "ssd_scan", "--outputs-only"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[2:]] == ["y", "final_states"]


def test_the_command_answers_a_backend_that_cannot_with_one_sentence(capsys):
    assert errors.main(["--op", "ssd_scan", "--backend", "ascendc"]) == 1
    assert capsys.readouterr().err.startswith("ssd_scan: backend 'ascendc' cannot run here: ")
