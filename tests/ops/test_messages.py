"""Bad calls: one sentence that names the argument, its value and the rule."""

import logging

import pytest
import torch

import ops_ascend
from ops_ascend import ascendc, native, selective_scan, ssd_cross_scan, ssd_scan
from ops_ascend import backend as backend_module
from ops_ascend.calls import Request
from ops_ascend.errors import random_selective, random_ssd


def zeros(*shape, dtype=torch.float32):
    return torch.zeros(*shape, dtype=dtype)


#    change to a good call (2, 12, nheads 4, headdim 3, ngroups 2, dstate 5)     error      message
SSD_ERRORS = [
    ({"x": zeros(2, 12, 4)}, ValueError,
     "x (2, 12, 4) must have 4 dimensions (batch, seqlen, nheads, headdim)"),
    ({"B": zeros(2, 12, 5)}, ValueError,
     "B (2, 12, 5) must have 4 dimensions (batch, seqlen, ngroups, dstate)"),
    ({"B": zeros(2, 12, 3, 5), "C": zeros(2, 12, 3, 5)}, ValueError,
     "nheads (4) must be divisible by ngroups (3)"),
    ({"B": zeros(2, 12, 8, 5), "C": zeros(2, 12, 8, 5)}, ValueError,
     "nheads (4) must be divisible by ngroups (8)"),
    ({"B": zeros(2, 12, 0, 5)}, ValueError, "ngroups (0) must be positive"),
    ({"C": zeros(2, 12, 2, 6)}, ValueError,
     "C (2, 12, 2, 6) must have shape (batch, seqlen, ngroups, dstate) = (2, 12, 2, 5)"),
    ({"dt": zeros(2, 11, 4)}, ValueError,
     "dt (2, 11, 4) must have shape (batch, seqlen, nheads) = (2, 12, 4)"),
    ({"A": zeros(3)}, ValueError, "A (3,) must have shape (nheads,) = (4,)"),
    ({"z": zeros(2, 12, 4, 4)}, ValueError, "z (2, 12, 4, 4) must have the shape of x = (2, 12, 4, 3)"),
    ({"D": zeros(3)}, ValueError, "D (3,) must have shape (nheads,) = (4,) or (nheads, headdim) = (4, 3)"),
    ({"dt_bias": zeros(1)}, ValueError, "dt_bias (1,) must have shape (nheads,) = (4,)"),
    ({"initial_states": zeros(2, 4, 5, 3)}, ValueError,
     "initial_states (2, 4, 5, 3) must have shape (batch, nheads, headdim, dstate) = (2, 4, 3, 5)"),
    ({"seq_idx": zeros(1, 12, dtype=torch.int64)}, ValueError,
     "seq_idx (1, 12) must have shape (batch, seqlen) = (2, 12)"),
    ({"seq_idx": zeros(2, 12)}, TypeError, "seq_idx (torch.float32) must be int32 or int64"),
    ({"x": zeros(2, 12, 4, 3, dtype=torch.int64)}, TypeError,
     "x (torch.int64) must be float32, bfloat16, float16 or float64"),
    ({"B": zeros(2, 12, 2, 5, dtype=torch.float16)}, TypeError,
     "B (torch.float16) must have the dtype of x (torch.float32)"),
    ({"A": zeros(4, dtype=torch.complex64)}, TypeError,
     "A (torch.complex64) must be a real floating-point tensor"),
    ({"z": torch.zeros(2, 12, 4, 3, device="meta")}, ValueError,
     "z (on meta) must be on the device of x (cpu)"),
    ({"chunk_size": 0}, ValueError, "chunk_size (0) must be a positive integer"),
    ({"chunk_size": 2.5}, ValueError, "chunk_size (2.5) must be a positive integer"),
    ({"dt_limit": (1.0, 0.5)}, ValueError, "dt_limit ((1.0, 0.5)) must be (low, high) with low <= high"),
    ({"backend": "triron"}, ValueError,
     "backend ('triron') must be one of auto, ascendc, cpu, chunked, reference, twin"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "error", "message"), SSD_ERRORS, ids=[e[2] for e in SSD_ERRORS])
def test_ssd_scan_names_what_is_wrong(change, error, message):
    good = random_ssd((2, 12, 4, 3, 2, 5), torch.float32) | {"chunk_size": 4}
    ssd_scan(**good)
    with pytest.raises(error) as raised:
        ssd_scan(**(good | change))
    assert str(raised.value) == f"ssd_scan: {message}"


CROSS_ERRORS = [
    ({"directions": 3}, "directions (3) must be 1, 2 or 4"),
    ({"height": 5}, "height (5) times width (4) must equal seqlen (12)"),
    ({"height": -3, "width": -4}, "height (-3) times width (-4) must equal seqlen (12)"),
    ({"A": zeros(3)}, "A (3,) must have shape (nheads,) = (4,)"),
]


