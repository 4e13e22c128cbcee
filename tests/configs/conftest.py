"""The command line as train.py reads it, without a process per case."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from omegaconf import DictConfig

from vmamba2.training.config.command_line import compose_config, prepare
from vmamba2.training.config.problems import ConfigError

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


@pytest.fixture
def arguments_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """What train.py hands to Hydra for a command line given in an empty working directory."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: prepare(list(arguments), CONFIGS)


@pytest.fixture
def problems(arguments_of: Callable[..., list[str]], tmp_path: Path) -> Callable[..., list[str]]:
    """The lines that train.py prints for a command line that cannot run; nothing may appear on the disk."""

    def lines(*arguments: str) -> list[str]:
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(ConfigError) as error:
            arguments_of(*arguments)
        assert sorted(tmp_path.rglob("*")) == before
        report = error.value.report().splitlines()
        assert "nothing was started" in report[0]
        assert "Traceback" not in error.value.report()
        return [line.strip() for line in report[1:]]

    return lines


@pytest.fixture
def compose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., DictConfig]:
    """The checked configuration of some overrides."""
    monkeypatch.chdir(tmp_path)
    return lambda *overrides: compose_config(CONFIGS, list(overrides))
