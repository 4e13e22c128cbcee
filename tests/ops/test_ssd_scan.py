from functools import cache, partial

import pytest
import torch

from ops_ascend import ssd_scan
from ops_ascend.errors import compare, outputs_and_gradients, random_ssd, tensor_error
from tests.ops.cases import SSD_CASES, named
from tests.ops.policy import assert_accurate

OUTPUTS = ("y", "final_states")
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def scan(chunk_size, **options):
    return partial(ssd_scan, chunk_size=chunk_size, dt_softplus=True, **options)


@named(SSD_CASES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_outputs_and_gradients_match_the_recurrence(case, dtype, backend):
    tensors = random_ssd(case.sizes, dtype)
    rows = compare(scan(case.chunk_size), tensors, OUTPUTS, backend)
    assert_accurate(rows, dtype, backend)


@named(SSD_CASES)
def test_output_dtypes_and_shapes(case, backend):
    tensors = random_ssd(case.sizes, torch.bfloat16)
    y, final_states = scan(case.chunk_size)(**tensors, backend=backend)
    batch, _, nheads, headdim, _, dstate = case.sizes
    assert y.dtype == torch.bfloat16
    assert y.shape == tensors["x"].shape
    assert final_states.dtype == torch.float32
    assert final_states.shape == (batch, nheads, headdim, dstate)


def squared_mean_gradients(tensors, backend, **options):
    leaves = {name: t.detach().requires_grad_() for name, t in tensors.items()}
    y, _ = ssd_scan(**leaves, dt_softplus=True, backend=backend, **options)
    y.pow(2).mean().backward()
    return {name: t.grad for name, t in leaves.items()} | {"y": y}


@cache
def exact_squared_mean_gradients():
    return squared_mean_gradients(
        {name: t.double() for name, t in vit_tokens().items()}, "reference", chunk_size=64
    )


def vit_tokens():
    tensors = random_ssd((2, 196, 12, 64, 1, 64), torch.float32)
    return tensors | {"dt_bias": torch.zeros(12)}


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("chunk_size", [64, 256])
def test_op_1_196_tokens_train_without_nan(chunk_size, autocast, backend):
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        measured = squared_mean_gradients(vit_tokens(), backend, chunk_size=chunk_size)
    exact = exact_squared_mean_gradients()
    for name, value in measured.items():
        assert value.isfinite().all(), name
        assert tensor_error(name, value, exact[name]).relative_rms <= 1e-5, name


@pytest.mark.parametrize("seqlen", [65, 96, 127])
def test_op_2_a_ragged_tail_reads_nothing_behind_the_tensor(seqlen, backend):
    tensors = random_ssd((2, seqlen, 2, 8, 1, 8), torch.float32)
    sliced = dict(tensors)
    for name in ("x", "dt", "B", "C", "z"):
        buffer = torch.full((2, 2 * seqlen, *tensors[name].shape[2:]), torch.nan)
        buffer[:, :seqlen] = tensors[name]
        sliced[name] = buffer[:, :seqlen]
    padded = dict(tensors)
    for name in ("x", "dt", "B", "C", "z"):
        empty = tensors[name].new_zeros(2, 128 - seqlen, *tensors[name].shape[2:])
        # softplus(-1e4) is zero: a padded token neither decays the state nor adds to it.
        padded[name] = torch.cat([tensors[name], empty - 1e4 if name == "dt" else empty], dim=1)
    run = partial(outputs_and_gradients, scan(64, backend=backend), names=OUTPUTS)
    have, want = run(sliced), run(tensors)
    for name, value in have.items():
        assert tensor_error(name, value, want[name]).relative_rms <= 1e-6, name

    def y_of_real_tokens(**inputs):
        y, final_states = scan(64, backend=backend)(**inputs)
        return y[:, :seqlen], final_states

    longer = outputs_and_gradients(y_of_real_tokens, padded, OUTPUTS)
    for name in ("dA", "ddt", "dx", "dB", "dC", "ddt_bias"):
        value = longer[name][:, :seqlen] if name in ("ddt", "dx", "dB", "dC") else longer[name]
        assert tensor_error(name, value, want[name]).relative_rms <= 1e-5, name


@pytest.mark.parametrize("seqlen", [300, 512, 1000])
@pytest.mark.parametrize("backend", ["cpu", "chunked"], indirect=True)
def test_op_3_gradients_do_not_depend_on_the_chunk_size(seqlen, backend):
    tensors = random_ssd((1, seqlen, 2, 16, 1, 16), torch.float32)
    runs = {
        chunk: outputs_and_gradients(scan(chunk, backend=backend), tensors, OUTPUTS)
        for chunk in (16, 32, 64, 128, 256)
    }
    for chunk, run in runs.items():
        for name, value in run.items():
            assert tensor_error(name, value, runs[64][name]).relative_rms <= 1e-5, (chunk, name)


GRADIENT_INPUTS = ("x", "dt", "A", "B", "C", "D", "z", "dt_bias", "initial_states")


@pytest.mark.parametrize("name", GRADIENT_INPUTS)
def test_op_4_gradcheck_of_each_input_alone(name, backend):
    tensors = random_ssd((1, 7, 2, 3, 1, 2), torch.float64)
    tensors["D"] = tensors["D"].sum(1)

    def of_one(value):
        return ssd_scan(**(tensors | {name: value}), chunk_size=3, dt_softplus=True, backend=backend)

    assert torch.autograd.gradcheck(of_one, (tensors[name].requires_grad_(),))


def test_op_4_gradient_of_one_input_with_everything_else_frozen(backend):
    tensors = random_ssd((1, 64, 2, 16, 1, 16), torch.float32)

    def of_one(B, backend):
        frozen = {name: t.to(B.dtype) for name, t in tensors.items()}
        return scan(64, backend=backend)(**(frozen | {"B": B}))

    rows = compare(of_one, {"B": tensors["B"]}, OUTPUTS, backend)
    assert rows[-1].name == "dB"
    assert_accurate(rows, torch.float32, backend)


def test_op_5_packed_sequences_equal_separate_runs(backend):
    lengths = (50, 64, 202, 92, 123)
    tensors = random_ssd((1, sum(lengths), 2, 16, 1, 16), torch.float32)
    del tensors["initial_states"]
    seq_idx = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))[None]
    packed = scan(64, seq_idx=seq_idx, backend=backend)

    def separate(**inputs):
        shared = {name: inputs[name] for name in ("A", "D", "dt_bias")}
        tokens = {name: inputs[name].split(lengths, dim=1) for name in ("x", "dt", "B", "C", "z")}
        runs = [
            scan(64, backend=backend)(**shared, **{name: parts[i] for name, parts in tokens.items()})
            for i in range(len(lengths))
        ]
        return torch.cat([y for y, _ in runs], dim=1), runs[-1][1]

    have = outputs_and_gradients(packed, tensors, OUTPUTS)
    want = outputs_and_gradients(separate, tensors, OUTPUTS)
    for name, value in have.items():
        assert tensor_error(name, value, want[name]).relative_rms <= 1e-5, name


