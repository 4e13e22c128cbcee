"""The host tiling: a pure function from sizes and chip to tasks and buffers, without running anything."""

import math
from dataclasses import replace

import pytest
import torch

from ops_ascend import twin
from ops_ascend.ascendc_call import KERNEL_CHUNK, prepare_backward, prepare_forward, saved_shape
from ops_ascend.ascendc_launch import LARGEST_SIZE
from ops_ascend.calls import CrossCall, SSDCall

CORES = {"910B3": 20, "950PR": 32}
# What the twin lets a kernel use: csrc/twin/chips.cpp.
UB_BYTES = {"910B3": 192 * 1024 - 256, "950PR": 248 * 1024}
L1_BYTES = 512 * 1024
#          batch seqlen nheads headdim ngroups dstate
SHAPES = [
    (8, 4096, 256, 64, 64, 64),
    (4, 3136, 3, 64, 1, 128),
    (4, 784, 6, 64, 2, 128),
    (4, 196, 12, 64, 4, 128),
    (4, 49, 24, 64, 8, 128),
    (1, 1, 1, 1, 1, 1),
    (1, 100_000, 1, 256, 1, 256),
    (70_000, 32, 6, 4, 1, 4),
    (1, 64, 65_536, 1, 1, 1),
    (2, 500, 40, 200, 5, 136),
]


def meta_call(batch, seqlen, nheads, headdim, ngroups, dstate, dtype=torch.float32):
    """A call without data: the tiling looks at sizes and strides."""

    def meta(*shape, kind=torch.float32):
        return torch.empty(*shape, dtype=kind, device="meta")

    tokens = (batch, seqlen)
    return SSDCall(
        x=meta(*tokens, nheads, headdim, kind=dtype),
        dt=meta(*tokens, nheads),
        A=meta(nheads),
        B=meta(*tokens, ngroups, dstate, kind=dtype),
        C=meta(*tokens, ngroups, dstate, kind=dtype),
        D=meta(nheads, headdim),
        z=meta(*tokens, nheads, headdim, kind=dtype),
        dt_bias=meta(nheads),
        initial_states=None,
        seq_idx=None,
        chunk_size=64,
        dt_softplus=True,
        dt_limit=(0.0, math.inf),
    )


def tiling(call, chip, **settings):
    with twin.settings(chip=chip, **settings):
        return twin.ssd_forward_tiling(call)


