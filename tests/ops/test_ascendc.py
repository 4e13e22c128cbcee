"""The path to the native library, up to the library itself: there is no NPU to run it on."""

import pytest
import torch

from ops_ascend import ascendc, twin
from ops_ascend.ascendc_call import INPUTS, SIZES
from ops_ascend.calls import SSDCall
from ops_ascend.errors import random_ssd
from ops_ascend.spec import NO_LIMIT


def call_of(dtype):
    tensors = random_ssd((1, 70, 2, 16, 1, 16), dtype)
    return SSDCall(**tensors, seq_idx=None, chunk_size=64, dt_softplus=True, dt_limit=NO_LIMIT)


@pytest.fixture
def launches(monkeypatch):
    """Stands in for the library; records what it would be called with, and leaves zeros."""
    recorded = []

    def operator(*arguments):
        recorded.append(arguments)
        for output in arguments[len(INPUTS) : len(INPUTS) + 2]:
            output.zero_()

    monkeypatch.setattr(ascendc, "_operator", lambda: operator)
    return recorded


def half_operands(launch):
    return launch[len(INPUTS) + 3][SIZES.index("half_operands")]


def test_precision_reaches_the_kernel_and_ends_with_its_block(launches):
    with ascendc.precision("half"):
        ascendc.ssd_scan(call_of(torch.float32))
    ascendc.ssd_scan(call_of(torch.float32))
    assert [half_operands(launch) for launch in launches] == [1, 0]


def test_tensors_of_16_bits_have_operands_of_their_own(launches):
    with ascendc.precision("half"):
        ascendc.ssd_scan(call_of(torch.bfloat16))
    assert half_operands(launches[0]) == 0


def test_an_unknown_precision_is_refused():
    sentence = r"ascendc: precision \('fast'\) must be one of accurate, half"
    with pytest.raises(ValueError, match=sentence), ascendc.precision("fast"):
        pass


def test_the_library_is_told_what_the_twin_is_told(launches, twin_libraries):
    """One preparation for both: the twin's checks are about what an NPU would get."""
    call = call_of(torch.float32)
    ascendc.ssd_scan(call)
    given = twin._struct(twin._launch(call, twin.current_settings()))
    assert list(given.integers) == launches[0][len(INPUTS) + 3]
    assert list(given.limits) == launches[0][len(INPUTS) + 4]
