"""Command-line overrides: quote what Hydra would trip over, and name keys and choices that do not exist."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, Quote, QuotedString
from hydra.errors import HydraException
from omegaconf import DictConfig

from vmamba2.training.config.problems import Problem, closest, listed, unknown_key

# Text whatever it looks like: 2024 is a folder name, and a comma is no sweep.
PATH_KEYS = {
    "data.root",
    "data.train_dir",
    "data.val_dir",
    "ckpt_path",
    "resume",
    "weights",
    "run_dir",
    "paths.runs",
}
TEXT_KEYS = PATH_KEYS | {"name"}
# Values that mean something other than text.
PLAIN = {"", "null", "None", "???", "auto"}
STRUCTURE = "[{'\"$"


@dataclass(frozen=True)
class Library:
    """The config files that a command line can choose from: the main folder and further search paths."""

    loader: ConfigLoader
    config_name: str
    searchpath: tuple[str, ...] = ()

    def choices(self, group: str) -> list[str]:
        """The files of a group, none when there is no such group."""
        return self._list(group, ObjectType.CONFIG)

    def groups(self) -> list[str]:
        """The groups at the top."""
        return [name for name in self._list("", ObjectType.GROUP) if name != "hydra"]

    def _list(self, group: str, kind: ObjectType) -> list[str]:
        names: list[str] = self.loader.get_group_options(
            group, results_filter=kind, config_name=self.config_name, overrides=list(self.searchpath)
        )
        return names


def normalise(argument: str, *, sweep: bool) -> str:
    """Quote a value that Hydra would misread: a path with `=`, commas or non-ASCII letters."""
    key, equals, value = argument.partition("=")
    if not equals or value in PLAIN or value[0] in STRUCTURE:
        return argument
    name = key.lstrip("+~")
    if name in PATH_KEYS:
        value = os.path.expanduser(value)
    text = name in TEXT_KEYS and not (sweep and _parses(argument))
    if text or not _parses(argument):
        return f"{key}={QuotedString(value, Quote.single).with_quotes()}"
    return argument


def parse(arguments: list[str], library: Library) -> tuple[list[Override], list[Problem]]:
    """Parse overrides one by one, so that one that cannot be read hides no other."""
    parser = OverridesParser.create(config_loader=library.loader)
    overrides, problems = [], []
    for argument in arguments:
        try:
            overrides += parser.parse_overrides([argument])
        except HydraException:
            key, equals, value = argument.partition("=")
            example = f"quote the value: \"{key}='...'\"" if equals else "key=value"
            problems.append(
                Problem(key or argument, repr(value if equals else argument), f"what can be read: {example}")
            )
    return overrides, problems


def check_groups(overrides: list[Override], library: Library) -> tuple[list[Override], list[Problem]]:
    """Split off the overrides that choose a group's file and check that the files exist."""
    chosen, problems = [], []
    for override in filter(_is_choice, overrides):
        key = override.key_or_group
        choices = library.choices(key)
        if not choices:
            continue
        names = [str(name) for name in _choices_of(override) if name is not None]
        wrong = [name for name in names if name not in choices]
        problems += [
            Problem(key, repr(name), f"one of {listed(choices)}", closest(name, choices)) for name in wrong
        ]
        if not wrong:
            chosen.append(override)
    return chosen, problems


def check_keys(overrides: list[Override], base: DictConfig, library: Library) -> list[Problem]:
    """Check that overrides without `+` name keys of the composed configuration."""
    problems = []
    for override in overrides:
        key = override.key_or_group
        if override.is_add() or override.is_force_add() or (_is_choice(override) and library.choices(key)):
            continue
        value = None if override.is_delete() or override.is_sweep_override() else override.value()
        wrong = [path for path in _paths(key, value) if not _exists(base, path.split("."))]
        problems += [_unknown(path, base, library) for path in wrong]
    return problems


def _is_choice(override: Override) -> bool:
    """Whether an override may choose a group's file: `model=x`, but not `model={...}` and not `~model`."""
    return not override.is_delete() and (
        override.is_sweep_override() or not isinstance(override.value(), dict)
    )


def _paths(key: str, value: Any) -> list[str]:
    """The keys that an override sets: those inside when its value is a dict."""
    if not isinstance(value, dict) or not value:
        return [key]
    return [path for name in value for path in _paths(f"{key}.{name}", value[name])]


def _unknown(key: str, base: DictConfig, library: Library) -> Problem:
    parent, _, leaf = key.rpartition(".")
    siblings = _siblings(base, parent.split(".") if parent else [])
    if not parent:
        siblings = [name for name in dict.fromkeys([*siblings, *library.groups()]) if name != "hydra"]
    problem = unknown_key(key, siblings) if siblings else None
    if problem is None or not problem.hint:
        everywhere = [path for path in _leaves(base) if path.rpartition(".")[2] == leaf]
        near = everywhere[0] if everywhere else closest(key, _leaves(base))
        allowed = problem.allowed if problem else "keys of the configuration (see --cfg job)"
        return Problem(key, "a key that does not exist", allowed, near)
    return problem


def _choices_of(override: Override) -> list[Any]:
    if override.is_sweep_override():
        return (
            [str(value) for value in override.sweep_string_iterator()] if override.is_discrete_sweep() else []
        )
    value = override.value()
    return value if isinstance(value, list) else [value]


def _parses(argument: str) -> bool:
    try:
        OverridesParser.create().parse_overrides([argument])
    except HydraException:
        return False
    return True


def _exists(config: Any, path: list[str]) -> bool:
    for name in path:
        if not isinstance(config, DictConfig) or name not in config.keys():  # noqa: SIM118  `in` hides missing values
            return False
        config = config._get_node(name)
    return True


def _siblings(config: Any, path: list[str]) -> list[str]:
    for name in path:
        config = config._get_node(name) if isinstance(config, DictConfig) and name in config.keys() else None  # noqa: SIM118
    return [str(name) for name in config] if isinstance(config, DictConfig) and not config._is_none() else []


def _leaves(config: DictConfig, prefix: str = "") -> Iterator[str]:
    for name in map(str, config):
        key = f"{prefix}.{name}" if prefix else name
        node = config._get_node(name)
        if isinstance(node, DictConfig) and not node._is_none() and not node._is_missing():
            if key != "hydra":
                yield from _leaves(node, key)
        else:
            yield key