@pytest.mark.parametrize("precision", twin.PRECISIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_npu_7_every_buffer_fits_the_chip(shape, dtype, precision, chip):
    plan = tiling(meta_call(*shape, dtype=dtype), chip, precision=precision)
    assert 0 < plan["ub_bytes"] <= UB_BYTES[chip]
    assert 0 < plan["l1_bytes"] <= L1_BYTES
    assert plan["workspace_bytes"] >= plan["blocks"] * plan["ring_bytes"] > 0


def test_npu_7_every_head_and_state_size_fits_the_chip(chip):
    for headdim in (1, 8, 16, 24, 100, 128, 192, 256):
        for dstate in (1, 8, 16, 24, 100, 128, 192, 256):
            for heads_per_group in (1, 2, 8, 9):
                call = meta_call(2, 300, 2 * heads_per_group, headdim, 2, dstate)
                plan = tiling(call, chip)
                assert plan["ub_bytes"] <= UB_BYTES[chip]
                assert plan["l1_bytes"] <= L1_BYTES
                assert plan["parts"] * plan["heads_per_task"] >= heads_per_group


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_task_has_a_core_and_few_cores_are_idle(shape, chip):
    batch, seqlen, nheads, _, ngroups, _ = shape
    plan = tiling(meta_call(*shape), chip)
    assert plan["nchunks"] == -(-seqlen // KERNEL_CHUNK)
    assert plan["tasks"] == batch * ngroups * plan["parts"] * plan["segments"]
    assert plan["blocks"] == min(plan["tasks"], CORES[chip])
    heads = nheads // ngroups
    assert (plan["parts"] - 1) * plan["heads_per_task"] < heads <= plan["parts"] * plan["heads_per_task"]
    # Heads and stretches of at least two chunks can be tasks of their own.
    if batch * nheads * max(1, plan["nchunks"] // 2) >= CORES[chip]:
        assert plan["blocks"] >= 0.75 * CORES[chip]


def test_the_benchmark_shape_splits_no_group(chip):
    """B and C of a group are read once, whatever the number of its heads."""
    plan = tiling(meta_call(*SHAPES[0]), chip)
    assert (plan["parts"], plan["heads_per_task"], plan["segments"]) == (1, 4, 1)
    assert plan["state_on_chip"] == 1


def test_the_plan_depends_on_sizes_alone(chip):
    """Strides change no decision, and the same call gives the same plan."""
    call = meta_call(2, 500, 40, 200, 5, 136)
    turned = replace(call, x=call.x.transpose(1, 2).contiguous().transpose(1, 2))
    assert not turned.x.is_contiguous()
    assert tiling(call, chip) == tiling(turned, chip) == tiling(call, chip)


@pytest.mark.parametrize("every", [1, 2, 8, 100])
def test_checkpoints_are_counted_as_they_are_allocated(every, chip):
    call = meta_call(2, 500, 4, 16, 2, 16)
    plan = tiling(call, chip, checkpoint_every=every)
    launch = prepare_forward(call, half_operands=False, checkpoint_every=every)
    assert launch.output("checkpoints").shape == (2, plan["ncheckpoints"], 4, 16, 16)


def backward_tiling(call, chip, **settings):
    """Of a backward that has both gradients; D per head, as the kernel takes it."""
    if call.D is not None:
        call = replace(call, D=call.D[:, 0])
    plans = []

    def plan(kernel, sums, fields):
        plans.append(twin.tiling(kernel, fields))
        return plans[0][sums]

    checkpoints = torch.empty(saved_shape(call), device="meta")
    with twin.settings(chip=chip, **settings):
        states = torch.empty(call.states_shape(), device="meta")
        half = twin.half_operands()
        launch = prepare_backward(call, checkpoints, call.x, states, half_operands=half, plan=plan)
    return plans[0], launch


@pytest.mark.parametrize("precision", twin.PRECISIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_npu_7_every_buffer_of_the_backward_fits_the_chip(shape, dtype, precision, chip):
    plan, launch = backward_tiling(meta_call(*shape, dtype=dtype), chip, precision=precision)
    assert 0 < plan["ub_bytes"] <= UB_BYTES[chip]
    assert 0 < plan["l1_bytes"] <= L1_BYTES
    assert plan["workspace_bytes"] >= plan["blocks"] * plan["ring_bytes"] > 0
    assert plan["blocks"] == min(plan["tasks"], CORES[chip])
    # What is saved is what the kernel expects; parts are summed in float32 by the caller.
    assert launch.inputs["checkpoints"].shape[1] == plan["ncheckpoints"]
    grouped = launch.output("dB")
    assert grouped.dim() == (4 if plan["parts"] == 1 else 5)
    assert grouped.dtype == (dtype if plan["parts"] == 1 else torch.float32)


def test_npu_7_every_head_and_state_size_of_the_backward_fits_the_chip(chip):
    for headdim in (1, 8, 24, 100, 128, 192, 256):
        for dstate in (1, 8, 24, 100, 128, 192, 256):
            for heads_per_group in (1, 2, 8, 9):
                call = meta_call(2, 300, 2 * heads_per_group, headdim, 2, dstate)
                plan, _ = backward_tiling(call, chip)
                assert plan["ub_bytes"] <= UB_BYTES[chip]
                assert plan["l1_bytes"] <= L1_BYTES
                assert plan["parts"] * plan["heads_per_task"] >= heads_per_group


def test_the_backward_of_the_benchmark_shape_splits_no_group(chip):
    plan, _ = backward_tiling(meta_call(*SHAPES[0]), chip)
    assert plan["parts"] == 1


REFUSED = [
    (meta_call(1, 64, 65_537, 1, 1, 1), {}, "nheads (65537) must be at most 65536"),
    (meta_call(1, 64, 2, LARGEST_SIZE + 1, 1, 1), {}, "headdim (257) must be 1 to 256"),
    (meta_call(1, 64, 2, 1, 1, LARGEST_SIZE + 1), {}, "dstate (257) must be 1 to 256"),
]


@pytest.mark.parametrize(("call", "settings", "message"), REFUSED, ids=[row[2] for row in REFUSED])
def test_a_call_beyond_the_kernel_is_refused_in_one_sentence(call, settings, message, chip):
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - the whole message is compared
        tiling(call, chip, **settings)
    assert str(raised.value) == f"ssd_forward: {message}"


def test_checkpoints_of_several_directions_are_refused(chip):
    plain = meta_call(1, 12, 2, 4, 1, 4)
    call = CrossCall(**vars(plain), height=3, width=4, directions=4)
    with pytest.raises(ValueError, match="must be 1 with initial states, resets or checkpoints"):
        tiling(call, chip, checkpoint_every=1)
