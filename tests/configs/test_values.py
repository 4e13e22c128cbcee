"""Plain values against annotations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from vmamba2.training.config.targets import check_target
from vmamba2.training.config.values import OneOf, Range, check_value

Share = Annotated[float, Range(low=0, below=1)]


@dataclass
class Box:
    """Two keys, one of them optional."""

    side: Annotated[int, Range(low=1)]
    label: str | None = None


class Thing:
    """A target."""

    def __init__(self, size: int, *, box: Box | Mapping[str, Any] | None = None, mode: str = "a") -> None:
        self.size = size


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (1, int), (1, float), (1.5, float), (True, bool), ("x", str), (None, int | None), ("x", Path),
        (0, Share), ([1, 2], list[int]), ([1.0, 2], Sequence[float]), ([1, 2.0], tuple[int, float]),
        ("a", Literal["a", "b"]), ({"a": 1}, dict[str, int]), ({"side": 2}, Box), (object(), Any),
        ({"side": 2, "label": None}, Box | None), ("auto", int | Literal["auto"]),
        ("x", Annotated[str, OneOf(("x", "y"))]),
    ],
)  # fmt: skip
def test_a_fitting_value_is_no_problem(value: Any, annotation: Any) -> None:
    assert check_value("k", value, annotation) == []


@pytest.mark.parametrize(
    ("value", "annotation", "line"),
    [
        (True, int, "k: got True; allowed a whole number"),
        (1.0, int, "k: got 1.0; allowed a whole number"),
        ("1", int, "k: got '1'; allowed a whole number"),
        (True, float, "k: got True; allowed a number"),
        (1, bool, "k: got 1; allowed true or false"),
        (1, str, "k: got 1; allowed text"),
        (None, int, "k: got None; allowed a whole number"),
        (1.0, Share, "k: got 1.0; allowed a number >= 0 and < 1"),
        (float("nan"), Share, "k: got nan; allowed a number >= 0 and < 1"),
        (1, Share | None, "k: got 1; allowed a number >= 0 and < 1"),
        ("x", Share | None, "k: got 'x'; allowed a number >= 0 and < 1 or null"),
        ("abc", list[str], "k: got 'abc'; allowed a list of text"),
        ([1, "x"], list[int], "k[1]: got 'x'; allowed a whole number"),
        ([1], tuple[int, int], "k: got [1]; allowed a list of 2 values"),
        ("c", Literal["a", None], "k: got 'c'; allowed one of a, null"),
        ({"a": "x"}, dict[str, int], "k.a: got 'x'; allowed a whole number"),
        ({"side": 0}, Box, "k.side: got 0; allowed a whole number >= 1"),
        ({}, Box, "k.side: got nothing; allowed a whole number >= 1"),
        ({"side": 1, "lable": "x"}, Box | None, "did you mean k.label?"),
        (3, Box, "k: got 3; allowed a group of keys"),
        (
            "abd",
            Annotated[str, OneOf(("abc", "xyz"))],
            "k: got 'abd'; allowed one of abc, xyz; did you mean abc?",
        ),
    ],
)
def test_a_wrong_value_is_one_line(value: Any, annotation: Any, line: str) -> None:
    (problem,) = check_value("k", value, annotation)
    assert line in str(problem)


def lines(node: dict[str, Any]) -> list[str]:
    return [str(problem) for problem in check_target("node", {"_target_": f"{__name__}.Thing", **node})]


def test_a_target_is_checked_against_its_constructor() -> None:
    assert lines({"size": 3, "box": {"side": 1}}) == []
    assert lines({}) == ["node.size: got nothing; allowed a whole number"]
    assert lines({"size": "x", "sise": 2}) == [
        "node.sise: got a key that does not exist; allowed size, box, mode; did you mean node.size?",
        "node.size: got 'x'; allowed a whole number",
    ]
    assert lines({"size": 1, "box": {"side": 0}}) == ["node.box.side: got 0; allowed a whole number >= 1"]
