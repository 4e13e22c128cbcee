"""The compiled CPU kernels: which library runs, how a call reaches it, and that each gives the same."""

import re
import threading
from functools import partial

import pytest
import torch

from ops_ascend import cpu, native, selective_scan, ssd_cross_scan, ssd_scan
from ops_ascend.errors import outputs_and_gradients, random_selective, random_ssd, tensor_error
from tests.ops.cases import SELECTIVE_CASES, SSD_CASES, named
from tests.ops.policy import assert_accurate

pytestmark = pytest.mark.usefixtures("cpu_libraries")
STATES = ("y", "state")


def ssd(**options):
    return partial(ssd_scan, chunk_size=64, dt_softplus=True, backend="cpu", **options)


def selective(**options):
    return partial(selective_scan, delta_softplus=True, backend="cpu", **options)


def cross(height, width):
    return partial(
        ssd_cross_scan,
        height=height,
        width=width,
        directions=4,
        chunk_size=64,
        dt_softplus=True,
        backend="cpu",
    )


def test_every_machine_has_a_library():
    assert cpu.instruction_sets()[-1] == "generic"


def with_each_set(scan, tensors, names):
    runs = {}
    for instructions in cpu.instruction_sets():
        with cpu.settings(instructions=instructions):
            runs[instructions] = outputs_and_gradients(scan, tensors, names)
    return runs


def assert_within_rounding(runs):
    for run in runs.values():
        rows = [tensor_error(name, value, runs["generic"][name]) for name, value in run.items()]
        assert_accurate(rows, torch.float32, "cpu")


@named(SSD_CASES)
def test_each_set_of_instructions_gives_the_same_ssd_scan(case):
    assert_within_rounding(with_each_set(ssd(), random_ssd(case.sizes, torch.float32), STATES))


@pytest.mark.parametrize(("height", "width"), [(1, 1), (3, 5), (14, 14), (33, 2)])
def test_each_set_of_instructions_gives_the_same_ssd_cross_scan(height, width):
    tensors = random_ssd((2, height * width, 6, 16, 2, 32), torch.float32)
    del tensors["initial_states"]
    assert_within_rounding(with_each_set(cross(height, width), tensors, ("y",)))


@named(SELECTIVE_CASES)
def test_each_set_of_instructions_gives_the_same_selective_scan(case):
    assert_within_rounding(with_each_set(selective(), random_selective(case.sizes, torch.float32), STATES))


def test_calls_take_the_best_library_and_settings_another(monkeypatch):
    used = []
    monkeypatch.setattr(cpu, "_run", lambda kernel, call, results: used.append(kernel))
    tensors = random_selective((1, 2, 3, 1, 2), torch.float32)
    selective()(**tensors)
    best = cpu._library(cpu.instruction_sets()[0])
    with cpu.settings(instructions="generic"):
        selective()(**tensors)
    selective()(**tensors)
    generic = cpu._library("generic")
    assert used == [best.selective_forward, generic.selective_forward, best.selective_forward]


def test_a_backward_takes_the_library_of_its_forward(monkeypatch):
    used = []
    run = cpu._run
    monkeypatch.setattr(cpu, "_run", lambda kernel, *rest: [used.append(kernel), run(kernel, *rest)])
    tensors = {n: t.requires_grad_() for n, t in random_ssd((1, 5, 2, 4, 1, 4), torch.float32).items()}
    with cpu.settings(instructions="generic"):
        y, _ = ssd()(**tensors)
    thread = threading.Thread(target=y.sum().backward)
    thread.start()
    thread.join()
    generic = cpu._library("generic")
    assert used == [generic.ssd_forward, generic.ssd_backward]


def test_settings_name_what_is_wrong(monkeypatch):
    with (
        pytest.raises(ValueError, match=r"cpu: instructions \('sse'\) must be one of avx512, avx2, generic"),
        cpu.settings(instructions="sse"),
    ):
        pass
    monkeypatch.setattr(cpu, "_library", lambda instructions: None)
    with (
        pytest.raises(
            ValueError,
            match=r"cpu: instructions \('generic'\) cannot run here: this processor does not have them",
        ),
        cpu.settings(instructions="generic"),
    ):
        pass
    reason = "the CPU library is not built: run `make ops` or `vmamba2 build-ops`"
    monkeypatch.setitem(native._reasons, ("cpu", "avx512"), [reason])
    with (
        pytest.raises(ValueError, match=r"\('avx512'\) cannot run here: the CPU library is not built"),
        cpu.settings(instructions="avx512"),
    ):
        pass


def test_a_library_that_cannot_be_loaded_is_a_reason(monkeypatch):
    def broken():
        raise OSError("libmissing.so: cannot open shared object file")

    monkeypatch.setattr(cpu, "_best", broken)
    monkeypatch.setattr(cpu, "_broken", cpu._load())
    assert cpu.missing() == [
        "the CPU library cannot be loaded: libmissing.so: cannot open shared object file"
    ]