def test_op_5_a_sequence_number_that_comes_back_starts_a_new_sequence(backend):
    tensors = random_ssd((1, 12, 2, 4, 1, 4), torch.float64)
    again = torch.tensor([[0] * 4 + [1] * 4 + [0] * 4])
    fresh = torch.tensor([[0] * 4 + [1] * 4 + [2] * 4])
    have, _ = scan(8, seq_idx=again, backend=backend)(**tensors)
    want, _ = scan(8, seq_idx=fresh, backend=backend)(**tensors)
    assert torch.equal(have, want)


def test_op_6_segments_with_carried_state_equal_the_whole(backend):
    tensors = random_ssd((2, 256, 2, 16, 1, 16), torch.float32)
    y, final_states = scan(64, backend=backend)(**tensors)
    state, parts = tensors["initial_states"], []
    for begin in range(0, 256, 64):
        own = {
            name: t[:, begin : begin + 64] if name in ("x", "dt", "B", "C", "z") else t
            for name, t in tensors.items()
        }
        part, state = scan(64, backend=backend)(**(own | {"initial_states": state}))
        parts.append(part)
    torch.testing.assert_close(torch.cat(parts, dim=1), y, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(state, final_states, rtol=1e-5, atol=1e-5)


def test_op_7_initial_state_has_its_gradient(backend):
    one = torch.ones(1, 6, 1, 1)
    h0 = torch.ones(1, 1, 1, 1, requires_grad=True)
    A = torch.tensor([-0.6931471805599453])
    y, _ = ssd_scan(one, one[..., 0], A, one, one, chunk_size=4, initial_states=h0, backend=backend)
    y.sum().backward()
    assert y[0, 0].item() == pytest.approx(1.5, abs=1e-6)
    assert h0.grad.item() == pytest.approx(0.984375, abs=1e-6)


@pytest.mark.parametrize("with_states", [False, True])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("with_z", [False, True])
@pytest.mark.parametrize("skip", [None, "head", "channel"])
def test_op_8_optional_arguments(skip, with_z, with_bias, with_states, backend):
    tensors = random_ssd((2, 20, 2, 4, 1, 4), torch.float64)
    if skip is None:
        del tensors["D"]
    elif skip == "head":
        tensors["D"] = tensors["D"].sum(1)
    for name, given in (("z", with_z), ("dt_bias", with_bias), ("initial_states", with_states)):
        if not given:
            del tensors[name]
    rows = compare(scan(8), tensors, OUTPUTS, backend)
    assert {row.name for row in rows} == {*OUTPUTS, *(f"d{name}" for name in tensors)}
    assert_accurate(rows, torch.float64)

    # Without the final state in the loss.
    def only_y(**inputs):
        return scan(8)(**inputs)[0]

    assert_accurate(compare(only_y, tensors, ("y",), backend), torch.float64)


def test_op_9_softplus_is_exact_at_both_ends(backend):
    raw = torch.tensor([-30.0, -1.0, 0.0, 19.9, 20.1, 25.0, 100.0])
    dt = raw.view(1, 7, 1).clone().requires_grad_()
    one = torch.ones(1, 7, 1, 1)
    # With A = 0 and C = 1 the last output is the sum of the steps, and y[t] - y[t-1] the step itself.
    y, _ = ssd_scan(one, dt, torch.zeros(1), one, one, chunk_size=8, dt_softplus=True, backend=backend)
    steps = y.flatten().diff(prepend=torch.zeros(1))
    torch.testing.assert_close(steps, torch.nn.functional.softplus(raw), rtol=1e-6, atol=2e-5)
    y[0, -1].sum().backward()
    torch.testing.assert_close(dt.grad.flatten(), torch.sigmoid(raw), rtol=1e-6, atol=1e-12)
    assert dt.grad[0, -1].item() == 1.0


def test_op_9_the_slope_is_zero_where_the_clamp_is_active(backend):
    raw = torch.tensor([-30.0, -3.0, 0.0, 100.0])
    dt = raw.view(1, 4, 1).clone().requires_grad_()
    one = torch.ones(1, 4, 1, 1)
    y, _ = ssd_scan(
        one,
        dt,
        torch.zeros(1),
        one,
        one,
        chunk_size=4,
        dt_softplus=True,
        dt_limit=(1e-3, 0.1),
        backend=backend,
    )
    steps = y.flatten().diff(prepend=torch.zeros(1))
    torch.testing.assert_close(steps, torch.tensor([1e-3, 0.0485873, 0.1, 0.1]), rtol=1e-5, atol=1e-7)
    y[0, -1].sum().backward()
    assert dt.grad.flatten()[[0, 2, 3]].tolist() == [0.0, 0.0, 0.0]
    assert dt.grad.flatten()[1].item() == pytest.approx(torch.sigmoid(torch.tensor(-3.0)).item(), rel=1e-6)


@pytest.mark.parametrize("nheads", [1, 2, 3, 5, 12])
def test_op_10_views_of_one_projection(nheads, backend):
    headdim, dstate = 8, 4
    d_inner = nheads * headdim
    generator = torch.Generator().manual_seed(1)
    projected = torch.randn(2, 21, 2 * d_inner + 2 * dstate + nheads, generator=generator)

    def split(tensor):
        z, x, B, C, dt = tensor.split([d_inner, d_inner, dstate, dstate, nheads], dim=-1)
        heads = {"x": x.unflatten(-1, (nheads, headdim)), "z": z.unflatten(-1, (nheads, headdim))}
        return heads | {"B": B.unsqueeze(2), "C": C.unsqueeze(2), "dt": dt}

    def run(make):
        leaf = projected.clone().requires_grad_()
        A = -torch.arange(1.0, nheads + 1)
        y, states = scan(8, backend=backend)(A=A, **{name: make(t) for name, t in split(leaf).items()})
        (y.pow(2).sum() + states.pow(2).sum()).backward()
        return y, states, leaf.grad

    for have, want in zip(run(lambda t: t), run(lambda t: t.contiguous()), strict=True):
        torch.testing.assert_close(have, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("with_states", [False, True])
@pytest.mark.parametrize("seqlen", [1, 2, 3, 4, 5])
def test_op_15_gradcheck_of_short_sequences(seqlen, with_states, backend):
    tensors = random_ssd((1, seqlen, 2, 3, 1, 2), torch.float64)
    if not with_states:
        del tensors["initial_states"]
    leaves = [t.requires_grad_() for t in tensors.values()]

    def of_all(*values):
        return scan(4, backend=backend)(**dict(zip(tensors, values, strict=True)))

    assert torch.autograd.gradcheck(of_all, leaves)


def test_op_18_vanishing_decay_over_a_long_sequence(backend):
    one = torch.ones(1, 4096, 1, 1)
    A = -torch.exp(torch.tensor([-12.0]))
    y, _ = ssd_scan(one, one[..., 0], A, one, one, chunk_size=64, backend=backend)
    exact = (1 - torch.exp(A.double() * 4096)) / (1 - torch.exp(A.double()))
    assert y[0, -1].item() == pytest.approx(exact.item(), rel=1e-5)


def test_op_18_a_float16_overflow_shows_as_infinity(backend):
    one = torch.ones(1, 4096, 1, 1, dtype=torch.float16)
    y, states = ssd_scan(20 * one, one[..., 0], torch.zeros(1), one, one, chunk_size=64, backend=backend)
    assert y[0, -1].isinf().all()
    assert states.item() == pytest.approx(20 * 4096)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_op_20_two_runs_are_equal_bit_for_bit(dtype, backend):
    torch.use_deterministic_algorithms(True)
    tensors = random_ssd((2, 100, 4, 16, 2, 16), dtype)
    runs = [outputs_and_gradients(scan(32, backend=backend), tensors, OUTPUTS) for _ in range(2)]
    for name, value in runs[0].items():
        assert torch.equal(value, runs[1][name]), name


@pytest.mark.parametrize(("batch", "seqlen"), [(0, 5), (2, 0), (0, 0)])
@pytest.mark.parametrize("with_states", [False, True])
def test_op_21_empty_batch_or_sequence(batch, seqlen, with_states, backend):
    tensors = random_ssd((batch, seqlen, 2, 4, 1, 3), torch.float32)
    initial = tensors["initial_states"].clone()
    if not with_states:
        del tensors["initial_states"]
        initial = torch.zeros_like(initial)
    leaves = {name: t.requires_grad_() for name, t in tensors.items()}
    y, final_states = scan(8, backend=backend)(**leaves)
    assert y.shape == (batch, seqlen, 2, 4)
    assert torch.equal(final_states, initial)
    (y.sum() + final_states.sum()).backward()
    for name, leaf in leaves.items():
        expected = torch.ones_like(leaf) if name == "initial_states" else torch.zeros_like(leaf)
        assert torch.equal(leaf.grad, expected), name
