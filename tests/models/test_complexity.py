"""Parameters and multiply-adds."""

import pytest
import timm
import torch
from torch.utils.flop_counter import FlopCounterMode

from vmamba2.models import count_multiply_adds, count_parameters
from vmamba2.models.__main__ import size_table


def by_hand(dim, grid, classes, *, patch=4, headdim=16, dstate=8, directions=4, mlp_ratio=4):
    """Multiply-adds of a network with one stage of one block, ngroups 1, and 3 input channels."""
    tokens, d_inner = grid * grid, 2 * dim
    d_conv = d_inner + 2 * dstate
    nheads = d_inner // headdim
    matmuls = dim * (d_inner + d_conv + nheads) + d_inner * dim + 2 * dim * dim * mlp_ratio
    convolutions = 3 * patch**2 * dim + 9 * (2 * dim + d_conv)
    # Per state and token: decay it, add dt x B, read it with C.
    scan = 3 * d_inner * dstate * directions
    return tokens * (matmuls + convolutions + scan) + dim * classes


@pytest.mark.parametrize("directions", [1, 4])
def test_multiply_adds_by_hand(make_small, directions):
    model = make_small(dims=(32,), depths=(1,), ngroups=1, chunk_sizes=16, directions=directions)
    expected = by_hand(32, 8, 7, directions=directions)
    assert count_multiply_adds(model, (3, 32, 32)) == expected


def test_counting_on_shapes_equals_counting_a_real_run(make_small):
    model = make_small()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(torch.randn(1, 3, 40, 32))
    assert 2 * count_multiply_adds(model, (3, 40, 32)) == counter.get_total_flops()


def test_counting_leaves_the_model_alone(make_small):
    model = make_small(drop_path_rate=0.5, drop_rate=0.5)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    count = count_multiply_adds(model, (3, 32, 32))
    assert model.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert (
        count
        == count_multiply_adds(model.eval(), (3, 32, 32))
        == count_multiply_adds(model.half(), (3, 32, 32))
    )


def test_a_large_image_costs_no_memory():
    model = timm.create_model("vmamba2_base", device="meta")
    assert count_multiply_adds(model, (3, 2048, 2048)) > 500e9


def test_count_parameters_counts_shared_ones_once(make_small):
    model = make_small()
    before = count_parameters(model)
    assert before == sum(tensor.numel() for tensor in model.state_dict().values())
    model.stages[1][1].cpe2 = model.stages[1][1].cpe1
    assert count_parameters(model) == before - 32 * 10


def test_size_table():
    lines = size_table(["vmamba2_nano", "vmamba2_tiny"]).splitlines()
    assert lines[0].count("|") == lines[1].count("|") == lines[2].count("|") == 6
    assert lines[3].startswith("| `vmamba2_tiny` | 96, 192, 384, 768 | 2, 2, 6, 2 | 38.70 M | ")
    assert len(lines) == 4
