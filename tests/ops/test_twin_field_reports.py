"""What people run into, from public reports: the forward kernel of both chips on the twin."""

from functools import partial

import numpy as np
import pytest
import torch

from ops_ascend import ssd_scan
from ops_ascend.errors import random_ssd, tensor_error
from tests.ops.forward import SEEDS, errors, exact_forward, twin_forward
from tests.ops.policy import assert_accurate
from tests.ops.test_ssd_traps import TRAPS, inputs

TOKENS = ("x", "dt", "B", "C", "z")
ONE_SEED = SEEDS[:1]


def scan(chunk_size=64, **options):
    return partial(ssd_scan, chunk_size=chunk_size, dt_softplus=True, **options)


def assert_same(have, want):
    for a, b in zip(have, want, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("autocast", [False, True])
def test_op_1_196_tokens(autocast, chip):
    tensors = random_ssd((2, 196, 12, 64, 1, 64), torch.float32) | {"dt_bias": torch.zeros(12)}
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        outputs = twin_forward(scan(256), tensors, chip)
    assert_same(outputs, twin_forward(scan(64), tensors, chip, seeds=ONE_SEED))
    assert_accurate(errors(outputs, exact_forward(scan(64), tensors)), torch.float32)


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
    y, final_states = twin_forward(scan(), tensors, chip)
    assert_same(twin_forward(scan(), sliced, chip), (y, final_states))
    longer_y, longer_states = twin_forward(scan(), padded, chip)
    assert_same((longer_y[:, :seqlen], longer_states), (y, final_states))


@pytest.mark.parametrize("seqlen", [300, 512, 1000])
def test_op_3_nothing_depends_on_the_chunk_size(seqlen, chip):
    tensors = random_ssd((1, seqlen, 2, 16, 1, 16), torch.float32)
    outputs = twin_forward(scan(64), tensors, chip, seeds=ONE_SEED)
    for chunk_size in (1, 16, 32, 128, 256, 512):
        assert_same(twin_forward(scan(chunk_size), tensors, chip, seeds=ONE_SEED), outputs)
    assert_accurate(errors(outputs, exact_forward(scan(), tensors)), torch.float32)


def test_op_5_packed_sequences_equal_separate_runs(chip):
    lengths = (50, 64, 202, 92, 123)
    tensors = random_ssd((1, sum(lengths), 2, 16, 1, 16), torch.float32)
    del tensors["initial_states"]
    seq_idx = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))[None]
    y, final_states = twin_forward(scan(seq_idx=seq_idx), tensors, chip)
    parts = {name: tensors[name].split(lengths, dim=1) for name in TOKENS}
    runs = [
        twin_forward(scan(), tensors | {name: parts[name][i] for name in TOKENS}, chip, seeds=ONE_SEED)
        for i in range(len(lengths))
    ]
    exact = torch.cat([run[0] for run in runs], dim=1), runs[-1][1]
    assert_accurate(errors((y, final_states), exact), torch.float32)


def test_op_6_segments_with_carried_state_equal_the_whole(chip):
    tensors = random_ssd((2, 256, 2, 16, 1, 16), torch.float32)
    whole = twin_forward(scan(), tensors, chip)
    state, parts = tensors["initial_states"], []
    for begin in range(0, 256, 64):
        own = {n: t[:, begin : begin + 64] if n in TOKENS else t for n, t in tensors.items()}
        part, state = twin_forward(scan(), own | {"initial_states": state}, chip, seeds=ONE_SEED)
        parts.append(part)
    assert_accurate(errors((torch.cat(parts, dim=1), state), whole), torch.float32)


@pytest.mark.parametrize("nheads", [1, 2, 3, 5, 12])
def test_op_10_views_of_one_projection(nheads, chip):
    headdim, dstate = 8, 4
    d_inner = nheads * headdim
    projected = torch.randn(2, 81, 2 * d_inner + 2 * dstate + nheads)
    z, x, B, C, dt = projected.split([d_inner, d_inner, dstate, dstate, nheads], dim=-1)
    heads = {"x": x.unflatten(-1, (nheads, headdim)), "z": z.unflatten(-1, (nheads, headdim))}
    A = -torch.arange(1.0, nheads + 1)
    tensors = heads | {"dt": dt, "A": A, "B": B.unsqueeze(2), "C": C.unsqueeze(2)}
    have = twin_forward(scan(), tensors, chip)
    assert_same(have, twin_forward(scan(), {n: t.contiguous() for n, t in tensors.items()}, chip))


@pytest.mark.parametrize("headdim", [4, 16, 24, 32, 48, 64, 80, 128])
def test_op_11_head_and_state_sizes(headdim, chip):
    for dstate in (8, 16, 48, 64, 128, 256):
        tensors = random_ssd((1, 70, 3, headdim, 1, dstate), torch.float32)
        outputs = twin_forward(scan(), tensors, chip, seeds=ONE_SEED)
        assert_accurate(errors(outputs, exact_forward(scan(), tensors)), torch.float32)


def far_apart(tensor, dim, stride):
    """The same values with a huge stride, behind memory that is reserved and never touched elsewhere."""
    strides = list(torch.empty_like(tensor).stride())
    strides[dim] = stride
    span = sum((size - 1) * step for size, step in zip(tensor.shape, strides, strict=True)) + 1
    memory = torch.from_numpy(np.zeros(span, dtype=np.float32))
    return memory.as_strided(tensor.shape, strides).copy_(tensor)


