"""Checks of configuration values; each message is one sentence of the form `thing (value) must rule`."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from dataclasses import fields
from numbers import Integral, Real
from typing import Any, TypeVar

T = TypeVar("T")


def check_count(name: str, value: object, minimum: int) -> None:
    """Require a whole number that is not too small."""
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < minimum:
        raise ValueError(f"{name} ({value}) must be a whole number, at least {minimum}")


def check_number(name: str, value: object, low: float, high: float) -> None:
    """Require a number in a closed range."""
    if isinstance(value, bool) or not isinstance(value, Real) or not low <= float(value) <= high:
        rule = (
            f"a number between {low:g} and {high:g}" if high < float("inf") else f"a number, at least {low:g}"
        )
        raise ValueError(f"{name} ({value}) must be {rule}")


def check_range(name: str, value: object, low: float, high: float) -> None:
    """Require two numbers in ascending order inside a closed range."""
    problem = ValueError(f"{name} ({value}) must be two numbers, low then high, between {low:g} and {high:g}")
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != 2:
        raise problem
    if not all(isinstance(v, Real) for v in value) or not low <= float(value[0]) <= float(value[1]) <= high:
        raise problem


def check_choice(name: str, value: object, choices: Collection[str]) -> None:
    """Require one of a few words."""
    if value not in choices:
        raise ValueError(
            f"{name} ({value}) must be one of {', '.join(choices)}{did_you_mean(str(value), choices)}"
        )


def did_you_mean(word: str, choices: Collection[str]) -> str:
    """Give the end of a message that names the nearest choice, empty when none is near."""
    near = difflib.get_close_matches(word, choices, n=1)
    if not near:
        near = [choice for choice in choices if choice.casefold() == word.casefold()][:1]
    return f"; did you mean '{near[0]}'?" if near else ""


def options(name: str, kind: type[T], value: Any) -> T:
    """Return options given as an object of their class, or as a mapping of some of its fields, or null.

    Args:
        name: the config key, for the message.
        kind: a dataclass with a default for every field.
        value: an object of that class, a mapping, or None for the defaults.
    """
    if isinstance(value, kind):
        return value
    allowed = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    given = dict(value or {})
    for key in given:
        if key not in allowed:
            raise ValueError(
                f"{name}.{key} must be one of {', '.join(allowed)}{did_you_mean(str(key), allowed)}"
            )
    return kind(**given)
