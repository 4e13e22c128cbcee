"""From the command line to a configuration that is known to be right, before Hydra makes a folder."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from hydra import compose, initialize_config_dir
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra._internal.utils import get_args_parser
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from vmamba2.training.config.check import check_config
from vmamba2.training.config.overrides import Library, check_groups, check_keys, normalise, parse
from vmamba2.training.config.problems import ConfigError, Problem
from vmamba2.training.config.resume import continue_overrides

CONFIG_NAME = "train"
EXIT_CODE = 2


def checked_arguments(arguments: list[str], config_dir: Path) -> list[str]:
    """The command line for Hydra; when anything in it is wrong, report all of it and exit with code 2."""
    try:
        return prepare(arguments, config_dir)
    except ConfigError as error:
        sys.stderr.write(error.report() + "\n")
        raise SystemExit(EXIT_CODE) from None


def prepare(arguments: list[str], config_dir: Path) -> list[str]:
    """Quote, complete and check a command line.

    Args:
        arguments: the command line without the program's name.
        config_dir: the folder of the configs.

    Returns:
        The command line to hand to Hydra.

    Raises:
        ConfigError: it cannot run.
    """
    # Flags may stand between overrides; Hydra itself wants them at one end.
    options = get_args_parser().parse_intermixed_args(arguments)
    if (
        options.help
        or options.hydra_help
        or options.shell_completion
        or options.info
        or options.experimental_rerun
    ):
        return arguments
    fixed = [normalise(text, sweep=options.multirun) for text in options.overrides]
    rest = [text for text in arguments if text not in options.overrides]
    name = options.config_name or CONFIG_NAME
    # Like Hydra, from the folder of the program.
    folder = config_dir.parent / options.config_path if options.config_path else config_dir
    added: list[str] = []
    with initialize_config_dir(str(folder.absolute()), version_base="1.3"):
        library = _library(name, fixed, options.config_dir)
        if options.multirun:
            _check_sweep(fixed, library, values=not options.cfg)
        elif options.cfg:
            _compose(fixed, library)
        else:
            config = _compose(fixed, library)
            added = continue_overrides(config, fixed)
            _raise(check_config(_compose([*fixed, *added], library) if added else config))
    return [*rest, *fixed, *added]


def compose_config(config_dir: Path, overrides: list[str]) -> DictConfig:
    """Compose and check one run; raises ConfigError."""
    fixed = [normalise(text, sweep=False) for text in overrides]
    with initialize_config_dir(str(config_dir), version_base="1.3"):
        config = _compose(fixed, _library(CONFIG_NAME, fixed, None))
    _raise(check_config(config))
    return config


def _library(name: str, arguments: list[str], config_dir: str | None) -> Library:
    named = [text for text in arguments if text.startswith("hydra.searchpath=")]
    extra = [f"hydra.searchpath=[file://{Path(config_dir).absolute()}]"] if config_dir else []
    return Library(GlobalHydra.instance().config_loader(), name, tuple(extra or named))


def _compose(arguments: list[str], library: Library) -> DictConfig:
    """Compose one job; every override that cannot apply is a problem."""
    overrides, problems = parse(arguments, library)
    problems += [
        Problem(
            o.key_or_group, f"{o.get_value_string()} (several values)", "one value, or -m to try them all"
        )
        for o in overrides
        if o.is_sweep_override()
    ]
    overrides = [override for override in overrides if not override.is_sweep_override()]
    groups, group_problems = check_groups(overrides, library)
    problems += group_problems
    with _composition_problems(problems):
        path = list(library.searchpath)
        base = compose(library.config_name, path + [_text(o) for o in groups], return_hydra_config=True)
        wrong = check_keys(overrides, base, library)
        bad = tuple(f"{problem.key}." for problem in problems + wrong)
        good = [o for o in overrides if not any(key.startswith(f"{o.key_or_group}.") for key in bad)]
        texts = [_text(o) for o in good if o.key_or_group != "hydra.searchpath"]
        composed = compose(library.config_name, path + texts, return_hydra_config=True)
    OmegaConf.set_struct(composed, False)
    composed.pop("hydra")
    if problems + wrong:
        _raise(problems + wrong + check_config(composed))
    return composed


@contextmanager
def _composition_problems(known: list[Problem] | None = None) -> Iterator[None]:
    try:
        yield
    except (HydraException, OmegaConfBaseException, yaml.YAMLError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        problem = Problem(
            "config", lines[0] if lines else type(error).__name__, "; ".join(lines[1:3]) or "what composes"
        )
        raise ConfigError([*(known or []), problem]) from None


def _check_sweep(arguments: list[str], library: Library, *, values: bool) -> None:
    """Check every job of a sweep."""
    overrides, problems = parse(arguments, library)
    if any(override.key_or_group == "hydra/sweeper" for override in overrides):
        # Only that sweeper knows its jobs; what they share can be checked.
        overrides = [override for override in overrides if not override.is_sweep_override()]
    with _composition_problems(problems):
        jobs = BasicSweeper.split_arguments(overrides, None)[0]
    for job in jobs:
        try:
            config = _compose(job, library)
        except ConfigError as error:
            problems += error.problems
            continue
        problems += check_config(config) if values else []
        devices: Any = config.trainer.devices
        if devices not in (1, "1", [0]):
            # Every further process of a job would start the whole sweep again.
            allowed = "1 in a sweep (-m): start such runs singly"
            problems.append(Problem("trainer.devices", str(devices), allowed))
    _raise(problems)


def _text(override: Override) -> str:
    assert override.input_line is not None
    return override.input_line


def _raise(problems: list[Problem]) -> None:
    if problems:
        raise ConfigError(problems)
