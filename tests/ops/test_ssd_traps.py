"""Inputs that break common implementations of the Mamba-2 scan, each the smallest that does."""

from functools import partial

import pytest
import torch

from ops_ascend import ssd_scan
from ops_ascend.errors import compare, outputs_and_gradients
from tests.ops.policy import assert_accurate

OUTPUTS = ("y", "final_states")


def inputs(seqlen, dt, A, bias=0.0, *, batch=1, nheads=2, headdim=8, dstate=8, dtype=torch.float32):
    generator = torch.Generator().manual_seed(2)

    def normal(*shape):
        return torch.randn(*shape, generator=generator).to(dtype)

    return {
        "x": normal(batch, seqlen, nheads, headdim),
        "dt": torch.as_tensor(dt).float().reshape(1, -1, 1).expand(batch, seqlen, nheads).contiguous(),
        "A": torch.tensor(A).float().expand(nheads).contiguous(),
        "B": normal(batch, seqlen, 1, dstate),
        "C": normal(batch, seqlen, 1, dstate),
        "dt_bias": torch.full((nheads,), bias),
    }


def alternating(first, second, seqlen):
    return torch.tensor([first, second]).repeat(seqlen // 2)


#  id                          seqlen chunk  raw dt                         A               dt_bias
TRAPS = [
    ("t1_usual_strong_decay",      64,  64,  0.0,                           -16.0,          -2.3),
    ("t2_huge_steps",              64,  64,  1000.0,                        -1.0,           0.0),
    ("t3_extreme_decays",          64,  64,  0.0,                           [-1e4, -1e-8],  0.0),
    ("t5_ragged_tail",             50,  16,  0.0,                           -1.0,           -3.0),
    ("t6_one_token",               1,   16,  0.0,                           -1.0,           -3.0),
    ("t10_no_decay",               64,  64,  0.0,                           0.0,            0.0),
    ("t11_growth",                 64,  64,  0.0,                           0.5,            0.0),
    ("t13_chunk_beyond_the_end",   49,  256, 0.0,                           -16.0,          0.0),
    ("t16_small_beside_large",     512, 256, alternating(100.0, -4.0, 512), -1.0,           0.0),
    ("t17_decay_of_e_minus_21",    64,  64,  1.0,                           -16.0,          0.0),
    ("t18_tiny_steps",             64,  64,  -6.9,                          -1.0,           0.0),
]  # fmt: skip


@pytest.mark.parametrize(
    ("seqlen", "chunk_size", "dt", "A", "bias"), [t[1:] for t in TRAPS], ids=[t[0] for t in TRAPS]
)
def test_outputs_and_every_gradient_are_accurate(seqlen, chunk_size, dt, A, bias, backend):
    scan = partial(ssd_scan, chunk_size=chunk_size, dt_softplus=True)
    rows = compare(scan, inputs(seqlen, dt, A, bias), OUTPUTS, backend)
    assert_accurate(rows, torch.float32)


def test_t4_a_step_of_zero_has_no_gradient(backend):
    tensors = inputs(16, -200.0, -1.0)
    scan = partial(ssd_scan, chunk_size=16, dt_softplus=True, backend=backend)
    run = outputs_and_gradients(scan, {n: t.float() for n, t in tensors.items()}, OUTPUTS)
    for name, value in run.items():
        assert value.isfinite().all(), name
    # The exact slope is e^-200, below the smallest float32.
    assert torch.count_nonzero(run["ddt"].float()) == 0 or run["ddt"].abs().max() < 1e-80


def test_t4_no_gradient_through_an_active_limit(backend):
    tensors = inputs(16, torch.linspace(-8, 2, 16), -1.0)
    limit = (0.01, 0.05)
    scan = partial(ssd_scan, chunk_size=16, dt_softplus=True, dt_limit=limit, backend=backend)
    ddt = outputs_and_gradients(scan, tensors, OUTPUTS)["ddt"]
    step = torch.nn.functional.softplus(tensors["dt"])
    outside = (step < limit[0]) | (step > limit[1])
    assert outside.any()
    assert not outside.all()
    assert (ddt[outside] == 0).all()
    assert (ddt[~outside] != 0).all()


@pytest.mark.parametrize(("headdim", "dstate", "seqlen"), [(5, 7, 33), (1, 1, 33), (3, 9, 2)])
def test_t14_odd_sizes(headdim, dstate, seqlen, backend):
    tensors = inputs(seqlen, 0.0, -1.0, headdim=headdim, dstate=dstate)
    scan = partial(ssd_scan, chunk_size=16, dt_softplus=True)
    assert_accurate(compare(scan, tensors, OUTPUTS, backend), torch.float32)


@pytest.mark.parametrize("seqlen", [64, 256])
def test_t15_a_vanishing_gradient_stays_vanishing(seqlen, backend):
    """Steps of 100 erase the state, so A has no influence; what is left would be rounding of the rest."""
    tensors = inputs(seqlen, alternating(100.0, -100.0, seqlen), -1.0)
    scan = partial(ssd_scan, chunk_size=256, dt_softplus=True)
    rows = {row.name: row for row in compare(scan, tensors, OUTPUTS, backend)}
    assert rows.pop("dA").max_abs < 1e-10
    assert_accurate(list(rows.values()), torch.float32)


def as_views(tensors):
    """The same values behind other strides: permuted, split from a wider tensor, expanded."""
    wide = torch.cat([tensors["B"], tensors["C"]], dim=-1)
    B, C = wide.split(tensors["B"].shape[-1], dim=-1)
    return tensors | {
        "x": tensors["x"].permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2),
        "dt": tensors["dt"].mT.contiguous().mT,
        "B": B,
        "C": C,
        "A": tensors["A"][:1].expand_as(tensors["A"]),
    }


