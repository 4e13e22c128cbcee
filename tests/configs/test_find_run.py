"""Which run `resume=auto` continues."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from vmamba2.training.config.resume import continue_overrides, find_run
from vmamba2.training.config.run_config import save_run_config


@pytest.fixture
def leave_run(compose: Any, tmp_path: Path) -> Any:
    """Leave a run folder as a run of some overrides would, older than those left before."""
    ages = iter(range(1, 100))

    def leave(folder: str, *overrides: str) -> Path:
        config = compose(*overrides)
        config.data.num_classes = config.model.num_classes = 10
        path = tmp_path / folder
        (path / "checkpoints").mkdir(parents=True)
        save_run_config(config, path)
        last = path / "checkpoints/last.ckpt"
        last.write_bytes(b"")
        os.utime(last, (1_000_000 - next(ages), 1_000_000 - next(ages)))
        return path

    return leave


def test_the_newest_run_of_the_same_model_and_data_is_found(leave_run: Any, compose: Any) -> None:
    leave_run("runs/vmamba2_nano/other_data", "data.batch_size=32")
    newest = leave_run("runs/vmamba2_nano/newest", "optimizer.lr=1e-4")
    leave_run("runs/vmamba2_nano/older")
    leave_run("runs/elsewhere/run")
    found = find_run(compose())
    assert found is not None
    assert found.resolve() == newest.resolve()


def test_a_run_of_another_model_or_data_is_never_continued(leave_run: Any, compose: Any) -> None:
    leave_run("runs/vmamba2_nano/other", "model.drop_path_rate=0.1")
    assert find_run(compose()) is None
    assert continue_overrides(compose("resume=auto"), ["resume=auto"]) == []


def test_a_named_checkpoint_or_folder_is_continued_where_it_lies(leave_run: Any, compose: Any) -> None:
    folder = leave_run("mine, with = and ü")
    config = compose()
    for resume in (folder, folder / "checkpoints/last.ckpt"):
        config.resume = str(resume)
        assert continue_overrides(config, []) == [f"run_dir='{folder}'"]
        assert continue_overrides(config, ["run_dir=other"]) == []
    config.resume = "somewhere/x.ckpt"
    assert continue_overrides(config, []) == []
