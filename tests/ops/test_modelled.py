import json

import pytest

from ops_ascend import modelled, twin
from ops_ascend.modelled import Options, Shape, Window

pytestmark = pytest.mark.usefixtures("twin_libraries")
SMALL = Shape(2, 256, 16, 64, 4, 64)


def counted(shape, kernel="ssd_forward", **settings):
    with twin.settings(**settings):
        return modelled.count(kernel, shape, Options(), modelled.CUBE_CORES[settings["chip"]])[0]


@pytest.mark.parametrize("kernel", modelled.SSD_KERNELS)
@pytest.mark.parametrize("chip", modelled.CUBE_CORES)
def test_traffic_is_the_bound_and_hand_offs_are_few(kernel, chip):
    # Groups for two rounds of either chip: no reason to split one, which would read its B and C again.
    row = counted(Shape(16, 128, 16, 64, 4, 64), kernel, chip=chip)
    assert row.bound_bytes <= row.moved_bytes <= 1.05 * row.bound_bytes
    assert 4 <= row.hand_offs <= (4 if kernel == "ssd_forward" else 6)


@pytest.mark.parametrize("kernel", modelled.SELECTIVE_KERNELS)
@pytest.mark.parametrize("chip", modelled.CUBE_CORES)
def test_selective_scans_move_little_more_than_the_bound(kernel, chip):
    row = counted(Window(24, 256, 196, 1, 8), kernel, chip=chip)
    assert row.bound_bytes <= row.moved_bytes <= 1.1 * row.bound_bytes
    assert row.hand_offs == row.ring_bytes == 0
    assert row.cores_ms < modelled.sequential_ms(kernel, row.shape, modelled.VECTOR_CORES[chip])


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


def test_the_command_prints_rows_and_writes_a_trace(capsys, tmp_path):
    trace = tmp_path / "trace.json"
    sizes = [str(size) for size in SMALL]
    assert modelled.main(["--shape", *sizes, "--precision", "half", "--trace", str(trace)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "all times are modelled" in lines[1]
    assert [line.split()[:7] for line in lines[-2:]] == [[k, *sizes] for k in modelled.SSD_KERNELS]
    assert json.loads(trace.read_text())["traceEvents"]


def test_the_command_sums_up_mamba_vision(capsys, monkeypatch):
    windows = ((Window(2, 64, 28, 1, 8), 5), (Window(2, 64, 7, 1, 8), 3))
    monkeypatch.setattr(modelled, "MAMBA_VISION_B", windows)
    monkeypatch.setitem(modelled.SUITES, "mamba_vision", [window for window, _ in windows])
    assert modelled.main(["--suite", "mamba_vision", "--chip", "950PR"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len([line for line in lines if line.startswith("selective_scan")]) == 4
    assert [line.split(":")[0] for line in lines[-2:]] == [
        f"MambaVision-B, all Mamba blocks, {kernel}" for kernel in modelled.SELECTIVE_KERNELS
    ]


@pytest.mark.parametrize(
    ("sizes", "sentence"),
    [
        ("1 64 4 300 2 64", "ssd_forward: headdim (300) must be 1 to 256\n"),
        ("1 64 4", "modelled: shape ([1, 64, 4]) must have 5 or 6 sizes\n"),
    ],
)
def test_a_refused_shape_is_one_sentence(sizes, sentence, capsys):
    assert modelled.main(["--shape", *sizes.split()]) == 1
    assert capsys.readouterr().err == sentence
