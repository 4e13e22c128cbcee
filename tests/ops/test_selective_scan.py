from functools import partial

import pytest
import torch
import torch.nn.functional as F

from ops_ascend import selective_scan, ssd_scan
from ops_ascend.errors import compare, outputs_and_gradients, random_selective, tensor_error
from tests.ops.cases import SELECTIVE_CASES, named
from tests.ops.policy import assert_accurate

OUTPUTS = ("y", "last_state")
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
INPUTS = ("u", "delta", "A", "B", "C", "D", "z", "delta_bias")
scan = partial(selective_scan, delta_softplus=True)


@named(SELECTIVE_CASES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_outputs_and_gradients_match_the_recurrence(case, dtype, backend):
    tensors = random_selective(case.sizes, dtype)
    assert_accurate(compare(scan, tensors, OUTPUTS, backend), dtype, backend)


@named(SELECTIVE_CASES)
def test_output_dtypes_and_shapes(case, backend):
    tensors = random_selective(case.sizes, torch.bfloat16)
    y, last_state = scan(**tensors, backend=backend)
    batch, dim, _, _, dstate = case.sizes
    assert y.dtype == torch.bfloat16
    assert y.shape == tensors["u"].shape
    assert last_state.dtype == torch.float32
    assert last_state.shape == (batch, dim, dstate)


def test_is_a_mamba_2_scan_with_one_head_per_channel_and_state(backend):
    """P = N = 1 and one group per head make the two recurrences the same."""
    tensors = random_selective((2, 3, 21, 1, 4), torch.float64)
    for name in ("D", "z", "delta_bias"):
        del tensors[name]
    y, last_state = scan(**tensors, backend=backend)
    # Heads in the order (channel, state).
    per_head = {
        "x": tensors["u"].mT.repeat_interleave(4, dim=2).unsqueeze(-1),
        "dt": tensors["delta"].mT.repeat_interleave(4, dim=2),
        "A": tensors["A"].flatten(),
        "B": tensors["B"][:, 0].mT.repeat(1, 1, 3).unsqueeze(-1),
        "C": tensors["C"][:, 0].mT.repeat(1, 1, 3).unsqueeze(-1),
    }
    heads, states = ssd_scan(**per_head, chunk_size=8, dt_softplus=True, backend=backend)
    torch.testing.assert_close(heads.squeeze(-1).unflatten(2, (3, 4)).sum(-1).mT, y)
    torch.testing.assert_close(states.view(2, 3, 4), last_state)


def test_op_2_reads_nothing_behind_the_tensor(backend):
    tensors = random_selective((2, 4, 21, 2, 3), torch.float32)
    sliced = dict(tensors)
    for name in ("u", "delta", "B", "C", "z"):
        buffer = torch.full((*tensors[name].shape[:-1], 64), torch.nan)
        buffer[..., :21] = tensors[name]
        sliced[name] = buffer[..., :21]
    run = partial(outputs_and_gradients, partial(scan, backend=backend), names=OUTPUTS)
    have, want = run(sliced), run(tensors)
    for name, value in have.items():
        assert tensor_error(name, value, want[name]).relative_rms <= 1e-6, name


@pytest.mark.parametrize("name", INPUTS)
def test_op_4_gradcheck_of_each_input_alone(name, backend):
    tensors = random_selective((1, 4, 19, 2, 2), torch.float64)

    def of_one(value):
        return scan(**(tensors | {name: value}), backend=backend)

    assert torch.autograd.gradcheck(of_one, (tensors[name].requires_grad_(),), nondet_tol=0.0)


@pytest.mark.parametrize("given", range(8))
def test_op_8_optional_arguments(given, backend):
    tensors = random_selective((2, 4, 20, 1, 3), torch.float64)
    for bit, name in enumerate(("D", "z", "delta_bias")):
        if not given >> bit & 1:
            del tensors[name]
    rows = compare(scan, tensors, OUTPUTS, backend)
    assert {row.name for row in rows} == {*OUTPUTS, *(f"d{name}" for name in tensors)}
    assert_accurate(rows, torch.float64)
    assert_accurate(compare(lambda **t: scan(**t)[0], tensors, ("y",), backend), torch.float64)


def test_op_9_softplus_is_exact_at_both_ends(backend):
    raw = torch.tensor([-30.0, -1.0, 0.0, 19.9, 20.1, 25.0, 100.0])
    delta = raw.view(1, 1, 7).clone().requires_grad_()
    one = torch.ones(1, 1, 7)
    y, _ = scan(one, delta, torch.zeros(1, 1), one, one, backend=backend)
    torch.testing.assert_close(
        y.flatten().diff(prepend=torch.zeros(1)), F.softplus(raw), rtol=1e-6, atol=2e-5
    )
    y[..., -1].sum().backward()
    torch.testing.assert_close(delta.grad.flatten(), torch.sigmoid(raw), rtol=1e-6, atol=1e-12)
    assert delta.grad[..., -1].item() == 1.0


@pytest.mark.parametrize("dim", [1, 3, 5, 12])
def test_op_10_s8_views_of_one_channels_last_projection(dim, backend):
    projected = torch.randn(2, 21, 3 * dim + 2 * 4, generator=torch.Generator().manual_seed(1))
    A = -torch.arange(1.0, 5).repeat(dim, 1)

    def run(make):
        leaf = projected.clone().requires_grad_()
        names = ("u", "delta", "z", "B", "C")
        parts = {n: make(t.mT) for n, t in zip(names, leaf.split([dim, dim, dim, 4, 4], -1), strict=True)}
        y, last_state = scan(A=A, **parts, backend=backend)
        (y.pow(2).sum() + last_state.pow(2).sum()).backward()
        return y, last_state, leaf.grad

    for have, want in zip(run(lambda t: t), run(torch.Tensor.contiguous), strict=True):
        torch.testing.assert_close(have, want, rtol=1e-5, atol=1e-6)


def test_op_17_float16_autocast_neither_overflows_nor_loses_the_scan(backend):
    generator = torch.Generator().manual_seed(4)

    def uniform(low, high, *shape):
        return low + (high - low) * torch.rand(*shape, generator=generator)

    tensors = {
        "u": uniform(-51, 51, 1, 8, 196),
        "delta": uniform(-11, 11, 1, 8, 196),
        "A": -torch.arange(1.0, 17).repeat(8, 1),
        "B": uniform(-30, 51, 1, 16, 196),
        "C": uniform(-30, 51, 1, 16, 196),
    }
    halves = {name: t if name == "A" else t.half() for name, t in tensors.items()}
    with torch.autocast("cpu", torch.float16):
        y, _ = scan(**halves, backend=backend)
    exact, _ = scan(**{name: t.double() for name, t in halves.items()}, backend="reference")
    assert exact.abs().max() > 65504
    assert y.dtype == torch.float32
    assert tensor_error("y", y, exact).relative_rms <= 1e-2


def test_op_18_vanishing_decay_over_a_long_sequence(backend):
    one = torch.ones(1, 1, 4096)
    A = -torch.exp(torch.tensor([[-12.0]]))
    y, _ = selective_scan(one, one, A, one, one, backend=backend)
    exact = (1 - torch.exp(A.double() * 4096)) / (1 - torch.exp(A.double()))
    assert y[..., -1].item() == pytest.approx(exact.item(), rel=1e-5)


def test_op_20_two_runs_are_equal_bit_for_bit(backend):
    torch.use_deterministic_algorithms(True)
    tensors = random_selective((2, 6, 40, 2, 4), torch.float32)
    runs = [outputs_and_gradients(partial(scan, backend=backend), tensors, OUTPUTS) for _ in range(2)]
    for name, value in runs[0].items():
        assert torch.equal(value, runs[1][name]), name


@pytest.mark.parametrize(("batch", "seqlen"), [(0, 5), (2, 0), (0, 0)])
def test_op_21_s5_empty_batch_or_sequence(batch, seqlen, backend):
    tensors = random_selective((batch, 4, seqlen, 2, 3), torch.float32)
    leaves = {name: t.requires_grad_() for name, t in tensors.items()}
    y, last_state = scan(**leaves, backend=backend)
    assert y.shape == (batch, 4, seqlen)
    assert torch.equal(last_state, torch.zeros(batch, 4, 3))
    (y.sum() + last_state.sum()).backward()
    for name, leaf in leaves.items():
        assert torch.equal(leaf.grad, torch.zeros_like(leaf)), name


def mamba_inputs(seqlen, delta, A, *, dim=4, dstate=8):
    generator = torch.Generator().manual_seed(5)

    def normal(*shape):
        return torch.randn(*shape, generator=generator)

    return {
        "u": normal(2, dim, seqlen),
        "delta": torch.as_tensor(delta).expand(2, dim, seqlen).contiguous(),
        "A": A if isinstance(A, torch.Tensor) else torch.full((dim, dstate), A),
        "B": normal(2, dstate, seqlen),
        "C": normal(2, dstate, seqlen),
    }


#  id                      seqlen  raw delta (after softplus the step)  A  dim  dstate
TRAPS = [
    ("s1_cumulated_decay",    196, torch.linspace(-3, 0.6, 196), -torch.arange(1.0, 9).repeat(4, 1), 4,  8),
    ("s2_huge_steps",         64,  100.0,                        -1.0,                                 4,  8),
    ("s3_extreme_decay",      64,  0.0,                          -1e4,                                 4,  8),
    ("s4_one_token",          1,   0.0,                          -1.0,                                 4,  8),
    ("s6_odd_sizes",          17,  0.0,                          -1.0,                                 5,  3),
    ("s7_one_state",          40,  0.0,                          -1.0,                                 4,  1),
    ("no_decay",              64,  0.0,                          0.0,                                  4,  8),
    ("growth",                64,  0.0,                          0.5,                                  4,  8),
]  # fmt: skip


@pytest.mark.parametrize(
    ("seqlen", "delta", "A", "dim", "dstate"), [t[1:] for t in TRAPS], ids=[t[0] for t in TRAPS]
)
def test_traps(seqlen, delta, A, dim, dstate, backend):
    tensors = mamba_inputs(seqlen, delta, A, dim=dim, dstate=dstate)
    assert_accurate(compare(scan, tensors, OUTPUTS, backend), torch.float32)


@pytest.mark.parametrize("name", ["u", "delta", "B", "C"])
def test_s9_nan_in_gives_nan_out_wherever_the_recurrence_does(name, backend):
    tensors = mamba_inputs(40, 0.0, -1.0)
    tensors[name][0, 0, 20] = torch.nan
    exact, exact_state = scan(**tensors, backend="reference")
    y, last_state = scan(**tensors, backend=backend)
    assert exact.isnan().any()
    assert torch.equal(y.isnan(), exact.isnan())
    assert torch.equal(last_state.isnan(), exact_state.isnan())
