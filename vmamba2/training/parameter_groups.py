"""Optimizer and parameter groups: what is decayed, what is not, and at which share of the learning rate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from timm.optim import create_optimizer_v2, param_groups_layer_decay, param_groups_weight_decay
from torch import nn
from torch.optim import Optimizer


def parameter_groups(
    model: nn.Module, *, weight_decay: float, layer_decay: float | None = None
) -> list[dict[str, Any]]:
    """Split the trainable parameters of a model by weight decay (and by depth with layer decay).

    Weight decay spares everything one-dimensional (norms, biases, one number per head) and what the model
    names in `no_weight_decay()`: A_log, D and dt_bias set the time constants of the scan, and decay would
    pull them to ones that mean nothing, whatever their shape.
    """
    no_weight_decay = getattr(model, "no_weight_decay", None)
    spared = set(no_weight_decay()) if callable(no_weight_decay) else set()
    # By keyword: the order of these arguments has changed between releases of timm.
    if layer_decay is not None:
        return param_groups_layer_decay(
            model, weight_decay=weight_decay, no_weight_decay_list=spared, layer_decay=layer_decay
        )
    return param_groups_weight_decay(model, weight_decay=weight_decay, no_weight_decay_list=spared)


def build_optimizer(model: nn.Module, settings: Mapping[str, Any]) -> Optimizer:
    """Build a timm optimizer from the keys of the `optimizer` config group; null leaves timm's default."""
    options = {name: value for name, value in settings.items() if value is not None}
    weight_decay, layer_decay = options["weight_decay"], options.pop("layer_decay", None)
    groups = parameter_groups(model, weight_decay=weight_decay, layer_decay=layer_decay)
    if not groups:
        raise ValueError("model: no parameter is trainable, at least one must be")
    return create_optimizer_v2(groups, **options)


def count_decayed(optimizer: Optimizer) -> tuple[int, int]:
    """How many tensors of an optimizer have weight decay, and how many have none."""
    counts = [(len(group["params"]), bool(group.get("weight_decay"))) for group in optimizer.param_groups]
    return sum(n for n, decayed in counts if decayed), sum(n for n, decayed in counts if not decayed)
