"""What people run into, from public reports: the selective scan kernels of both chips on the twin."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F

from ops_ascend import selective_scan, twin
from ops_ascend.errors import random_selective, tensor_error
from tests.ops.gradients import errors, exact_gradients, twin_gradients
from tests.ops.policy import assert_native
from tests.ops.test_selective_scan import TRAPS, mamba_inputs
from tests.ops.test_twin_field_reports import far_apart

ONE_SEED = (2,)
TOKENS = ("u", "delta", "B", "C", "z")
scan = partial(selective_scan, delta_softplus=True)


def assert_equal(have, want):
    for name, value in want.items():
        torch.testing.assert_close(have[name], value, rtol=0, atol=0, equal_nan=True, msg=name)


@pytest.mark.parametrize("autocast", [False, True])
def test_op_1_196_tokens_train_without_nan(autocast, chip):
    tensors = random_selective((2, 96, 196, 1, 8), torch.float32)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        measured = twin_gradients(scan, tensors, chip, seeds=ONE_SEED)
    assert_native(errors(measured, exact_gradients(scan, tensors)), torch.float32)


@pytest.mark.parametrize("seqlen", [21, 28, 60])
def test_op_2_reads_nothing_behind_the_tensor(seqlen, chip):
    tensors = random_selective((2, 12, seqlen, 2, 3), torch.float32)
    sliced = dict(tensors)
    for name in TOKENS:
        buffer = torch.full((*tensors[name].shape[:-1], 64), torch.nan)
        buffer[..., :seqlen] = tensors[name]
        sliced[name] = buffer[..., :seqlen]
    assert_equal(twin_gradients(scan, sliced, chip), twin_gradients(scan, tensors, chip, seeds=ONE_SEED))


def test_op_9_softplus_is_exact_at_both_ends(chip):
    raw = torch.tensor([-30.0, -1.0, 0.0, 19.9, 20.1, 25.0, 100.0])
    delta = raw.view(1, 1, 7).clone().requires_grad_()
    one = torch.ones(1, 1, 7)
    with twin.settings(chip=chip):
        y, _ = scan(one, delta, torch.zeros(1, 1), one, one, backend="twin")
        y[..., -1].sum().backward()
    steps = y.detach().flatten().diff(prepend=torch.zeros(1))
    torch.testing.assert_close(steps, F.softplus(raw), rtol=1e-6, atol=2e-5)
    torch.testing.assert_close(delta.grad.flatten(), torch.sigmoid(raw), rtol=2e-6, atol=1e-12)
    assert delta.grad[..., -1].item() == pytest.approx(1.0, rel=2e-7)


@pytest.mark.parametrize("dim", [1, 3, 5, 12])
def test_op_10_views_of_one_channels_last_projection(dim, chip):
    """The time axis of such a view is not dense: it is copied."""
    projected = torch.randn(2, 21, 3 * dim + 2 * 4)
    A = -torch.arange(1.0, 5).repeat(dim, 1)

    def run(make):
        def op(projected, backend):
            names = ("u", "delta", "z", "B", "C")
            split = projected.split([dim, dim, dim, 4, 4], dim=-1)
            parts = {n: make(t.mT) for n, t in zip(names, split, strict=True)}
            return scan(A=A.to(projected.dtype), **parts, backend=backend)

        return twin_gradients(op, {"projected": projected}, chip, seeds=ONE_SEED), op

    views, op = run(lambda t: t)
    assert_equal(views, run(torch.Tensor.contiguous)[0])
    assert_native(errors(views, exact_gradients(op, {"projected": projected})), torch.float32)


def test_op_10_views_of_one_channels_first_projection(chip):
    """As in MambaVision: x and z are halves of one tensor, B and C slices of another; nothing is copied."""
    tensors = {"both": torch.randn(2, 40, 49), "projected": torch.randn(2, 20 + 16, 49)}
    A = -torch.arange(1.0, 9).repeat(20, 1)

    def op(both, projected, backend):
        u, z = both.chunk(2, dim=1)
        delta, B, C = projected.split([20, 8, 8], dim=1)
        return scan(u, delta, A.to(u.dtype), B, C, z=z, backend=backend)

    measured = twin_gradients(op, tensors, chip, seeds=ONE_SEED)
    assert_native(errors(measured, exact_gradients(op, tensors)), torch.float32)


@pytest.mark.parametrize("dstate", [257, 512])
def test_op_12_a_wider_state_is_refused_with_the_limit(dstate):
    with pytest.raises(NotImplementedError) as raised:
        scan(**random_selective((1, 4, 8, 1, dstate), torch.float32), backend="twin")
    reason = f"dstate ({dstate}) must be 1 to 256"
    assert str(raised.value) == f"selective_scan: backend 'twin' cannot run here: {reason}"


@pytest.mark.parametrize(("name", "dim"), [("delta", 1), ("u", 0), ("B", 2)])
def test_op_13_offsets_beyond_two_to_the_31(name, dim, chip):
    tensors = random_selective((2, 6, 9, 1, 4), torch.float32)
    wide = far_apart(tensors[name], dim, 2**31 // (tensors[name].shape[dim] - 1) + 64)
    assert (wide.shape[dim] - 1) * wide.stride(dim) > 2**31
    have = twin_gradients(scan, tensors | {name: wide}, chip, seeds=ONE_SEED)
    assert_equal(have, twin_gradients(scan, tensors, chip, seeds=ONE_SEED))


@pytest.mark.slow
def test_op_14_more_programs_than_a_grid_axis_holds(chip):
    tensors = random_selective((65_537, 2, 5, 1, 2), torch.float32)
    measured = twin_gradients(scan, tensors, chip, seeds=ONE_SEED)
    assert_native(errors(measured, exact_gradients(scan, tensors)), torch.float32)


def test_op_17_float16_autocast_neither_overflows_nor_loses_the_scan(chip):
    generator = torch.Generator().manual_seed(4)

    def uniform(low, high, *shape):
        return low + (high - low) * torch.rand(*shape, generator=generator)

    halves = {
        "u": uniform(-51, 51, 1, 8, 196).half(),
        "delta": uniform(-11, 11, 1, 8, 196).half(),
        "A": -torch.arange(1.0, 17).repeat(8, 1),
        "B": uniform(-30, 51, 1, 16, 196).half(),
        "C": uniform(-30, 51, 1, 16, 196).half(),
    }
    with twin.settings(chip=chip), torch.autocast("cpu", torch.float16):
        y, _ = scan(**halves, backend="twin")
    exact, _ = scan(**{name: t.double() for name, t in halves.items()}, backend="reference")
    assert exact.abs().max() > 65504
    assert y.dtype == torch.float32
    assert tensor_error("y", y, exact).relative_rms <= 1e-5


def test_op_18_vanishing_decay_over_a_long_sequence(chip):
    one = torch.ones(1, 1, 4096)
    A = -torch.exp(torch.tensor([[-12.0]]))
    with twin.settings(chip=chip):
        y, _ = selective_scan(one, one, A, one, one, backend="twin")
    exact = (1 - torch.exp(A.double() * 4096)) / (1 - torch.exp(A.double()))
    assert y[..., -1].item() == pytest.approx(exact.item(), rel=1e-5)


@pytest.mark.parametrize(("batch", "seqlen"), [(0, 5), (2, 0), (0, 0)])
def test_op_21_empty_batch_or_sequence(batch, seqlen, chip):
    tensors = random_selective((batch, 4, seqlen, 2, 3), torch.float32)
    measured = twin_gradients(scan, tensors, chip, seeds=ONE_SEED)
    assert measured["y"].shape == (batch, 4, seqlen)
    assert torch.equal(measured["state"], torch.zeros(batch, 4, 3))
    for name, tensor in tensors.items():
        assert torch.equal(measured[f"d{name}"], torch.zeros_like(tensor)), name


@pytest.mark.parametrize(
    ("seqlen", "delta", "A", "dim", "dstate"), [t[1:] for t in TRAPS], ids=[t[0] for t in TRAPS]
)
def test_traps(seqlen, delta, A, dim, dstate, chip):
    tensors = mamba_inputs(seqlen, delta, A, dim=dim, dstate=dstate)
    measured = twin_gradients(scan, tensors, chip)
    assert_native(errors(measured, exact_gradients(scan, tensors)), torch.float32)


@pytest.mark.parametrize("name", ["u", "delta", "B", "C"])
def test_s9_nan_in_gives_nan_out_wherever_the_recurrence_does(name, chip):
    tensors = mamba_inputs(40, 0.0, -1.0)
    tensors[name][0, 0, 20] = torch.nan
    measured = twin_gradients(scan, tensors, chip, seeds=ONE_SEED)
    for key, want in exact_gradients(scan, tensors).items():
        assert measured[key][want.isnan()].isnan().all(), key
