"""The drop-in wrappers: mamba_ssm's names, order and return rules."""

import inspect

import pytest
import torch

from ops_ascend import mamba_chunk_scan_combined, selective_scan, selective_scan_fn, ssd_scan
from ops_ascend.errors import random_selective, random_ssd


def arguments(function):
    bare = [
        p.replace(annotation=inspect.Parameter.empty) for p in inspect.signature(function).parameters.values()
    ]
    return ", ".join(str(parameter) for parameter in bare)


def test_signatures_are_those_of_mamba_ssm():
    assert arguments(mamba_chunk_scan_combined) == (
        "x, dt, A, B, C, chunk_size, D=None, z=None, dt_bias=None, initial_states=None, seq_idx=None, "
        "cu_seqlens=None, dt_softplus=False, dt_limit=(0.0, inf), return_final_states=False, "
        "return_varlen_states=False"
    )
    assert arguments(selective_scan_fn) == (
        "u, delta, A, B, C, D=None, z=None, delta_bias=None, delta_softplus=False, return_last_state=False"
    )


def test_chunk_scan_returns_a_tensor_or_a_tuple():
    t = random_ssd((2, 20, 2, 4, 1, 3), torch.float32)
    y, final_states = ssd_scan(**t, chunk_size=8, dt_softplus=True)
    first = (t["x"], t["dt"], t["A"], t["B"], t["C"], 8)
    rest = {name: t[name] for name in ("D", "z", "dt_bias", "initial_states")}
    assert torch.equal(mamba_chunk_scan_combined(*first, **rest, dt_softplus=True), y)
    both = mamba_chunk_scan_combined(*first, **rest, dt_softplus=True, return_final_states=True)
    assert torch.equal(both[0], y)
    assert torch.equal(both[1], final_states)


def test_varlen_states_are_those_of_each_sequence_alone():
    t = random_ssd((1, 30, 2, 4, 1, 3), torch.float32)
    del t["initial_states"]
    seq_idx = torch.tensor([[0] * 7 + [1] * 13 + [2] * 10])
    y, final_states, varlen = mamba_chunk_scan_combined(
        **t, chunk_size=8, seq_idx=seq_idx, cu_seqlens=torch.tensor([0, 7, 20, 30]), dt_softplus=True,
        return_final_states=True, return_varlen_states=True,
    )  # fmt: skip
    assert y.shape == t["x"].shape
    assert varlen.shape == (3, 2, 4, 3)
    torch.testing.assert_close(varlen[-1:], final_states)
    alone = {n: v[:, 7:20] if n in ("x", "dt", "B", "C", "z") else v for n, v in t.items()}
    torch.testing.assert_close(varlen[1:2], ssd_scan(**alone, chunk_size=8, dt_softplus=True)[1])


def test_varlen_states_need_their_bounds():
    t = random_ssd((2, 30, 2, 4, 1, 3), torch.float32)
    with pytest.raises(ValueError, match="return_varlen_states needs cu_seqlens and a batch of one"):
        mamba_chunk_scan_combined(**t, chunk_size=8, return_varlen_states=True)


def test_selective_scan_returns_a_tensor_or_a_tuple():
    t = random_selective((2, 6, 20, 2, 3), torch.float32)
    y, last_state = selective_scan(**t, delta_softplus=True)
    assert torch.equal(selective_scan_fn(**t, delta_softplus=True), y)
    both = (
        selective_scan_fn(*t.values(), True, True)
        if list(t) == ["u"]
        else selective_scan_fn(**t, delta_softplus=True, return_last_state=True)
    )
    assert torch.equal(both[0], y)
    assert torch.equal(both[1], last_state)


@pytest.mark.parametrize("constant", ["B", "C", "BC"])
def test_constant_matrices_for_each_channel(constant):
    t = random_selective((2, 6, 20, 2, 3), torch.float64)
    leaves = {n: v.requires_grad_() for n, v in t.items()}
    for name in constant:
        leaves[name] = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    y = selective_scan_fn(**leaves, delta_softplus=True)
    # The same by hand: a group for each channel.
    by_hand = dict(leaves)
    for name in ("B", "C"):
        value = leaves[name]
        by_hand[name] = (
            value[None, :, :, None].expand(2, 6, 3, 20)
            if value.dim() == 2
            else value.repeat_interleave(3, dim=1)
        )
    want, _ = selective_scan(**by_hand, delta_softplus=True, backend="reference")
    torch.testing.assert_close(y, want)
    got = torch.autograd.grad(y.pow(2).sum(), list(leaves.values()))
    for have, expected in zip(
        got, torch.autograd.grad(want.pow(2).sum(), list(leaves.values())), strict=True
    ):
        torch.testing.assert_close(have, expected)


def test_complex_parameters_are_refused():
    t = random_selective((1, 2, 4, 1, 2), torch.float32)
    with pytest.raises(NotImplementedError, match=r"selective_scan_fn: A \(torch.complex64\) must be real"):
        selective_scan_fn(**(t | {"A": t["A"].to(torch.complex64)}))