@pytest.mark.parametrize(("name", "dim"), [("dt", 1), ("x", 0)])
def test_op_13_offsets_beyond_two_to_the_31(name, dim, chip):
    tensors = random_ssd((2, 6, 2, 8, 1, 8), torch.float32)
    stride = 2**29 - 8 if dim == 1 else 2**31 + 64
    wide = far_apart(tensors[name], dim, stride)
    assert (wide.shape[dim] - 1) * wide.stride(dim) > 2**31
    have = twin_forward(scan(), tensors | {name: wide}, chip, seeds=ONE_SEED)
    assert_same(have, twin_forward(scan(), tensors, chip, seeds=ONE_SEED))


def equals_split_batches(tensors, chip, chunk_size):
    """Compare with runs of single batch entries: the first, one in the middle, the last."""
    y, final_states = twin_forward(scan(chunk_size), tensors, chip, seeds=ONE_SEED)
    batch = len(y)
    for i in (0, batch // 2, batch - 1):
        one = {n: t[i : i + 1] if n in (*TOKENS, "initial_states") else t for n, t in tensors.items()}
        alone = exact_forward(scan(chunk_size), one)
        assert_accurate(errors((y[i : i + 1], final_states[i : i + 1]), alone), torch.float32)
    assert y.isfinite().all()
    assert final_states.isfinite().all()


@pytest.mark.slow
def test_op_14_more_programs_than_a_grid_axis_holds(chip):
    tensors = random_ssd((10_923, 32, 6, 4, 1, 4), torch.float32)
    equals_split_batches(tensors, chip, 32)


@pytest.mark.slow
def test_npu_6_more_heads_and_chunks_than_65535(chip):
    tensors = random_ssd((2048, 64, 8, 4, 1, 4), torch.float32)  # 2048 x 8 heads x 4 chunks of 16 = 65,536
    equals_split_batches(tensors, chip, 16)


def test_op_18_vanishing_decay_over_a_long_sequence(chip):
    one = torch.ones(1, 4096, 1, 1)
    A = -torch.exp(torch.tensor([-12.0]))
    tensors = {"x": one, "dt": one[..., 0], "A": A, "B": one, "C": one}
    y, _ = twin_forward(partial(ssd_scan, chunk_size=64), tensors, chip)
    exact = (1 - torch.exp(A.double() * 4096)) / (1 - torch.exp(A.double()))
    assert y[0, -1].item() == pytest.approx(exact.item(), rel=1e-5)


def test_op_18_a_float16_overflow_shows_as_infinity(chip):
    one = torch.ones(1, 4096, 1, 1, dtype=torch.float16)
    tensors = {"x": 20 * one, "dt": one[..., 0], "A": torch.zeros(1), "B": one, "C": one}
    y, final_states = twin_forward(partial(ssd_scan, chunk_size=64), tensors, chip)
    assert y[0, -1].isinf().all()
    assert final_states.item() == pytest.approx(20 * 4096)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_op_22_what_the_existing_operator_refuses(dtype, chip):
    """P = 32, N = 16, chunk 128, 16-bit tensors, strided x: native, in the same pass."""
    tensors = random_ssd((2, 150, 4, 32, 2, 16), dtype)
    outputs = twin_forward(scan(128), tensors, chip)
    assert_accurate(errors(outputs, exact_forward(scan(128), tensors)), dtype)
    strided = tensors | {
        "x": tensors["x"].permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2),
        "dt": tensors["dt"].mT.contiguous().mT,
        "z": tensors["z"].transpose(1, 2).contiguous().transpose(1, 2),
    }
    assert not any(strided[name].is_contiguous() for name in ("x", "dt", "z"))
    assert_same(twin_forward(scan(128), strided, chip), outputs)


#  nheads headdim dstate; with many heads a task holds more than one of them
LARGE = [(4, 128, 128), (4, 256, 256), (4, 128, 256), (4, 256, 64), (34, 256, 256), (34, 200, 130)]


@pytest.mark.parametrize(("nheads", "headdim", "dstate"), LARGE)
def test_npu_7_large_tiles_fit_the_chip_and_stay_accurate(nheads, headdim, dstate, chip):
    tensors = random_ssd((1, 256 if nheads == 4 else 70, nheads, headdim, 1, dstate), torch.float32)
    outputs = twin_forward(scan(256), tensors, chip)
    assert_accurate(errors(outputs, exact_forward(scan(256), tensors)), torch.float32)


@pytest.mark.parametrize(
    ("seqlen", "chunk_size", "dt", "A", "bias"), [t[1:] for t in TRAPS], ids=[t[0] for t in TRAPS]
)
def test_traps(seqlen, chunk_size, dt, A, bias, chip):
    tensors = inputs(seqlen, dt, A, bias)
    outputs = twin_forward(scan(chunk_size), tensors, chip)
    assert_accurate(errors(outputs, exact_forward(scan(chunk_size), tensors)), torch.float32)


@pytest.mark.parametrize("name", ["x", "dt", "B", "C"])
def test_t12_nan_in_gives_nan_out_wherever_the_recurrence_does(name, chip):
    tensors = inputs(40, 0.0, -1.0)
    tensors[name][0, 10] = torch.nan
    for have, want in zip(
        twin_forward(scan(16), tensors, chip), exact_forward(scan(16), tensors), strict=True
    ):
        assert have[want.isnan()].isnan().all()


def test_t8_expanded_groups_have_a_stride_of_zero(chip):
    tensors = random_ssd((2, 70, 4, 8, 1, 8), torch.float32)
    del tensors["initial_states"]
    expanded = {n: tensors[n].expand(2, 70, 2, 8) for n in ("B", "C")}
    outputs = twin_forward(scan(), tensors | expanded, chip)
    exact = exact_forward(scan(), tensors | expanded)
    assert tensor_error("y", outputs[0], exact[0]).relative_rms <= 1e-5
