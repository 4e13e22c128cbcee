import sys

import pytest

from ops_ascend.errors import tensor_error
from tests.ops.memory import SCANS, inputs, measure


def test_the_yardstick_computes_the_same():
    tensors = inputs(1)
    have, want = (SCANS[name](*tensors) for name in ("chunked", "einsum"))
    assert tensor_error("y", have, want).relative_rms <= 1e-4


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the high-water mark of /proc")
def test_chunked_peaks_at_half_the_memory_of_einsum_at_most():
    assert measure("chunked") <= 0.5 * measure("einsum")
