"""What the SSD forward moves between global memory and the cores, counted by the twin."""

import math
from functools import cache

import pytest
import torch

from ops_ascend import twin
from ops_ascend.calls import SSDCall
from ops_ascend.errors import random_ssd

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
