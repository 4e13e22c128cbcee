"""The configuration that a run leaves is read back by one function."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from vmamba2.training.config.run_config import differences, load_run_config, save_run_config


def test_cfg_4_numbers_come_back_as_numbers(compose: Any, tmp_path: Path) -> None:
    config = compose("optimizer.lr=1e-3", "optimizer.eps=1e-8", "scheduler.warmup_lr=1e-06")
    path = save_run_config(config, tmp_path)
    for source in (tmp_path, path):
        loaded = load_run_config(source)
        assert loaded == OmegaConf.to_container(config, resolve=True)
        assert loaded["optimizer"]["lr"] == 0.001
        assert type(loaded["optimizer"]["eps"]) is float
    # Written by hand, in the form that plain YAML readers take for text.
    path.write_text("optimizer: {lr: 1e-3}\nmodel: {}\ndata: {}\ntrainer: {}\n")
    assert load_run_config(path)["optimizer"]["lr"] == 0.001


@pytest.mark.parametrize(
    ("text", "message"),
    [("model: [1", "must be YAML"), ("a: 1", "must hold the groups model, data and trainer")],
)
def test_a_file_that_is_no_run_config_is_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(ValueError, match=message):
        load_run_config(tmp_path)


def test_a_missing_run_config_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"run config \(.*config.yaml\) must exist"):
        load_run_config(tmp_path)


def test_differences_name_the_leaves() -> None:
    before = {"a": {"b": 1, "c": [1, 2]}, "d": None}
    assert differences(before, {"a": {"b": 2, "c": [1, 2]}, "d": None, "e": 0}) == [
        "a.b 1 -> 2",
        "e None -> 0",
    ]
    assert differences(before, before) == []
