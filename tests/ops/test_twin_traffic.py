"""What the kernels move between global memory and the cores, counted by the twin."""

import math
from functools import cache

import pytest
import torch

from ops_ascend import ascendc_call, ascendc_selective, twin
from ops_ascend.calls import SelectiveCall, SSDCall
from ops_ascend.errors import random_selective, random_ssd

# batch, seqlen, nheads, headdim, ngroups, dstate: the shape that the existing operator publishes times for.
BENCHMARK = (8, 4096, 256, 64, 64, 64)
GIB = 2**30
# Groups that fill either chip's cores twice or more: splitting one would read its B and C again.
UNITS = 64


def tensors_with_gate_and_state(sizes):
    tensors = random_ssd(sizes, torch.float32)
    return {name: t for name, t in tensors.items() if name not in ("D", "dt_bias")}


def lower_bound_bytes(sizes):
    """Every input read once, every output written once."""
    batch, seqlen, nheads, headdim, ngroups, dstate = sizes
    token = 3 * nheads * headdim + nheads + 2 * ngroups * dstate  # x, z, y; dt; B, C
    return 4 * (batch * seqlen * token + nheads + 2 * batch * nheads * headdim * dstate)


@cache
def report(chip, batch, seqlen):
    """One group of four heads with the sizes of the benchmark shape, for every batch entry."""
    sizes = (batch, seqlen, 4, 64, 1, 64)
    options = {"D": None, "dt_bias": None, "seq_idx": None, "chunk_size": 64, "dt_softplus": True}
    call = SSDCall(**tensors_with_gate_and_state(sizes), **options, dt_limit=(0.0, math.inf))
    with twin.settings(chip=chip):
        return twin.ssd_forward(call).report, lower_bound_bytes(sizes)


def outside_rings(counted):
    return counted["gm_bytes"]["compulsory"] + counted["gm_bytes"]["other"]


def test_every_byte_of_the_inputs_and_outputs_is_compulsory_once(chip):
    counted, bound = report(chip, UNITS, 128)
    assert counted["blocks_simulated"] == counted["blocks"]
    assert counted["gm_bytes"]["compulsory"] == bound
    assert outside_rings(counted) <= 1.05 * bound