@pytest.mark.parametrize(("change", "message"), CROSS_ERRORS, ids=[e[1] for e in CROSS_ERRORS])
def test_ssd_cross_scan_names_what_is_wrong(change, message):
    good = random_ssd((2, 12, 4, 3, 2, 5), torch.float32)
    del good["initial_states"]
    good |= {"chunk_size": 4, "height": 3, "width": 4, "directions": 4}
    ssd_cross_scan(**good)
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - the whole message is compared
        ssd_cross_scan(**(good | change))
    assert str(raised.value) == f"ssd_cross_scan: {message}"


#    change to a good call (batch 2, dim 6, seqlen 20, ngroups 2, dstate 3)
SELECTIVE_ERRORS = [
    ({"u": zeros(2, 6)}, ValueError, "u (2, 6) must have 3 dimensions (batch, dim, seqlen)"),
    ({"A": zeros(6)}, ValueError, "A (6,) must have 2 dimensions (dim, dstate)"),
    ({"A": zeros(5, 3)}, ValueError, "A (5, 3) must have shape (dim, dstate) = (6, 3)"),
    ({"delta": zeros(2, 6, 19)}, ValueError, "delta (2, 6, 19) must have the shape of u = (2, 6, 20)"),
    ({"B": zeros(2, 20)}, ValueError,
     "B (2, 20) must have shape (batch, dstate, seqlen) or (batch, ngroups, dstate, seqlen)"),
    ({"B": zeros(2, 4, 3, 20)}, ValueError, "dim (6) must be divisible by ngroups (4)"),
    ({"C": zeros(2, 3, 20)}, ValueError,
     "C (2, 3, 20) must have as many dimensions as B (2, 2, 3, 20)"),
    ({"C": zeros(2, 2, 4, 20)}, ValueError,
     "C (2, 2, 4, 20) must have shape (batch, ngroups, dstate, seqlen) = (2, 2, 3, 20)"),
    ({"D": zeros(5)}, ValueError, "D (5,) must have shape (dim,) = (6,)"),
    ({"z": zeros(2, 6, 20, dtype=torch.float64)}, TypeError,
     "z (torch.float64) must have the dtype of u (torch.float32)"),
    ({"delta_bias": zeros(6, dtype=torch.int32)}, TypeError,
     "delta_bias (torch.int32) must be a real floating-point tensor"),
    ({"A": torch.zeros(6, 3, device="meta")}, ValueError, "A (on meta) must be on the device of u (cpu)"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "error", "message"), SELECTIVE_ERRORS, ids=[e[2] for e in SELECTIVE_ERRORS]
)
def test_selective_scan_names_what_is_wrong(change, error, message):
    good = random_selective((2, 6, 20, 2, 3), torch.float32)
    selective_scan(**good)
    with pytest.raises(error) as raised:
        selective_scan(**(good | change))
    assert str(raised.value) == f"selective_scan: {message}"


def test_a_misspelt_argument_is_refused():
    with pytest.raises(TypeError, match="dt_softplu"):
        ssd_scan(**random_ssd((1, 4, 1, 2, 1, 2), torch.float32), chunk_size=4, dt_softplu=True)


NO_LIBRARY = "the native library is not built: run `vmamba2 build-ops` where CANN is installed"


@pytest.mark.usefixtures("cpu_libraries", "twin_libraries")
def test_backends_lists_every_backend_with_its_reasons():
    can_run = {name: [] for name in ("cpu", "chunked", "reference", "twin")}
    assert ops_ascend.backends() == {"ascendc": [NO_LIBRARY]} | can_run


def request_on_npu(op="ssd_scan", gradients=False):
    return Request(op, "npu", torch.float32, 64, 64, gradients)


def test_on_npu_without_the_library_auto_takes_chunked_and_says_why(caplog, monkeypatch):
    monkeypatch.setattr(backend_module, "_logged", set())
    with caplog.at_level(logging.INFO, logger="ops_ascend"):
        assert {backend_module.choose("auto", request_on_npu()) for _ in range(3)} == {"chunked"}
    assert [r.getMessage() for r in caplog.records] == [
        f"ssd_scan on npu runs with backend chunked; not ascendc: {NO_LIBRARY}"
    ]


def test_on_npu_auto_takes_the_native_kernel_where_there_is_one(monkeypatch):
    """With the library, which is not here."""
    monkeypatch.setattr(native, "_reasons", {key: [] for key in native._reasons})
    for op in ("ssd_scan", "ssd_cross_scan", "selective_scan"):
        for gradients in (False, True):
            assert backend_module.choose("auto", request_on_npu(op, gradients)) == "ascendc"
    wide = Request("ssd_scan", "npu", torch.float32, 64, 257, False)
    assert backend_module.choose("auto", wide) == "chunked"


