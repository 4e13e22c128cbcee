"""Check the keys of a `_target_` group against the class it builds."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any

from hydra.utils import get_object

from vmamba2.training.config.problems import Problem, unknown_key
from vmamba2.training.config.values import check_value, describe

INSTANTIATE_KEYS = {"_target_", "_partial_", "_recursive_", "_convert_", "_args_"}


def check_target(key: str, node: Any, *, typed: bool = True) -> list[Problem]:
    """The problems of a node with a `_target_`: an unknown class, unknown or missing arguments, types."""
    if not isinstance(node, Mapping) or not isinstance(node.get("_target_"), str):
        return [Problem(f"{key}._target_", "nothing", "the dotted name of a class")]
    target, problem = find_target(key, node["_target_"])
    if target is None:
        return [problem] if problem else []
    parameters = arguments_of(target)
    given = [name for name in node if name not in INSTANTIATE_KEYS]
    problems = []
    if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        problems += [unknown_key(f"{key}.{n}", parameters) for n in given if n not in parameters]
    hints = _hints(target) if typed else {}
    for name, parameter in parameters.items():
        annotation = hints.get(name, Any)
        if isinstance(node.get(name), Mapping) and "_target_" in node[name]:
            problems += check_target(f"{key}.{name}", node[name])
        elif name in node:
            problems += check_value(f"{key}.{name}", node[name], annotation)
        elif parameter.default is parameter.empty and parameter.kind in NAMED:
            problems.append(Problem(f"{key}.{name}", "nothing", describe(annotation)))
    return problems


NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def find_target(key: str, name: str) -> tuple[Callable[..., Any] | None, Problem | None]:
    """The object behind a dotted name, or why there is none."""
    try:
        return get_object(name), None
    except (ImportError, AttributeError, ValueError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        return None, Problem(f"{key}._target_", repr(name), f"a class that can be imported ({reason})")


def arguments_of(target: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The arguments of a class or function, without self."""
    parameters = dict(inspect.signature(target).parameters)
    return {name: p for name, p in parameters.items() if p.kind is not p.VAR_POSITIONAL}


def _hints(target: Callable[..., Any]) -> dict[str, Any]:
    function = target.__init__ if inspect.isclass(target) else target
    try:
        return typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError):
        # Annotations that only a type checker can resolve tell nothing here.
        return {}
