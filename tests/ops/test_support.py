"""The support matrix says what is so: every row is run on every backend that is here."""

import subprocess
import sys
from pathlib import Path

import pytest

from ops_ascend.errors import outputs_and_gradients, tensor_error
from ops_ascend.support import FEATURES, refusals, table
from tests.ops.policy import assert_accurate, assert_native

ROOT = Path(__file__).parents[2]
features = pytest.mark.parametrize("feature", FEATURES, ids=[f"{f.op}-{f.title}" for f in FEATURES])


def run(feature, name, exact=False):
    """Outputs and gradients of a row on a backend, of the same values in float64 if exact."""
    scan, tensors = feature.example()
    if exact:
        tensors = {n: t.double() if t.is_floating_point() else t for n, t in tensors.items()}
    names = ("y",) if feature.op == "ssd_cross_scan" else ("y", "state")
    return outputs_and_gradients(lambda **leaves: scan(**leaves, backend=name), tensors, names)


@features
@pytest.mark.parametrize("name", ["cpu", "chunked", "reference", "twin"])
@pytest.mark.usefixtures("cpu_libraries", "twin_libraries")
def test_every_row_of_the_table_is_true(feature, name):
    if refusals(feature, name):
        with pytest.raises(NotImplementedError):
            run(feature, name)
        return
    exact = run(feature, "reference", exact=True)
    rows = [tensor_error(tensor, value, exact[tensor]) for tensor, value in run(feature, name).items()]
    if name == "twin":
        assert_native(rows, feature.dtype)
    else:
        assert_accurate(rows, feature.dtype, name)


def test_cpu_chunked_and_reference_take_everything():
    for feature in FEATURES:
        assert not any(refusals(feature, name) for name in ("cpu", "chunked", "reference"))


def test_op_22_a_command_prints_the_matrix():
    run = subprocess.run(
        [sys.executable, "-m", "ops_ascend.support"], capture_output=True, text=True, check=True
    )
    assert run.stdout.startswith(table())
    assert "On this machine:\n  ascendc " in run.stdout


def test_the_readme_shows_the_table_that_the_command_prints():
    assert table() in (ROOT / "ops_ascend" / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("op", ["ssd_scan", "ssd_cross_scan", "selective_scan"])
def test_the_kernels_take_all_but_float64_and_sizes_beyond_256(op):
    refused = {f.title for f in FEATURES if f.op == op and refusals(f, "ascendc")}
    assert refused == {f.title for f in FEATURES if f.op == op} & {"float64", "headdim 257", "dstate 257"}
    assert {"bfloat16", "float16", "float64", "dstate 257"} <= {f.title for f in FEATURES if f.op == op}
