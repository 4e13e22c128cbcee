"""Random calls on the twin, outputs and gradients: sizes, options and strides that no table thought of."""

import math
import random
from functools import partial

import pytest
import torch

from ops_ascend import selective_scan, ssd_cross_scan, ssd_scan
from ops_ascend.errors import random_selective, random_ssd
from tests.ops.forward import PRECISIONS
from tests.ops.gradients import errors, exact_gradients, twin_gradients
from tests.ops.policy import assert_native

HEADDIMS = (1, 3, 5, 8, 16, 17, 24, 32, 48, 64, 80, 100, 128, 200, 256)
DSTATES = (1, 2, 7, 8, 16, 24, 40, 64, 65, 72, 128, 130, 192, 256)
LENGTHS = (1, 2, 15, 16, 17, 63, 64, 65, 100, 127, 128, 129, 200, 300, 513)
GRIDS = ((1, 1), (1, 20), (2, 5), (3, 7), (7, 3), (9, 14), (14, 9), (33, 2), (64, 1), (16, 16))
LIMITS = ((0.0, math.inf), (0.0, math.inf), (0.01, 0.05), (0.001, 0.1))
MOST_STEPS = 1.5e7  # of the recurrence: batch x seqlen x nheads x headdim x dstate


def sizes(draw, seqlen):
    """Sizes of a call; fewer heads and batch entries where the rest is large."""
    headdim, dstate, ngroups = draw.choice(HEADDIMS), draw.choice(DSTATES), draw.choice((1, 1, 2, 3))
    for batch, per_group in ((draw.choice((1, 2, 3, 5)), draw.choice((1, 2, 3, 5, 8, 9, 17))), (1, 2)):
        nheads = ngroups * per_group
        if batch * seqlen * nheads * headdim * dstate <= MOST_STEPS:
            return batch, seqlen, nheads, headdim, ngroups, dstate
    return 1, seqlen, 1, headdim, 1, dstate


def other_strides(tensor, draw):
    """The same values with heads outside tokens, in wider rows, or in every second token; NaN in between."""
    kind = draw.randrange(4)
    if kind == 0:
        return tensor
    if kind == 1:
        return tensor.transpose(1, 2).contiguous().transpose(1, 2)
    ones = (1,) * (tensor.dim() - 2)
    dim, shape = (-1, (1, *ones, 2)) if kind == 2 else (1, (1, 2, *ones))
    wider = torch.full([n * times for n, times in zip(tensor.shape, shape, strict=True)], torch.nan)
    wider = wider.to(tensor.dtype)
    view = wider.narrow(-1, 0, tensor.shape[-1]) if dim == -1 else wider[:, ::2]
    return view.copy_(tensor)


def optional(tensors, draw):
    """Leave out some of what can be left out."""
    left = dict(tensors)
    for name in ("D", "z", "dt_bias", "initial_states"):
        if name in left and draw.random() < 0.35:
            del left[name]
    if "D" in left and draw.random() < 0.5:
        left["D"] = left["D"][:, 0].clone()
    if draw.random() < 0.3:
        left["dt"] = left["dt"].float()
    return {n: other_strides(t, draw) if n in ("x", "B", "C", "z") else t for n, t in left.items()}


def random_call(seed):
    """An operator, its tensors and the precision to run it with."""
    draw = random.Random(seed)
    precision = draw.choice(("accurate", "accurate", "half", "bfloat16", "float16"))
    options = {"chunk_size": draw.choice((16, 64, 256)), "dt_softplus": draw.random() < 0.7}
    options["dt_limit"] = draw.choice(LIMITS)
    cross = draw.random() < 0.4
    if cross:
        height, width = draw.choice(GRIDS)
        options |= {"height": height, "width": width, "directions": draw.choice((1, 2, 4))}
    seqlen = height * width if cross else draw.choice(LENGTHS)
    tensors = random_ssd(sizes(draw, seqlen), PRECISIONS[precision][0], seed=seed)
    if not options["dt_softplus"]:
        tensors["dt"] = tensors["dt"].abs() * 0.3
    if cross:
        del tensors["initial_states"]
    elif draw.random() < 0.3:
        generator = torch.Generator().manual_seed(seed)
        marks = torch.rand(tensors["dt"].shape[:2], generator=generator) < 0.05
        options["seq_idx"] = marks.long().cumsum(1)
    return partial(ssd_cross_scan if cross else ssd_scan, **options), optional(tensors, draw), precision


@pytest.mark.parametrize("seed", range(60))
def test_random_calls_are_accurate_and_silent(seed, chip):
    scan, tensors, precision = random_call(seed)
    _, operands, judged_as = PRECISIONS[precision]
    names = ("y",) if scan.func is ssd_cross_scan else ("y", "state")
    measured = twin_gradients(scan, tensors, chip, operands, (seed,), names)
    assert_native(errors(measured, exact_gradients(scan, tensors, names)), judged_as)


def random_selective_call(seed):
    """selective_scan with its options, and its tensors."""
    draw = random.Random(seed)
    ngroups, dstate, seqlen = draw.choice((1, 1, 2, 3)), draw.choice(DSTATES), draw.choice(LENGTHS)
    dim = ngroups * draw.choice((1, 2, 5, 16, 31, 64, 65, 90, 128, 200))
    batch = draw.choice((1, 2, 5))
    if batch * dim * seqlen * dstate > MOST_STEPS / 4:
        batch, dim, seqlen = 1, ngroups * 3, min(seqlen, 65)
    dtype = draw.choice((torch.float32, torch.float32, torch.bfloat16, torch.float16))
    tensors = random_selective((batch, dim, seqlen, ngroups, dstate), dtype, seed=seed)
    left = {n: t for n, t in tensors.items() if n not in ("D", "z", "delta_bias") or draw.random() > 0.35}
    softplus = draw.random() < 0.7
    if not softplus:
        left |= {n: left[n].abs() * 0.1 for n in ("delta", "delta_bias") if n in left}
    if draw.random() < 0.3:
        left["delta"] = left["delta"].float()
    strided = {n: other_strides(t, draw) for n, t in left.items() if n in ("u", "z")}
    return partial(selective_scan, delta_softplus=softplus), left | strided


@pytest.mark.parametrize("seed", range(60))
def test_random_selective_scans_are_accurate_and_silent(seed, chip):
    scan, tensors = random_selective_call(seed)
    measured = twin_gradients(scan, tensors, chip, seeds=(seed,))
    assert_native(errors(measured, exact_gradients(scan, tensors)), tensors["u"].dtype)