def test_what_the_native_kernels_do_not_take_goes_to_chunked_with_the_reason(caplog, monkeypatch):
    monkeypatch.setattr(native, "_reasons", {key: [] for key in native._reasons})
    monkeypatch.setattr(backend_module, "_logged", set())
    wide = Request("selective_scan", "npu", torch.float32, 1, 257, True)
    with caplog.at_level(logging.INFO, logger="ops_ascend"):
        assert backend_module.choose("auto", wide) == "chunked"
    assert [r.getMessage() for r in caplog.records] == [
        "selective_scan on npu runs with backend chunked; not ascendc: dstate (257) must be 1 to 256"
    ]


def test_the_native_kernels_run_on_npu_only():
    with pytest.raises(NotImplementedError) as raised:
        ssd_scan(**random_ssd((1, 4, 1, 2, 1, 2), torch.float32), chunk_size=4, backend="ascendc")
    reasons = f"{NO_LIBRARY}; it runs on npu, not on cpu"
    assert str(raised.value) == f"ssd_scan: backend 'ascendc' cannot run here: {reasons}"


@pytest.mark.parametrize(
    ("device", "arch"),
    [("Ascend910B3", 2201), ("Ascend910_9382", 2201), ("Ascend950PR_9599", 3510), ("Ascend310P3", None)],
)
def test_the_library_is_chosen_by_the_name_of_the_chip(device, arch):
    assert ascendc.architecture(device) == arch


@pytest.fixture
def one_missing_backend(monkeypatch):
    """A backend before all others that cannot run, as a native one on a machine without its library."""
    absent = backend_module.Backend(
        "absent", "for this test", None, lambda: ["libabsent.so not found"], lambda request: []
    )
    monkeypatch.setattr(backend_module, "BACKENDS", {"absent": absent, **backend_module.BACKENDS})
    monkeypatch.setattr(backend_module, "_logged", set())


@pytest.mark.usefixtures("one_missing_backend")
def test_a_named_backend_never_falls_back():
    tensors = random_ssd((1, 4, 1, 2, 1, 2), torch.float32)
    with pytest.raises(NotImplementedError) as raised:
        ssd_scan(**tensors, chunk_size=4, backend="absent")
    assert str(raised.value) == "ssd_scan: backend 'absent' cannot run here: libabsent.so not found"


@pytest.mark.usefixtures("one_missing_backend", "cpu_libraries")
def test_auto_says_once_what_it_chose_and_why_not_the_others(caplog):
    tensors = random_ssd((1, 4, 1, 2, 1, 2), torch.float32)
    with caplog.at_level(logging.INFO, logger="ops_ascend"):
        for _ in range(3):
            ssd_scan(**tensors, chunk_size=4)
    assert [r.getMessage() for r in caplog.records] == [
        "ssd_scan on cpu runs with backend cpu; not absent: libabsent.so not found"
    ]


def test_on_cpu_without_the_library_auto_takes_chunked_and_says_why(caplog, monkeypatch):
    reason = "the CPU library is not built: run `make ops` or `vmamba2 build-ops`"
    monkeypatch.setattr(native, "_reasons", {key: [reason] for key in native._reasons})
    monkeypatch.setattr(backend_module, "_logged", set())
    tensors = random_ssd((1, 4, 1, 2, 1, 2), torch.float32)
    with caplog.at_level(logging.INFO, logger="ops_ascend"):
        for _ in range(3):
            ssd_scan(**tensors, chunk_size=4)
    assert [r.getMessage() for r in caplog.records] == [
        f"ssd_scan on cpu runs with backend chunked; not cpu: {reason}"
    ]
    with pytest.raises(NotImplementedError) as raised:
        ssd_scan(**tensors, chunk_size=4, backend="cpu")
    assert str(raised.value) == f"ssd_scan: backend 'cpu' cannot run here: {reason}"


def test_no_backend_at_all_lists_every_reason(monkeypatch):
    everything = {
        name: backend_module.Backend(name, "", None, lambda name=name: [f"no {name}"], lambda request: [])
        for name in ("first", "second")
    }
    monkeypatch.setattr(backend_module, "BACKENDS", everything)
    with pytest.raises(NotImplementedError) as raised:
        ssd_scan(**random_ssd((1, 4, 1, 2, 1, 2), torch.float32), chunk_size=4)
    assert str(raised.value) == "ssd_scan: no backend can run on cpu: first: no first; second: no second"
