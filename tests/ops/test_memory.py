import sys

import pytest

from ops_ascend.errors import tensor_error
from tests.ops.memory import SCANS, inputs, measure


@pytest.mark.parametrize("name", ["cpu", "chunked"])
@pytest.mark.usefixtures("cpu_libraries")
def test_the_yardstick_computes_the_same(name):
    tensors = inputs(1)
    have, want = (SCANS[scan](*tensors) for scan in (name, "einsum"))
    assert tensor_error("y", have, want).relative_rms <= 1e-4


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the high-water mark of /proc")
@pytest.mark.usefixtures("cpu_libraries")
def test_peaks_at_a_fraction_of_the_memory_of_einsum():
    einsum = measure("einsum")
    assert measure("chunked") <= einsum / 2
    assert measure("cpu") <= einsum / 5
