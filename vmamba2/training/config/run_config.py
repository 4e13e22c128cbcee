"""The configuration a run leaves in its folder, and the one way to read it back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

NAME = "config.yaml"


def save_run_config(config: DictConfig, run_dir: Path) -> Path:
    """Write the resolved configuration of a run into its folder."""
    path = run_dir / NAME
    temporary = path.with_name(f".{NAME}.tmp")
    temporary.write_text(OmegaConf.to_yaml(config, resolve=True), encoding="utf-8")
    temporary.replace(path)
    return path


def load_run_config(path: str | Path) -> dict[str, Any]:
    """Read the configuration of a run: a config.yaml, or the run folder that holds one.

    Numbers are numbers: plain YAML readers give `1e-3` as text.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not the configuration of a run.
    """
    path = Path(path)
    file = path / NAME if path.is_dir() else path
    if not file.is_file():
        raise FileNotFoundError(f"run config ({file}) must exist: the {NAME} of a run folder")
    try:
        config = OmegaConf.to_container(OmegaConf.load(file), resolve=True)
    except (yaml.YAMLError, OmegaConfBaseException) as error:
        raise ValueError(f"run config ({file}) must be YAML: {str(error).splitlines()[0]}") from error
    if not isinstance(config, dict) or not {"model", "data", "trainer"} <= set(config):
        raise ValueError(f"run config ({file}) must hold the groups model, data and trainer")
    return {str(key): value for key, value in config.items()}


def differences(before: Any, now: Any, key: str = "") -> list[str]:
    """Leaves that differ between two plain configurations, as `key old -> new`."""
    if isinstance(before, dict) and isinstance(now, dict):
        names = list(dict.fromkeys([*before, *now]))
        return [
            line
            for n in names
            for line in differences(before.get(n), now.get(n), f"{key}.{n}" if key else str(n))
        ]
    return [] if before == now else [f"{key} {before} -> {now}"]
