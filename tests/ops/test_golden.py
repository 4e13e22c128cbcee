"""Parity with figures of independent implementations (tests/golden/README.md)."""

import pytest
import torch

from ops_ascend import selective_scan, ssd_scan
from tests.ops.golden import SELECTIVE, SSD, draw, golden, selective_inputs, ssd_inputs

TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-5}


def test_every_golden_case_is_run():
    assert set(golden()["ssd"]) == set(SSD)
    assert set(golden()["selective_scan"]) == set(SELECTIVE)


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
