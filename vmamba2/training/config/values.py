"""Check plain values against type annotations, dataclasses included."""

from __future__ import annotations

import dataclasses
import inspect
import math
import types
import typing
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any, Literal, Union, get_args, get_origin

from vmamba2.training.config.problems import Problem, closest, listed, unknown_key


@dataclass(frozen=True)
class Range:
    """Bounds of a number: `Annotated[float, Range(0, 1)]`; a bound named `above` or `below` is excluded."""

    low: float | None = None
    high: float | None = None
    above: float | None = None
    below: float | None = None

    def holds(self, value: float) -> bool:
        """Whether a number lies inside."""
        return (
            math.isfinite(value)
            and (self.low is None or value >= self.low)
            and (self.high is None or value <= self.high)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )

    def __str__(self) -> str:
        bounds = [(">=", self.low), (">", self.above), ("<=", self.high), ("<", self.below)]
        return " and ".join(f"{sign} {bound:.10g}" for sign, bound in bounds if bound is not None)


@dataclass(frozen=True)
class OneOf:
    """Text out of a list that is only known at run time."""

    names: tuple[str, ...]

    def __str__(self) -> str:
        return f"one of {listed(self.names)}"


class _Missing:
    """Stands where a value could not be resolved and was reported already."""


MISSING = _Missing()


def check_value(key: str, value: Any, annotation: Any) -> list[Problem]:
    """The problems of one value (and of all values below it) against an annotation."""
    if value is MISSING or annotation is Any or annotation is inspect.Parameter.empty:
        return []
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is typing.Annotated:
        return _check_annotated(key, value, arguments[0], arguments[1:])
    if origin in (Union, types.UnionType):
        return _check_union(key, value, arguments)
    if dataclasses.is_dataclass(annotation) and isinstance(value, Mapping):
        return check_fields(key, value, typing.cast(type, annotation))
    if not _fits(value, annotation):
        near = closest(str(value), map(str, arguments)) if origin is Literal else ""
        return [Problem(key, repr(value), describe(annotation), near)]
    return _check_items(key, value, origin, arguments)


def check_fields(key: str, values: Mapping[str, Any], cls: type, *, extra: bool = False) -> list[Problem]:
    """The problems of a mapping against the fields of a dataclass; `extra` allows other keys."""
    hints = typing.get_type_hints(cls, include_extras=True)
    fields = {field.name: field for field in dataclasses.fields(cls)}
    unknown = [] if extra else [name for name in values if name not in fields and name != "_target_"]
    problems = [unknown_key(_join(key, name), fields) for name in unknown]
    for name, field in fields.items():
        if name in values:
            problems += check_value(_join(key, name), values[name], hints[name])
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            problems.append(Problem(_join(key, name), "nothing", describe(hints[name])))
    return problems


def describe(annotation: Any) -> str:
    """What an annotation allows, in words for a message."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is typing.Annotated:
        return _describe_annotated(arguments[0], arguments[1:])
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(describe(argument) for argument in arguments))
    if origin is Literal:
        return "one of " + listed("null" if word is None else word for word in arguments)
    if _is_sequence(origin or annotation):
        return f"a list of {describe(arguments[0])}" if arguments else "a list"
    if dataclasses.is_dataclass(annotation) or _is_mapping(origin or annotation):
        return "a group of keys"
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    if annotation is None or annotation is type(None):
        return "null"
    return names.get(annotation, getattr(annotation, "__name__", str(annotation)))


def _describe_annotated(base: Any, rules: tuple[Any, ...]) -> str:
    choices = [str(rule) for rule in rules if isinstance(rule, OneOf)]
    bounds = [str(rule) for rule in rules if isinstance(rule, Range)]
    return choices[0] if choices else " ".join([describe(base), *bounds])


def _check_annotated(key: str, value: Any, base: Any, rules: tuple[Any, ...]) -> list[Problem]:
    allowed = _describe_annotated(base, rules)
    problems = check_value(key, value, base)
    if problems:
        return [Problem(problem.key, problem.got, allowed) for problem in problems]
    for rule in rules:
        if isinstance(rule, Range) and value is not None and not rule.holds(value):
            return [Problem(key, repr(value), allowed)]
        if isinstance(rule, OneOf) and value is not None and value not in rule.names:
            return [Problem(key, repr(value), allowed, closest(str(value), rule.names))]
    return []


def _check_union(key: str, value: Any, arguments: tuple[Any, ...]) -> list[Problem]:
    classes = [argument for argument in arguments if dataclasses.is_dataclass(argument)]
    if isinstance(value, Mapping) and len(classes) == 1:
        return check_value(key, value, classes[0])
    found = [check_value(key, value, argument) for argument in arguments]
    if any(not problems for problems in found):
        return []
    # A member whose shape fits says more than the list of all members: a number out of range, a bad key.
    for argument, problems in zip(arguments, found, strict=True):
        if isinstance(value, (Mapping, list)) and any(problem.key != key for problem in problems):
            return problems
        if get_origin(argument) is typing.Annotated and _fits(value, get_args(argument)[0]):
            return problems
    allowed = " or ".join(dict.fromkeys(describe(argument) for argument in arguments))
    hints = [problem.hint for problems in found for problem in problems if problem.hint]
    return [Problem(key, repr(value), allowed, hints[0] if hints else "")]


def _check_items(key: str, value: Any, origin: Any, arguments: tuple[Any, ...]) -> list[Problem]:
    if _is_sequence(origin) and arguments and not isinstance(value, str):
        kinds = [kind for kind in arguments if kind is not Ellipsis]
        if origin is tuple and Ellipsis not in arguments:
            if len(value) != len(kinds):
                return [Problem(key, repr(value), f"a list of {len(kinds)} values")]
        else:
            kinds = kinds[:1] * len(value)
        return [p for i, item in enumerate(value) for p in check_value(f"{key}[{i}]", item, kinds[i])]
    if _is_mapping(origin) and len(arguments) == 2:
        return [p for name in value for p in check_value(f"{key}.{name}", value[name], arguments[1])]
    return []


def _fits(value: Any, annotation: Any) -> bool:
    origin = get_origin(annotation) or annotation
    if origin is Literal:
        return any(value == word and type(value) is type(word) for word in get_args(annotation))
    if origin is None or origin is type(None):
        return value is None
    if origin is bool:
        return isinstance(value, bool)
    if origin is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if origin is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if origin is str or (isinstance(origin, type) and issubclass(origin, PathLike)):
        return isinstance(value, str)
    if _is_sequence(origin):
        return isinstance(value, (list, tuple))
    if _is_mapping(origin) or dataclasses.is_dataclass(origin):
        return isinstance(value, Mapping)
    return True


def _is_sequence(origin: Any) -> bool:
    return origin in (list, tuple, set, frozenset, Sequence, Iterable, Collection)


def _is_mapping(origin: Any) -> bool:
    return origin in (dict, Mapping) or (isinstance(origin, type) and issubclass(origin, Mapping))


def _join(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else str(name)
