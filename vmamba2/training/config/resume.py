"""Find the run that `resume` continues, so that it goes on in its own folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import Quote, QuotedString
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from vmamba2.training.checkpoint_files import FOLDER, LAST
from vmamba2.training.config.run_config import NAME, differences, load_run_config

SAME = ("model", "data")


def continue_overrides(config: DictConfig, arguments: list[str]) -> list[str]:
    """The override that sends a resumed run back to its folder, when the command line names no `run_dir`.

    `resume=auto` continues the newest run of this name with the same model and data; a named checkpoint or
    run folder continues there.
    """
    if (
        config.resume is None
        or config.task != "fit"
        or any(text.startswith("run_dir=") for text in arguments)
    ):
        return []
    folder = find_run(config) if config.resume == "auto" else _folder_of(Path(config.resume))
    return [f"run_dir={QuotedString(str(folder), Quote.single).with_quotes()}"] if folder else []


def find_run(config: DictConfig) -> Path | None:
    """The newest run folder with a checkpoint, of this name, model and data."""
    try:
        runs = Path(config.paths.runs) / config.name
        wanted = {name: OmegaConf.to_container(config[name], resolve=True) for name in SAME}
    except OmegaConfBaseException:
        # What does not resolve is reported by the check of the whole configuration.
        return None
    found = sorted(runs.glob(f"*/{FOLDER}/{LAST}"), key=lambda path: path.stat().st_mtime, reverse=True)
    return next((path.parent.parent for path in found if _same(path.parent.parent, wanted)), None)


def _same(run_dir: Path, wanted: dict[str, Any]) -> bool:
    if not (run_dir / NAME).is_file():
        return False
    config = load_run_config(run_dir)
    # A run writes down the number of classes that it found; null stands for that one.
    changes = [line for name in SAME for line in differences(config.get(name), wanted[name])]
    return all(line.startswith("num_classes ") and line.endswith(" None") for line in changes)


def _folder_of(path: Path) -> Path | None:
    if path.is_dir():
        return path
    is_run = path.parent.name == FOLDER and (path.parent.parent / NAME).is_file()
    return path.parent.parent if is_run else None
