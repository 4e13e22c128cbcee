"""Parity with figures of independent implementations (tests/golden/README.md)."""

import gzip
import json
import zlib
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from ops_ascend import selective_scan, ssd_scan

GOLDEN = Path(__file__).parents[1] / "golden" / "ops_golden.json.gz"
SSD = (
    "plain", "full", "tail37", "single_token", "limit", "d_no_z", "z_no_d", "seq_idx", "seq_idx_init",
    "odd_dims", "strong_decay",
)  # fmt: skip
SELECTIVE = ("plain", "mambavision", "full", "grouped", "one_token", "strong_decay")
TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-5}


@cache
def golden():
    return json.loads(gzip.decompress(GOLDEN.read_bytes()))


def test_every_golden_case_is_run():
    assert set(golden()["ssd"]) == set(SSD)
    assert set(golden()["selective_scan"]) == set(SELECTIVE)


def draw(case, name, shape):
    seed = zlib.crc32(f"{case}/{name}".encode())
    return np.random.RandomState(seed).standard_normal(shape)


def ssd_inputs(case, entry):
    shape, flags = entry["shape"], entry["flags"]
    b, n, h, p, g, s = (shape[k] for k in ("batch", "seqlen", "nheads", "headdim", "ngroups", "dstate"))
    shapes = {"x": (b, n, h, p), "dt": (b, n, h), "A": (h,), "B": (b, n, g, s), "C": (b, n, g, s)}
    optional = {
        "D1": ("D", (h,)), "D2": ("D", (h, p)), "z": ("z", (b, n, h, p)), "bias": ("dt_bias", (h,)),
        "init": ("initial_states", (b, h, p, s)),
    }  # fmt: skip
    shapes |= dict(optional[flag] for flag in flags if flag in optional)
    values = {name: draw(case, name, size) for name, size in shapes.items()}
    steps_and_decays(values, "dt", entry["dt_softplus"], "bigdt" in flags)
    # Five times the decay in this operator's table only.
    values["A"] *= 5 if "bigdt" in flags else 1
    return values


def selective_inputs(case, entry):
    shape, flags = entry["shape"], entry["flags"]
    b, d, n, s, g = (shape[k] for k in ("batch", "dim", "seqlen", "dstate", "ngroups"))
    grouped = (b, g, s, n) if shape["grouped"] else (b, s, n)
    shapes = {"u": (b, d, n), "delta": (b, d, n), "A": (d, s), "B": grouped, "C": grouped}
    optional = {"D": ("D", (d,)), "z": ("z", (b, d, n)), "bias": ("delta_bias", (d,))}
    shapes |= dict(optional[flag] for flag in flags if flag in optional)
    values = {name: draw(case, name, size) for name, size in shapes.items()}
    steps_and_decays(values, "delta", entry["delta_softplus"], "bigdt" in flags)
    return values


def steps_and_decays(values, step, softplus, big):
    if big:
        values[step] = values[step] * 20 + 20
    elif not softplus:
        values[step] = np.abs(values[step]) * 0.5
    values["A"] = -(np.abs(values["A"]) + 0.2)


def assert_parity(case, entry, scan, values, state_name, dtype):
    tensors = {name: torch.tensor(v, dtype=dtype, requires_grad=True) for name, v in values.items()}
    y, state = scan(**tensors)
    loss = (y * torch.tensor(draw(case, "wy", y.shape), dtype=dtype)).sum()
    loss = loss + (state * torch.tensor(draw(case, "wS", state.shape), dtype=dtype)).sum()
    loss.backward()
    assert set(entry["grads"]) == set(tensors)
    measured = {"out": y, state_name: state} | {f"d{n}": t.grad for n, t in tensors.items()}
    expected = {"out": entry["out"], state_name: entry[state_name]}
    expected |= {f"d{n}": g for n, g in entry["grads"].items()}
    for name, figures in expected.items():
        want = torch.tensor(figures, dtype=torch.float64)
        have = measured[name].detach().double().flatten()
        error = (have - want).abs().max() / want.abs().max().clamp_min(1)
        assert error <= TOLERANCES[dtype], f"{name}: {error:.1e}"


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("case", SSD)
def test_ssd_scan_matches_golden_figures(case, dtype, backend):
    entry = golden()["ssd"][case]
    limit = tuple(entry["dt_limit"] or (0.0, float("inf")))
    seq_idx = None if entry["seq_idx"] is None else torch.tensor(entry["seq_idx"])

    def scan(**tensors):
        return ssd_scan(
            **tensors,
            chunk_size=entry["chunk_size"],
            dt_softplus=entry["dt_softplus"],
            dt_limit=limit,
            seq_idx=seq_idx,
            backend=backend,
        )

    assert_parity(case, entry, scan, ssd_inputs(case, entry), "final_states", dtype)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("case", SELECTIVE)
def test_selective_scan_matches_golden_figures(case, dtype, backend):
    entry = golden()["selective_scan"][case]

    def scan(**tensors):
        return selective_scan(**tensors, delta_softplus=entry["delta_softplus"], backend=backend)

    assert_parity(case, entry, scan, selective_inputs(case, entry), "last_state", dtype)
