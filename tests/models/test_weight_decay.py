"""Which tensors an optimizer shrinks."""

import fnmatch

import pytest
import timm
import torch
from timm.optim import param_groups_weight_decay

CASES = {"vmamba2_nano": 3, "vmamba2_tiny": 12}


@pytest.mark.parametrize(("name", "mixers"), CASES.items())
def test_tr_12_no_weight_decay_names_the_recurrence_of_every_mixer(name, mixers):
    model = timm.create_model(name, device="meta")
    named = model.no_weight_decay()
    assert len(named) == 3 * mixers
    assert named <= {parameter for parameter, _ in model.named_parameters()}
    leaves = [parameter.rsplit(".", 1)[-1] for parameter in named]
    assert {leaf: leaves.count(leaf) for leaf in leaves} == {"A_log": mixers, "D": mixers, "dt_bias": mixers}
    # timm matches the names as patterns: they must match nothing but themselves.
    for parameter, _ in model.named_parameters():
        assert any(fnmatch.fnmatch(parameter, pattern) for pattern in named) == (parameter in named)


@pytest.mark.parametrize(("name", "mixers"), CASES.items())
def test_tr_13_the_number_of_undecayed_tensors(name, mixers):
    model = timm.create_model(name, device="meta")
    groups = param_groups_weight_decay(model, weight_decay=0.05, no_weight_decay_list=model.no_weight_decay())
    spared = {id(p) for group in groups if group["weight_decay"] == 0 for p in group["params"]}
    decayed = {id(p) for group in groups if group["weight_decay"] == 0.05 for p in group["params"]}
    stages = len(model.stages)
    # A block: A_log, dt_bias, D; three norms; biases of two position encodings, the convolution, two linears.
    # Around them: biases of the stem, the downsampling and the head; norms of the downsampling and the end.
    per_block, around = 3 + 3 * 2 + 5, 2 + 2 + (stages - 1) * 3
    assert len(spared) == per_block * mixers + around
    # A block: in_proj, out_proj, the convolution, two position encodings, two linears.
    assert len(decayed) == 7 * mixers + 2 + (stages - 1)
    for parameter_name, parameter in model.named_parameters():
        matrix = parameter.dim() > 1 and not parameter_name.endswith(".D")
        assert (id(parameter) in decayed) == matrix, parameter_name


def test_tr_12_stock_grouping_alone_would_decay_d():
    model = timm.create_model("vmamba2_nano", device="meta")
    groups = param_groups_weight_decay(model, weight_decay=0.05)
    decayed = {id(p) for group in groups if group["weight_decay"] for p in group["params"]}
    assert all(id(p) in decayed for name, p in model.named_parameters() if name.endswith(".D"))


def test_a_step_with_decay_alone_leaves_the_recurrence(make_small):
    model = make_small()
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    groups = param_groups_weight_decay(model, weight_decay=0.5, no_weight_decay_list=model.no_weight_decay())
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    torch.optim.AdamW(groups, lr=0.1).step()
    moved = {name for name, parameter in model.named_parameters() if not torch.equal(parameter, before[name])}
    assert moved.isdisjoint(model.no_weight_decay())
    assert "stages.0.0.mixer.in_proj.weight" in moved
