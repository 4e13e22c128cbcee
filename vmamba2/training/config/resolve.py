"""Resolve a composed config into plain containers and report what cannot be resolved."""

from __future__ import annotations

import re
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from vmamba2.training.config.problems import Problem
from vmamba2.training.config.values import MISSING


def resolve(config: DictConfig | ListConfig, key: str = "") -> tuple[Any, list[Problem]]:
    """Plain dicts, lists and values of a config, with a marker where a value is missing, and the problems."""
    problems: list[Problem] = []
    if isinstance(config, ListConfig):
        items = [_resolve_item(config, i, f"{key}[{i}]", problems) for i in range(len(config))]
        return items, problems
    names = [str(name) for name in config]
    return {
        name: _resolve_item(config, name, f"{key}.{name}" if key else name, problems) for name in names
    }, problems


def _resolve_item(config: Any, name: Any, key: str, problems: list[Problem]) -> Any:
    if OmegaConf.is_missing(config, name):
        problems.append(Problem(key, "nothing (???)", f"a value: add {key}=..."))
        return MISSING
    try:
        value = config[name]
    except OmegaConfBaseException as error:
        raw: Any = OmegaConf.to_container(config)
        reason = str(error).strip().splitlines()[0]
        # What refers to something broken is reported where that stands, once.
        culprit = re.search(r"key '([^']+)' not found", reason)
        elsewhere = culprit is not None and culprit[1] not in str(raw[name])
        if not elsewhere and "MissingMandatoryValue" not in reason:
            problems.append(Problem(key, repr(raw[name]), f"what resolves ({reason})"))
        return MISSING
    if isinstance(value, (DictConfig, ListConfig)):
        plain, found = resolve(value, key)
        problems.extend(found)
        return plain
    return value