def test_the_benchmark_shape_moves_little_more_than_its_lower_bound(chip):
    """Traffic is linear in chunks for one (batch, group): two lengths give the line, the shape its end."""
    units, chunks = UNITS, (2, 4)
    short, long = (outside_rings(report(chip, units, 64 * count)[0]) / units for count in chunks)
    per_chunk = (long - short) / (chunks[1] - chunks[0])
    batch, seqlen, _, _, ngroups, _ = BENCHMARK
    total = batch * ngroups * (short + per_chunk * (seqlen // 64 - chunks[0]))
    bound = lower_bound_bytes(BENCHMARK)
    assert bound / GIB == pytest.approx(7.09, abs=0.01)
    assert total <= 1.05 * bound


def test_at_most_four_hand_offs_per_group_and_chunk(chip):
    counted, _ = report(chip, UNITS, 256)
    group_chunks = UNITS * 4
    cube, first, second = (counted["hand_offs"][core] for core in ("AIC", "AIV0", "AIV1"))
    assert first == second
    assert cube + first <= 4 * group_chunks


def test_multiply_adds_are_those_of_the_algorithm(chip):
    """Per group and chunk C B^T; per head W x, C~ S and B~^T x: 64^3 each."""
    counted, _ = report(chip, UNITS, 256)
    assert counted["macs"] == UNITS * 4 * (1 + 3 * 4) * 64**3


def test_peaks_stay_inside_the_plan(chip):
    counted, _ = report(chip, UNITS, 128)
    sizes = (UNITS, 128, 4, 64, 1, 64)
    options = {"D": None, "dt_bias": None, "seq_idx": None, "chunk_size": 64, "dt_softplus": True}
    with twin.settings(chip=chip):
        call = SSDCall(**tensors_with_gate_and_state(sizes), **options, dt_limit=(0.0, math.inf))
        plan = twin.ssd_forward_tiling(call)
    assert counted["peak_bytes"]["UB"] <= plan["ub_bytes"]
    assert counted["peak_bytes"]["L1"] <= plan["l1_bytes"]


def test_times_are_labelled_as_modelled(chip):
    counted, _ = report(chip, UNITS, 128)
    timeline = counted["timeline"]
    assert timeline["label"] == "modelled"
    assert timeline["duration_us"] >= timeline["hbm_us"] > 0
    assert timeline["cores"] == {"910B3": 20, "950PR": 32}[chip]


def buffer_bytes(launch):
    """Every buffer of a launch once: inputs, outputs, and what the forward saves for the backward."""
    tensors = [tensor for tensor in launch.buffers() if tensor is not None]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


@cache
def backward_report(chip, batch, seqlen):
    """The backward of report(), with gradients of y and of the final states."""
    options = {"D": None, "dt_bias": None, "seq_idx": None, "chunk_size": 64, "dt_softplus": True}
    tensors = tensors_with_gate_and_state((batch, seqlen, 4, 64, 1, 64))
    call = SSDCall(**tensors, **options, dt_limit=(0.0, math.inf))
    with twin.settings(chip=chip):
        every = ascendc_call.SAVED_EVERY
        forward = ascendc_call.prepare_forward(call, half_operands=False, checkpoint_every=every)
        twin.run(forward)
        launch = ascendc_call.prepare_backward(
            call,
            *(forward.output(name) for name in ("checkpoints", "y", "final_states")),
            half_operands=False,
            plan=twin.plan,
        )
        return twin.run(launch).report, buffer_bytes(launch)


def test_the_backward_moves_every_byte_once(chip):
    counted, bound = backward_report(chip, UNITS, 128)
    assert counted["blocks_simulated"] == counted["blocks"]
    assert counted["gm_bytes"]["compulsory"] == bound
    assert outside_rings(counted) <= 1.05 * bound


def test_the_backward_of_the_benchmark_shape_moves_little_more_than_its_lower_bound(chip):
    """The bound has x, z, dy, dx, dz; B, C, dB, dC; dt, ddt; and a state for every other chunk."""
    units, chunks = UNITS, (2, 4)
    counted = [backward_report(chip, units, 64 * count) for count in chunks]
    batch, seqlen, _, _, ngroups, _ = BENCHMARK

    def whole(short, long):
        per_chunk = (long - short) / units / (chunks[1] - chunks[0])
        return batch * ngroups * (short / units + per_chunk * (seqlen // 64 - chunks[0]))

    moved, bound = whole(*(outside_rings(c) for c, _ in counted)), whole(*(b for _, b in counted))
    assert moved <= 1.01 * bound
    assert moved / GIB <= 13.2


def test_hand_offs_of_the_backward_are_per_group_and_chunk(chip):
    """Not per head: what a chunk adds is the same for one head and for four."""
    counted = [backward_report(chip, UNITS, 64 * chunks)[0]["hand_offs"] for chunks in (2, 4)]
    assert all(c["AIV0"] == c["AIV1"] for c in counted)
    per_chunk = sum(counted[1][core] - counted[0][core] for core in ("AIC", "AIV0")) / (2 * UNITS)
    assert per_chunk <= 6


#  batch dim seqlen: Mamba blocks of MambaVision-T and -B at 224 pixels, windows of 14 x 14 and 7 x 7
WINDOWS = [(32, 160, 196), (24, 320, 49), (16, 256, 196), (16, 512, 49)]


@cache
def selective_reports(chip, sizes):
    """(report, bound) of the forward alone, of the forward that saves, and of the backward."""
    batch, dim, seqlen = sizes
    tensors = random_selective((batch, dim, seqlen, 1, 8), torch.float32)
    call = SelectiveCall(**tensors, delta_softplus=True)
    with twin.settings(chip=chip):
        alone, forward = (ascendc_selective.prepare_forward(call, save=save) for save in (False, True))
        reports = [twin.run(launch).report for launch in (alone, forward)]
        backward = ascendc_selective.prepare_backward(
            call,
            *(forward.output(name) for name in ("checkpoints", "y", "last_state")),
            plan=twin.plan,
        )
        reports.append(twin.run(backward).report)
    return [(r, buffer_bytes(b)) for r, b in zip(reports, (alone, forward, backward), strict=True)]


@pytest.mark.parametrize("sizes", WINDOWS, ids=str)
def test_selective_scans_move_little_more_than_their_lower_bound(sizes, chip):
    for counted, bound in selective_reports(chip, sizes):
        assert counted["gm_bytes"]["compulsory"] == bound
        assert counted["gm_bytes"]["ring"] == 0
        assert outside_rings(counted) <= 1.1 * bound, counted["kernel"]


@pytest.mark.parametrize("sizes", WINDOWS, ids=str)
def test_selective_scans_fill_the_vector_cores(sizes, chip):
    cores = {"910B3": 40, "950PR": 64}[chip]
    for counted, _ in selective_reports(chip, sizes):
        timeline = counted["timeline"]
        assert timeline["cores"] == cores
        assert counted["blocks"] >= 0.75 * cores
        # Half of the time, at worst, goes to waiting for the core with most tasks.
        assert timeline["block_us"]["mean"] >= 0.5 * timeline["cores_us"]
