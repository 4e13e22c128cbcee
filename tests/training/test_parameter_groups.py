"""Weight decay spares what it must spare."""

from __future__ import annotations

import timm
import torch
from torch import nn

import vmamba2.models
from vmamba2.training.parameter_groups import build_optimizer, count_decayed, parameter_groups

SIZES = {"dims": (8, 16), "depths": (1, 2), "headdim": 8, "dstate": 8, "ngroups": 1, "chunk_sizes": 16}
SETTINGS = {"opt": "adamw", "lr": 1e-3, "weight_decay": 0.05, "layer_decay": None, "betas": [0.9, 0.999]}


def tiny() -> nn.Module:
    assert vmamba2.models
    return timm.create_model("vmamba2_nano", num_classes=4, in_chans=3, **SIZES)


def decay_by_name(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, float]:
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    groups = optimizer.param_groups
    return {names[id(p)]: group["weight_decay"] for group in groups for p in group["params"]}


def test_tr_12_state_space_parameters_norms_and_biases_are_not_decayed() -> None:
    model = tiny()
    decay = decay_by_name(model, build_optimizer(model, SETTINGS))
    assert decay.keys() == dict(model.named_parameters()).keys()
    leaves = {name: name.rpartition(".")[2] for name in decay}
    assert sum(leaf in ("A_log", "D", "dt_bias") for leaf in leaves.values()) == 9
    for name, parameter in model.named_parameters():
        spared = leaves[name] in ("A_log", "D", "dt_bias", "bias") or parameter.ndim == 1
        assert decay[name] == (0.0 if spared else 0.05), name


def test_tr_13_number_of_spared_tensors_by_kind() -> None:
    model = tiny()
    decayed, spared = count_decayed(build_optimizer(model, SETTINGS))
    mixers = [module for module in model.modules() if hasattr(module, "A_log")]
    norms = [m for m in model.modules() if isinstance(m, nn.LayerNorm) or "Norm" in type(m).__name__]
    biases = sum(name.endswith(".bias") for name, _ in model.named_parameters())
    norm_weights = sum(1 for norm in norms if getattr(norm, "weight", None) is not None)
    assert spared == 3 * len(mixers) + biases + norm_weights
    assert decayed + spared == len(list(model.parameters()))


def test_tr_12_two_dimensional_a_log_is_spared_by_name() -> None:
    class Mamba1(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.A_log, self.weight = nn.Parameter(torch.zeros(4, 8)), nn.Parameter(torch.zeros(4, 8))

        def no_weight_decay(self) -> set[str]:
            return {"A_log"}

    model = Mamba1()
    assert decay_by_name(model, build_optimizer(model, SETTINGS)) == {"A_log": 0.0, "weight": 0.05}


def test_layer_decay_scales_by_depth_and_still_spares() -> None:
    model = tiny()
    groups = parameter_groups(model, weight_decay=0.05, layer_decay=0.5)
    scale = {id(p): group["lr_scale"] for group in groups for p in group["params"]}
    by_name = {name: scale[id(p)] for name, p in model.named_parameters()}
    assert by_name["head.weight"] == 1.0
    assert by_name["patch_embed.weight"] < 0.2
    assert set(by_name.values()) > {0.5, 1.0}
    decay = decay_by_name(model, torch.optim.AdamW(groups))
    assert all(value == 0 for name, value in decay.items() if name.endswith(("A_log", ".D", "dt_bias")))


def test_frozen_parameters_stay_out_of_the_optimizer() -> None:
    model = tiny()
    model.patch_embed.requires_grad_(False)
    decay = decay_by_name(model, build_optimizer(model, SETTINGS))
    assert not any(name.startswith("patch_embed.") for name in decay)
    assert "head.weight" in decay
