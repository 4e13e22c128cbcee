import json

import pytest

from ops_ascend import modelled, twin
from ops_ascend.modelled import Options, Shape

pytestmark = pytest.mark.usefixtures("twin_libraries")
SMALL = Shape(2, 256, 16, 64, 4, 64)


def counted(shape, **settings):
    with twin.settings(**settings):
        return modelled.count(shape, Options(), modelled.CORES[settings["chip"]])[0]


@pytest.mark.parametrize("chip", modelled.CORES)
def test_traffic_is_the_bound_and_hand_offs_are_four(chip):
    # Groups for two rounds of either chip: no reason to split one, which would read its B and C again.
    row = counted(Shape(16, 128, 16, 64, 4, 64), chip=chip)
    assert row.bound_bytes <= row.moved_bytes <= 1.05 * row.bound_bytes
    assert row.hand_offs == 4


def test_a_slice_scales_to_the_whole(monkeypatch):
    # 40 tasks are two rounds of the 20 cores, and a slice is one of them.
    shape = Shape(2, 128, 40, 64, 20, 64)
    whole = counted(shape, chip="910B3")
    monkeypatch.setattr(modelled, "LARGEST_HERE", 0)
    scaled = counted(shape, chip="910B3")
    assert scaled.scaled
    assert not whole.scaled
    for name in ("moved_bytes", "ring_bytes", "hbm_ms", "ring_ms"):
        assert getattr(scaled, name) == pytest.approx(getattr(whole, name), rel=1e-3), name
    # The whole overlaps the rounds a little; a slice knows nothing of it.
    assert whole.cores_ms <= scaled.cores_ms <= 1.3 * whole.cores_ms


def test_both_launches_of_a_sequence_in_segments_are_counted():
    shape = Shape(1, 1024, 1, 64, 1, 64)
    row = counted(shape, chip="910B3")
    # x and B are read in both launches, and the segments' states are handed over in between.
    assert row.moved_bytes > row.bound_bytes + 4 * 1024 * 64


def test_the_command_prints_a_row_and_writes_a_trace(capsys, tmp_path):
    trace = tmp_path / "trace.json"
    sizes = [str(size) for size in SMALL]
    assert modelled.main(["--shape", *sizes, "--precision", "half", "--trace", str(trace)]) == 0
    out = capsys.readouterr().out
    assert "all times are modelled" in out
    assert "2 256 16 64 4 64" in out
    assert json.loads(trace.read_text())["traceEvents"]


def test_a_refused_shape_is_one_sentence(capsys):
    assert modelled.main(["--shape", "1", "64", "4", "300", "2", "64"]) == 1
    error = capsys.readouterr().err
    assert error == "ssd_scan: backend 'twin' cannot run this: headdim (300) must be 1 to 256\n"