def test_t8_strides_change_nothing(backend):
    tensors = inputs(50, 0.0, -1.0, -2.0, batch=2)
    views = as_views(tensors)
    assert not views["x"].is_contiguous()
    scan = partial(ssd_scan, chunk_size=16, dt_softplus=True, backend=backend)
    have, want = (outputs_and_gradients(scan, t, OUTPUTS) for t in (views, tensors))
    for name, value in have.items():
        torch.testing.assert_close(value, want[name], rtol=1e-5, atol=1e-5, msg=name)


def test_t8_expanded_groups_and_gradients(backend):
    """B and C expanded over groups and a gradient expanded from a scalar have zero strides."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(2, 20, 4, 8, generator=generator)
    dt = torch.randn(2, 20, 4, generator=generator)
    shared = torch.randn(2, 20, 1, 8, generator=generator)

    def run(make):
        leaf = shared.clone().requires_grad_()
        groups = make(leaf.expand(2, 20, 2, 8))
        y, _ = ssd_scan(
            x, dt, -torch.ones(4), groups, groups, chunk_size=8, dt_softplus=True, backend=backend
        )
        y.sum().backward()
        return y, leaf.grad

    for have, want in zip(run(lambda t: t), run(torch.Tensor.contiguous), strict=True):
        torch.testing.assert_close(have, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["x", "dt", "B", "C"])
def test_t12_nan_in_gives_nan_out_wherever_the_recurrence_does(name, backend):
    tensors = inputs(40, 0.0, -1.0)
    tensors[name][0, 10] = torch.nan
    exact, exact_states = ssd_scan(**tensors, chunk_size=16, dt_softplus=True, backend="reference")
    y, final_states = ssd_scan(**tensors, chunk_size=16, dt_softplus=True, backend=backend)
    assert exact.isnan().any()
    assert y[exact.isnan()].isnan().all()
    assert final_states[exact_states.isnan()].isnan().all()


def test_t19_denormal_inputs_are_not_flushed_into_anything_else(backend):
    tensors = inputs(64, 0.0, -1.0, -3.0)
    tensors["x"] *= 1e-39
    scan = partial(ssd_scan, chunk_size=64, dt_softplus=True, backend=backend)
    y, _ = scan(**tensors)
    exact, _ = ssd_scan(
        **{n: t.double() for n, t in tensors.items()}, chunk_size=64, dt_softplus=True, backend="reference"
    )
    # Denormals carry few digits: a step of the smallest of them is what can be asked for. They are zero to
    # the CPU kernels, which would take a hundred times as long otherwise.
    few = torch.finfo(torch.float32).tiny if backend == "cpu" else 64 * 2.0**-149
    assert (y.double() - exact).abs().max() <= few + 1e-5 * exact.abs().max()
