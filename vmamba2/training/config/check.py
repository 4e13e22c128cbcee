"""Check a whole configuration: every group against its schema, then the rules between groups."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import timm
import timm.optim
from lightning.pytorch import Trainer
from omegaconf import DictConfig

from vmamba2.training.config import schema
from vmamba2.training.config.problems import Problem, closest, listed, unknown_key
from vmamba2.training.config.resolve import resolve
from vmamba2.training.config.rules import cross_check
from vmamba2.training.config.targets import arguments_of, check_target
from vmamba2.training.config.values import check_fields

BUILT_BY_THE_RUN = ("callbacks", "logger", "plugins")


def check_config(config: DictConfig) -> list[Problem]:
    """Every problem of a composed run configuration."""
    values, problems = resolve(config)
    problems += check_fields("", values, schema.TrainConfig)
    groups = {name: node for name, node in values.items() if isinstance(node, Mapping)}
    problems += _check_model(groups.get("model", {}))
    problems += _check_data(groups.get("data", {}))
    problems += _check_optimizer(groups.get("optimizer", {}))
    problems += _check_trainer(groups.get("trainer", {}))
    for group in ("callbacks", "logger"):
        for name, node in groups.get(group, {}).items():
            problems += check_target(f"{group}.{name}", node) if node is not None else []
    return list(dict.fromkeys(problems)) or cross_check(values)


def _check_model(node: Mapping[str, Any]) -> list[Problem]:
    problems = check_fields("model", node, schema.ModelConfig, extra=True)
    problems += check_target("model", node, typed=False)
    name = node.get("model_name")
    if isinstance(name, str) and not timm.is_model(name):
        ours = [known for known in timm.list_models() if "mamba" in known]
        near = closest(name, ours) or closest(name, timm.list_models())
        problems.append(
            Problem("model.model_name", repr(name), f"{listed(ours)} or any other timm model", near)
        )
    return problems


def _check_data(node: Mapping[str, Any]) -> list[Problem]:
    return check_fields("data", node, schema.DataConfig, extra=True) + check_target("data", node)


def _check_optimizer(node: Mapping[str, Any]) -> list[Problem]:
    problems = check_fields("optimizer", node, schema.OptimizerConfig, extra=True)
    if any(problem.key == "optimizer.opt" for problem in problems):
        return problems
    fields = [field.name for field in dataclasses.fields(schema.OptimizerConfig)]
    own = set(arguments_of(timm.optim.get_optimizer_class(node["opt"]))) - {"params"}
    known = [*fields, *sorted(own - set(fields))]
    problems += [unknown_key(f"optimizer.{name}", known) for name in node if name not in known]
    for name in ("betas", "eps"):
        if node.get(name) is not None and name not in own:
            problems.append(Problem(f"optimizer.{name}", repr(node[name]), f"null: {node['opt']} has none"))
    return problems


def _check_trainer(node: Mapping[str, Any]) -> list[Problem]:
    problems = check_fields("trainer", node, schema.TrainerConfig, extra=True)
    known = [name for name in arguments_of(Trainer) if name not in BUILT_BY_THE_RUN]
    names = [name for name in node if name != "_target_" and name not in known]
    return problems + [unknown_key(f"trainer.{name}", known) for name in names]
