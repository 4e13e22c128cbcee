"""The path to the native library, up to the library itself: there is no NPU to run it on."""

import threading
from dataclasses import replace

import pytest
import torch

from ops_ascend import ascendc, ascendc_call, ascendc_scan, backend, ssd_scan, twin
from ops_ascend.ascendc_call import prepare_forward
from ops_ascend.calls import SelectiveCall, SSDCall
from ops_ascend.errors import compare, outputs_and_gradients, random_selective, random_ssd
from ops_ascend.spec import NO_LIMIT
from ops_ascend.support import FEATURES, refusals
from tests.ops import stand_in
from tests.ops.policy import assert_accurate


def call_of(dtype, seqlen=70):
    tensors = random_ssd((1, seqlen, 2, 16, 1, 16), dtype)
    tensors["D"] = tensors["D"].sum(1)
    return SSDCall(**tensors, seq_idx=None, chunk_size=64, dt_softplus=True, dt_limit=NO_LIMIT)


def selective_call_of(dtype, seqlen=70):
    return SelectiveCall(**random_selective((2, 6, seqlen, 2, 4), dtype), delta_softplus=True)


@pytest.fixture
def operators(monkeypatch):
    """Stands in for the library: records what its operators are called with."""
    recorded = []

    def operator(name):
        def call(*arguments):
            recorded.append((name, arguments))
            return 2 if name.endswith(("_parts", "_rows")) else None

        return call

    monkeypatch.setattr(ascendc, "_operator", operator)
    return recorded


def half_operands(recorded):
    return [
        arguments[-2][ascendc_call.SIZES.index("half_operands")]
        for name, arguments in recorded
        if name in ("ssd_forward", "ssd_backward")
    ]


SSD = ascendc_scan.SSDScan(ascendc.MACHINE)
SELECTIVE = ascendc_scan.SelectiveScan(ascendc.MACHINE)


def test_precision_reaches_the_kernel_and_ends_with_its_block(operators):
    with ascendc.precision("half"):
        SSD.forward(call_of(torch.float32), save=False)
    SSD.forward(call_of(torch.float32), save=False)
    assert half_operands(operators) == [1, 0]


def test_tensors_of_16_bits_have_operands_of_their_own(operators):
    with ascendc.precision("half"):
        SSD.forward(call_of(torch.bfloat16), save=False)
    assert half_operands(operators) == [0]


def test_an_unknown_precision_is_refused():
    sentence = r"ascendc: precision \('fast'\) must be one of accurate, half"
    with pytest.raises(ValueError, match=sentence), ascendc.precision("fast"):
        pass


def test_the_library_is_told_what_the_twin_is_told(operators):
    """One preparation for both: the twin's checks are about what an NPU would get."""
    call = call_of(torch.float32)
    y, _, saved = SSD.forward(call, save=True)
    SSD.backward(call, saved, y, None)
    selective = selective_call_of(torch.bfloat16)
    y, _, saved = SELECTIVE.forward(selective, save=True)
    SELECTIVE.backward(selective, saved, None, None)
    launch = prepare_forward(call, half_operands=False, checkpoint_every=ascendc_call.SAVED_EVERY)
    (name, arguments), *rest = operators
    assert name == "ssd_forward"
    assert arguments[-2:] == (list(launch.fields[:-2]), list(launch.fields[-2:]))
    assert [None if t is None else t.shape for t in arguments[:-2]] == [
        None if t is None else t.shape for t in launch.buffers()
    ]
    # Queries take numbers alone; a selective scan has no limits of the step.
    (parts, numbers), (backward, buffers), *selective = rest
    assert (parts, backward) == ("ssd_backward_parts", "ssd_backward")
    assert numbers == buffers[-2:]
    assert numbers[0] == [*arguments[-2], 1, 0, 0, 2 * 16, 16]
    names = ["selective_scan", "selective_scan_parts", "selective_scan_rows", "selective_scan_backward"]
    assert [name for name, _ in selective] == names
    assert [[type(a) for a in arguments].count(list) for _, arguments in selective] == [1, 1, 1, 1]
    assert all(len(arguments[-1]) == 28 for _, arguments in selective)


