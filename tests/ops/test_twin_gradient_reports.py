"""What people run into, from public reports: gradients of the SSD kernels of both chips on the twin."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F

from ops_ascend import ssd_scan, twin
from ops_ascend.errors import random_ssd, tensor_error
from tests.ops.forward import PRECISIONS
from tests.ops.gradients import errors, exact_gradients, twin_gradients
from tests.ops.policy import assert_native
from tests.ops.test_ssd_scan import exact_squared_mean_gradients, squared_mean_gradients, vit_tokens
from tests.ops.test_ssd_traps import TRAPS, alternating, as_views, inputs
from tests.ops.test_twin_field_reports import TOKENS, far_apart, scan

ONE_SEED = (2,)


def assert_equal(have, want, names=None):
    for name in names or want:
        torch.testing.assert_close(have[name], want[name], rtol=0, atol=0, equal_nan=True, msg=name)


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("chunk_size", [64, 256])
def test_op_1_196_tokens_train_without_nan(chunk_size, autocast, chip):
    with twin.settings(chip=chip), torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        measured = squared_mean_gradients(vit_tokens(), "twin", chunk_size=chunk_size)
    exact = exact_squared_mean_gradients()
    for name, value in measured.items():
        assert value.isfinite().all(), name
        assert tensor_error(name, value, exact[name]).relative_rms <= 1e-5, name


@pytest.mark.parametrize("seqlen", [65, 96, 127])
def test_op_2_a_ragged_tail_reads_nothing_behind_the_tensor(seqlen, chip):
    tensors = random_ssd((2, seqlen, 2, 8, 1, 8), torch.float32)
    sliced, padded = dict(tensors), dict(tensors)
    for name in TOKENS:
        buffer = torch.full((2, 2 * seqlen, *tensors[name].shape[2:]), torch.nan)
        buffer[:, :seqlen] = tensors[name]
        sliced[name] = buffer[:, :seqlen]
        empty = tensors[name].new_zeros(2, 128 - seqlen, *tensors[name].shape[2:])
        # softplus(-1e4) is zero: a padded token neither decays the state nor adds to it.
        padded[name] = torch.cat([tensors[name], empty - 1e4 if name == "dt" else empty], dim=1)
    want = twin_gradients(scan(), tensors, chip, seeds=ONE_SEED)
    assert_equal(twin_gradients(scan(), sliced, chip), want)

    def y_of_real_tokens(**arguments):
        y, final_states = scan()(**arguments)
        return y[:, :seqlen], final_states

    longer = twin_gradients(y_of_real_tokens, padded, chip, seeds=ONE_SEED)
    cut = {n: v[:, :seqlen] if n.removeprefix("d") in TOKENS else v for n, v in longer.items()}
    assert_native(errors(cut, want), torch.float32)


@pytest.mark.parametrize("seqlen", [300, 512, 1000])
def test_op_3_gradients_do_not_depend_on_the_chunk_size(seqlen, chip):
    tensors = random_ssd((1, seqlen, 2, 16, 1, 16), torch.float32)
    want = twin_gradients(scan(64), tensors, chip, seeds=ONE_SEED)
    for chunk_size in (16, 256):
        assert_equal(twin_gradients(scan(chunk_size), tensors, chip, seeds=ONE_SEED), want)
    assert_native(errors(want, exact_gradients(scan(), tensors)), torch.float32)


@pytest.mark.parametrize("with_states", [False, True])
def test_op_5_packed_sequences_equal_separate_runs(with_states, chip):
    lengths = (50, 64, 202, 92, 123)
    tensors = random_ssd((1, sum(lengths), 2, 16, 1, 16), torch.float32)
    if not with_states:
        del tensors["initial_states"]
    seq_idx = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))[None]
    packed = twin_gradients(scan(seq_idx=seq_idx), tensors, chip)

    def separate(backend, **given):
        shared = {name: given[name] for name in ("A", "D", "dt_bias")}
        first = {name: given[name] for name in ("initial_states",) if name in given}
        tokens = {name: given[name].split(lengths, dim=1) for name in TOKENS}
        runs = [
            scan()(**shared, **({} if i else first), **{n: t[i] for n, t in tokens.items()}, backend=backend)
            for i in range(len(lengths))
        ]
        return torch.cat([y for y, _ in runs], dim=1), runs[-1][1]

    assert_native(errors(packed, exact_gradients(separate, tensors)), torch.float32)


def test_op_5_a_sequence_may_begin_at_any_token(chip):
    tensors = random_ssd((2, 140, 2, 8, 1, 8), torch.float32)
    starts = torch.zeros(2, 140, dtype=torch.int64)
    starts[0, [1, 2, 63, 64, 65, 127, 128, 139]] = 1
    starts[1, :] = 1
    op = scan(seq_idx=starts.cumsum(1))
    assert_native(errors(twin_gradients(op, tensors, chip), exact_gradients(op, tensors)), torch.float32)


def test_op_6_gradients_flow_through_a_carried_state(chip):
    tensors = random_ssd((2, 256, 2, 16, 1, 16), torch.float32)

    def in_segments(backend, initial_states, **given):
        state, parts = initial_states, []
        for begin in range(0, 256, 64):
            own = {n: t[:, begin : begin + 64] if n in TOKENS else t for n, t in given.items()}
            part, state = scan()(**own, initial_states=state, backend=backend)
            parts.append(part)
        return torch.cat(parts, dim=1), state

    measured = twin_gradients(in_segments, tensors, chip, seeds=ONE_SEED)
    assert_native(errors(measured, twin_gradients(scan(), tensors, chip, seeds=ONE_SEED)), torch.float32)


def test_op_7_initial_state_has_its_gradient(chip):
    one = torch.ones(1, 6, 1, 1)
    h0 = torch.ones(1, 1, 1, 1, requires_grad=True)
    A = torch.tensor([-0.6931471805599453])
    with twin.settings(chip=chip):
        y, _ = ssd_scan(one, one[..., 0], A, one, one, chunk_size=4, initial_states=h0, backend="twin")
        y.sum().backward()
    assert y[0, 0].item() == pytest.approx(1.5, abs=1e-6)
    assert h0.grad.item() == pytest.approx(0.984375, abs=1e-6)


def test_op_9_the_slope_of_softplus_is_exact_at_both_ends(chip):
    raw = torch.tensor([-30.0, -1.0, 0.0, 19.9, 20.1, 25.0, 100.0])
    dt = raw.view(1, 7, 1).clone().requires_grad_()
    one = torch.ones(1, 7, 1, 1)
    # With A = 0 and C = 1 the last output is the sum of the steps.
    with twin.settings(chip=chip):
        y, _ = ssd_scan(one, dt, torch.zeros(1), one, one, chunk_size=8, dt_softplus=True, backend="twin")
        steps = y.flatten().diff(prepend=torch.zeros(1))
        y[0, -1].sum().backward()
    torch.testing.assert_close(steps, F.softplus(raw), rtol=1e-6, atol=2e-5)
    torch.testing.assert_close(dt.grad.flatten(), torch.sigmoid(raw), rtol=2e-6, atol=1e-12)
    assert dt.grad[0, -1].item() == pytest.approx(1.0, rel=2e-7)


def test_op_9_the_slope_is_zero_where_the_clamp_is_active(chip):
    raw = torch.tensor([-30.0, -3.0, 0.0, 100.0])
    dt = raw.view(1, 4, 1).clone().requires_grad_()
    one = torch.ones(1, 4, 1, 1)
    op = partial(ssd_scan, dt_softplus=True, dt_limit=(1e-3, 0.1), chunk_size=4, backend="twin")
    with twin.settings(chip=chip):
        y, _ = op(one, dt, torch.zeros(1), one, one)
        y[0, -1].sum().backward()
    assert dt.grad.flatten()[[0, 2, 3]].tolist() == [0.0, 0.0, 0.0]
    assert dt.grad.flatten()[1].item() == pytest.approx(torch.sigmoid(torch.tensor(-3.0)).item(), rel=2e-6)


@pytest.mark.parametrize("softplus", [False, True])
def test_op_9_limits_without_and_with_softplus(softplus, chip):
    tensors = random_ssd((2, 70, 3, 8, 1, 8), torch.float32)
    if not softplus:
        tensors["dt"] = tensors["dt"].abs()
        del tensors["dt_bias"]
    op = partial(ssd_scan, chunk_size=64, dt_softplus=softplus, dt_limit=(0.02, 0.6))
    assert_native(errors(twin_gradients(op, tensors, chip), exact_gradients(op, tensors)), torch.float32)


@pytest.mark.parametrize("nheads", [1, 2, 3, 5, 12])
def test_op_10_views_of_one_projection(nheads, chip):
    headdim, dstate = 8, 4
    d_inner = nheads * headdim
    projected = torch.randn(2, 81, 2 * d_inner + 2 * dstate + nheads)
    A = -torch.arange(1.0, nheads + 1)

    def run(make):
        def op(projected, backend):
            z, x, B, C, dt = projected.split([d_inner, d_inner, dstate, dstate, nheads], dim=-1)
            heads = {"x": x.unflatten(-1, (nheads, headdim)), "z": z.unflatten(-1, (nheads, headdim))}
            given = heads | {"dt": dt, "B": B.unsqueeze(2), "C": C.unsqueeze(2)}
            return scan()(A=A.to(x.dtype), **{n: make(t) for n, t in given.items()}, backend=backend)

        return twin_gradients(op, {"projected": projected}, chip, seeds=ONE_SEED), op

    views, op = run(lambda t: t)
    assert_equal(views, run(torch.Tensor.contiguous)[0])
    assert_native(errors(views, exact_gradients(op, {"projected": projected})), torch.float32)


@pytest.mark.parametrize("headdim", [4, 24, 64, 80, 128])
def test_op_11_head_and_state_sizes(headdim, chip):
    for dstate in (8, 48, 64, 256):
        tensors = random_ssd((1, 70, 3, headdim, 1, dstate), torch.float32)
        measured = twin_gradients(scan(), tensors, chip, seeds=ONE_SEED)
        assert_native(errors(measured, exact_gradients(scan(), tensors)), torch.float32)


@pytest.mark.parametrize(("name", "dim"), [("dt", 1), ("x", 0)])
def test_op_13_offsets_beyond_two_to_the_31(name, dim, chip):
    tensors = random_ssd((2, 6, 2, 8, 1, 8), torch.float32)
    wide = far_apart(tensors[name], dim, 2**29 - 8 if dim == 1 else 2**31 + 64)
    assert (wide.shape[dim] - 1) * wide.stride(dim) > 2**31
    have = twin_gradients(scan(), tensors | {name: wide}, chip, seeds=ONE_SEED)
    assert_equal(have, twin_gradients(scan(), tensors, chip, seeds=ONE_SEED))


@pytest.mark.slow
def test_op_14_more_programs_than_a_grid_axis_holds(chip):
    tensors = random_ssd((10_923, 32, 6, 4, 1, 4), torch.float32)
    measured = twin_gradients(scan(32), tensors, chip, seeds=ONE_SEED)
    assert all(value.isfinite().all() for value in measured.values())
    # Of one entry alone, with the weights that its outputs have in the loss.
    generator = torch.Generator().manual_seed(0)
    weights = [torch.randn(measured[n].shape, generator=generator).bfloat16() for n in ("y", "state")]
    entries = [0, 5461, 10_922]
    some = {n: t[entries] if n in (*TOKENS, "initial_states") else t for n, t in tensors.items()}
    leaves = {n: t.double().requires_grad_() for n, t in some.items()}
    results = scan(32)(**leaves, backend="reference")
    sum((out * w[entries]).sum() for out, w in zip(results, weights, strict=True)).backward()
    own = (*TOKENS, "initial_states")
    assert_native(
        errors({f"d{n}": measured[f"d{n}"][entries] for n in own}, {f"d{n}": leaves[n].grad for n in own}),
        torch.float32,
    )


#  what is below the smallest float16 in the result itself is no matter of the kernel
@pytest.mark.parametrize(
    ("precision", "wide", "scale"),
    [("half", True, 1e-6), ("half", True, 1e-2), ("half", False, 1e-6), ("half", False, 1e-2),
     ("float16", True, 1e-2), ("float16", True, 1e-4)],
)  # fmt: skip
def test_op_17_float16_operands_neither_overflow_nor_underflow(precision, wide, scale, chip):
    """Inputs of the reported ranges, or small ones; gradients as small as those of an unscaled loss."""
    dtype, operands, judged_as = PRECISIONS[precision]
    tensors = random_ssd((1, 196, 2, 16, 1, 16), dtype)
    for name in ("D", "z", "initial_states"):
        del tensors[name]
    for name in ("B", "C"):
        values = torch.rand_like(tensors[name].float()) * 81 - 30
        tensors[name] = (values if wide else values / 2000).to(dtype)

    def scaled(**given):
        y, final_states = scan()(**given)
        return y.double() * scale, final_states.double() * scale

    measured = twin_gradients(scaled, tensors, chip, operands, ONE_SEED)
    rows = [row for row in errors(measured, exact_gradients(scaled, tensors)) if row.name.startswith("d")]
    assert_native(rows, judged_as)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_op_20_two_runs_are_equal_bit_for_bit(dtype, chip):
    tensors = random_ssd((2, 200, 4, 16, 2, 16), dtype)
    first, second = (twin_gradients(scan(), tensors, chip, seeds=(seed,)) for seed in (3, 3))
    assert_equal(first, second)


@pytest.mark.parametrize(("batch", "seqlen"), [(0, 5), (2, 0), (0, 0)])
@pytest.mark.parametrize("with_states", [False, True])
def test_op_21_empty_batch_or_sequence(batch, seqlen, with_states, chip):
    tensors = random_ssd((batch, seqlen, 2, 4, 1, 3), torch.float32)
    initial = tensors["initial_states"].clone()
    if not with_states:
        del tensors["initial_states"]
        initial = torch.zeros_like(initial)
    leaves = {name: t.requires_grad_() for name, t in tensors.items()}
    with twin.settings(chip=chip):
        y, final_states = scan(8)(**leaves, backend="twin")
    assert y.shape == (batch, seqlen, 2, 4)
    assert torch.equal(final_states, initial)
    (y.sum() + final_states.sum()).backward()
    for name, leaf in leaves.items():
        expected = torch.ones_like(leaf) if name == "initial_states" else torch.zeros_like(leaf)
        assert torch.equal(leaf.grad, expected), name


@pytest.mark.parametrize(
    ("seqlen", "chunk_size", "dt", "A", "bias"), [t[1:] for t in TRAPS], ids=[t[0] for t in TRAPS]
)
def test_traps(seqlen, chunk_size, dt, A, bias, chip):
    tensors = inputs(seqlen, dt, A, bias)
    measured = twin_gradients(scan(chunk_size), tensors, chip)
    assert_native(errors(measured, exact_gradients(scan(chunk_size), tensors)), torch.float32)


def test_t4_a_step_of_zero_has_no_gradient(chip):
    tensors = inputs(16, -200.0, -1.0)
    run = twin_gradients(scan(16), tensors, chip, seeds=ONE_SEED)
    for name, value in run.items():
        assert value.isfinite().all(), name
    # The exact slope is e^-200, below the smallest float32.
    assert torch.count_nonzero(run["ddt"]) == 0


@pytest.mark.parametrize("seqlen", [64, 256])
def test_t15_a_vanishing_gradient_stays_vanishing(seqlen, chip):
    """Steps of 100 erase the state, so A has no influence; what is left would be rounding of the rest."""
    tensors = inputs(seqlen, alternating(100.0, -100.0, seqlen), -1.0)
    measured = twin_gradients(scan(256), tensors, chip, seeds=ONE_SEED)
    rows = {row.name: row for row in errors(measured, exact_gradients(scan(256), tensors))}
    assert rows.pop("dA").max_abs < 1e-10
    assert_native(list(rows.values()), torch.float32)


def test_t8_strides_change_nothing(chip):
    tensors = inputs(50, 0.0, -1.0, -2.0, batch=2)
    views = as_views(tensors)
    assert not views["x"].is_contiguous()
    have = twin_gradients(scan(16), views, chip, seeds=ONE_SEED)
    assert_equal(have, twin_gradients(scan(16), tensors, chip, seeds=ONE_SEED))


def test_t8_expanded_groups_and_gradients(chip):
    """B and C expanded over groups and a gradient expanded from a scalar have zero strides."""
    tensors = random_ssd((2, 70, 4, 8, 1, 8), torch.float32)

    def op(backend, B, C, **given):
        expanded = {"B": B.expand(2, 70, 2, 8), "C": C.expand(2, 70, 2, 8)}
        y, final_states = scan()(**given, **expanded, backend=backend)
        return y.sum(), final_states.sum()

    measured = twin_gradients(op, tensors, chip, seeds=ONE_SEED)
    exact = exact_gradients(op, tensors)
    rows = [row for row in errors(measured, exact) if row.name.startswith("d")]
    assert_native(rows, torch.float32)


@pytest.mark.parametrize("name", ["x", "dt", "B", "C"])
def test_t12_nan_in_gives_nan_out_wherever_the_recurrence_does(name, chip):
    tensors = inputs(40, 0.0, -1.0)
    tensors[name][0, 10] = torch.nan
    measured = twin_gradients(scan(16), tensors, chip, seeds=ONE_SEED)
    for key, want in exact_gradients(scan(16), tensors).items():
        assert measured[key][want.isnan()].isnan().all(), key