def test_a_kernel_without_memory_raises(monkeypatch):
    monkeypatch.setattr(cpu, "_kernels", lambda: cpu._Library(*[lambda call, results: 1] * 4))
    with pytest.raises(MemoryError, match="found no memory for what a scan needs on its way"):
        ssd()(**random_ssd((1, 5, 2, 4, 1, 4), torch.float32))


def test_runs_on_the_cpu_only():
    tensors = {name: t.to("meta") for name, t in random_ssd((1, 5, 2, 4, 1, 4), torch.float32).items()}
    with pytest.raises(NotImplementedError, match="'cpu' cannot run here: it runs on cpu, not on meta"):
        ssd()(**tensors)


def declared(name):
    """The fields of a structure in call.h, as the struct module writes them."""
    text = re.sub(r"//.*", "", (native.PACKAGE / "csrc" / "cpu" / "call.h").read_text(encoding="utf-8"))
    body = re.search(rf"struct {name} {{(.*?)\n}};", text, re.DOTALL)[1]
    code = {"int64_t": "q", "double": "d", "VmTensor": "q" * cpu._TENSOR}
    found = re.findall(r"(int64_t|double|VmTensor)([^;]*);", body)
    return "".join(code[kind] * len(names.split(",")) for kind, names in found)


@pytest.mark.parametrize(
    ("name", "packed"),
    [
        ("VmSsdCall", cpu._SSD_CALL),
        ("VmSsdResults", cpu._SSD_RESULTS),
        ("VmSsdGradients", cpu._SSD_GRADIENTS),
        ("VmSelectiveCall", cpu._SELECTIVE_CALL),
        ("VmSelectiveResults", cpu._SELECTIVE_RESULTS),
        ("VmSelectiveGradients", cpu._SELECTIVE_GRADIENTS),
    ],
)
def test_a_call_is_packed_as_the_kernels_read_it(name, packed):
    written = re.sub(r"(\d+)(\w)", lambda match: match[2] * int(match[1]), packed.format)
    assert written == declared(name)


def test_the_codes_of_dtypes_are_those_that_the_kernels_know():
    text = (native.PACKAGE / "csrc" / "cpu" / "call.h").read_text(encoding="utf-8")
    names = re.findall(r"kVm(\w+)", re.search(r"enum VmDtype : int64_t {(.*?)}", text)[1])
    assert [str(dtype).removeprefix("torch.") for dtype in cpu._DTYPES] == [name.lower() for name in names]
    assert [*cpu._DTYPES.values()] == [*range(len(names))]


def test_results_are_on_the_cpu_whatever_the_default_device():
    tensors = random_ssd((1, 5, 2, 4, 1, 4), torch.float32)
    with torch.device("meta"):
        y, final_states = ssd()(**tensors)
    assert {y.device.type, final_states.device.type} == {"cpu"}


def denormals_live():
    """Whether a product too small for a normal number is kept, here and on the other threads of PyTorch."""
    tiny = torch.full((1 << 20,), 1e-39)
    return bool(((tiny * 1.0) != 0).all())


@pytest.mark.parametrize("threads", [1, 2])
def test_t19_what_the_caller_chose_for_denormals_comes_back(threads, instructions):
    torch.set_num_threads(threads)
    tensors = random_ssd((4, 256, 4, 64, 2, 64), torch.float32)
    tensors["x"] *= 1e-39
    for flush in (False, True):
        torch.set_flush_denormal(flush)
        try:
            with cpu.settings(instructions=instructions):
                outputs_and_gradients(ssd(), tensors, STATES)
            here = torch.tensor([1e-39]) * 1.0
        finally:
            torch.set_flush_denormal(False)
        assert bool(here == 0) == flush
        assert denormals_live()


def test_t19_denormals_are_zero_in_both_scans_and_their_gradients(instructions):
    tiny = torch.finfo(torch.float32).tiny
    sets = [
        (ssd(), random_ssd((1, 64, 2, 8, 1, 8), torch.float32), "x"),
        (selective(), random_selective((1, 20, 64, 1, 8), torch.float32), "u"),
    ]
    for scan, tensors, name in sets:
        for optional in ("initial_states", "D"):
            tensors.pop(optional, None)
        zero = tensors | {name: torch.zeros_like(tensors[name])}
        with cpu.settings(instructions=instructions):
            have = outputs_and_gradients(scan, tensors | {name: tensors[name] * 1e-39}, STATES)
            want = outputs_and_gradients(scan, zero, STATES)
        for tensor in (*STATES, f"d{name}"):
            assert (have[tensor] - want[tensor]).abs().max() <= tiny, tensor