@pytest.fixture
def stand_in_backend(monkeypatch):
    """The backend `twin` on a machine that computes in PyTorch what the kernels' interface says."""
    launches = []

    def run(launch):
        launches.append(launch.kernel)
        stand_in.run(launch)

    kernels = backend._native(stand_in.machine(run=run))
    native = replace(backend.BACKENDS["twin"], kernels=kernels, missing=list)
    monkeypatch.setitem(backend.BACKENDS, "twin", native)
    return launches


NATIVE = [feature for feature in FEATURES if not refusals(feature, "ascendc")]


@pytest.mark.usefixtures("stand_in_backend")
@pytest.mark.parametrize("feature", NATIVE, ids=[f"{f.op}-{f.title}" for f in NATIVE])
def test_what_stands_around_the_kernels_composes_every_operator(feature):
    scan, tensors = feature.example()
    names = ("y",) if feature.op == "ssd_cross_scan" else ("y", "state")
    rows = compare(scan, tensors, names, "twin")
    assert {row.name for row in rows} == {*names, *(f"d{name}" for name in tensors)}
    assert_accurate(rows, feature.dtype)


def test_a_backward_starts_from_what_its_forward_saved(stand_in_backend):
    for feature in (f for f in NATIVE if f.title.startswith("float32")):
        scan, tensors = feature.example()
        outputs_and_gradients(lambda scan=scan, **t: scan(**t, backend="twin"), tensors, ("y", "state"))
    assert stand_in_backend == ["ssd_forward", "ssd_backward", "selective_scan", "selective_scan_backward"]


def test_a_backward_without_saved_states_runs_the_forward_again(stand_in_backend):
    call, selective = call_of(torch.float32), selective_call_of(torch.float32)
    nothing = torch.empty(0)
    machine = backend.BACKENDS["twin"].kernels
    have = machine.ssd_backward(call, nothing, call.x, None)
    want = machine.ssd_backward(call, machine.ssd_forward(call, True)[2], call.x, None)
    for value, exact in zip(have, want, strict=True):
        assert torch.equal(value, exact)
    have = machine.selective_backward(selective, nothing, selective.u, None)
    want = machine.selective_backward(
        selective, machine.selective_forward(selective, True)[2], selective.u, None
    )
    for value, exact in zip(have, want, strict=True):
        assert torch.equal(value, exact)
    assert stand_in_backend.count("ssd_forward") == stand_in_backend.count("selective_scan") == 2


@pytest.mark.parametrize("seqlen", [0, 1, 28, 29, 64, 65, 128, 129, 500])
def test_saved_states_have_the_shape_that_fake_kernels_give(seqlen, stand_in_backend):
    kernels = backend.BACKENDS["twin"].kernels
    call, selective = call_of(torch.float32, seqlen), selective_call_of(torch.float32, seqlen)
    saved = kernels.ssd_forward(call, True)[2]
    assert saved.shape == kernels.ssd_saved(call)
    assert saved.shape[1] == -(-seqlen // 128)
    saved = kernels.selective_forward(selective, True)[2]
    assert (0 if saved is None else saved.numel()) == kernels.selective_saved(selective)[0]
    assert kernels.selective_saved(selective) == (2 * 6 * 4 * max(0, -(-seqlen // 28) - 1),)


def test_without_gradients_nothing_is_saved(operators):
    assert SSD.forward(call_of(torch.float32), save=False)[2] is None
    assert operators[0][1][12] is None


def test_a_backward_runs_as_its_forward_did(monkeypatch):
    """Also outside the block of its forward, and on another thread, as on an NPU."""
    seen = []

    def run(launch):
        seen.append(twin.current_settings())
        stand_in.run(launch)

    kernels = backend._native(stand_in.machine(run=run))
    native = replace(backend.BACKENDS["twin"], kernels=kernels, missing=list)
    monkeypatch.setitem(backend.BACKENDS, "twin", native)
    tensors = {n: t.requires_grad_() for n, t in random_ssd((1, 5, 2, 4, 1, 4), torch.float32).items()}
    with twin.settings(chip="950PR", precision="half"):
        y, _ = ssd_scan(**tensors, chunk_size=4, backend="twin")
    thread = threading.Thread(target=y.sum().backward)
    thread.start()
    thread.join()
    assert tensors["x"].grad is not None
    assert seen == [twin.TwinSettings(chip="950PR", precision="half")] * 2
