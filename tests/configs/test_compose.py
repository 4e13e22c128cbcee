"""Every config file composes, passes the checks and says how to run it."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import timm.optim
import timm.scheduler
import torch
from omegaconf import OmegaConf

from vmamba2.training.parameter_groups import build_optimizer
from vmamba2.training.schedule import UpdateSchedule

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


def files(group: str) -> list[str]:
    return sorted(path.stem for path in (CONFIGS / group).glob("*.yaml"))


def plain(config: Any) -> dict[str, Any]:
    values: Any = OmegaConf.to_container(config, resolve=True)
    return values


@pytest.mark.parametrize(
    "override",
    [
        f"{g}={n}"
        for g in ("optimizer", "scheduler", "logger", "callbacks", "paths", "debug")
        for n in files(g)
    ]
    + [f"trainer={name}" for name in files("trainer") if torch.cuda.is_available() or name != "cuda"]
    + [f"model={name} data.in_chans=3 data.mean=[0.5] data.std=[0.5]" for name in files("model")]
    + ["data=digits", "data=synthetic", "data=imagefolder data.root=."],
)
def test_every_choice_of_every_group_composes(compose: Any, override: str) -> None:
    compose(*override.split())


@pytest.mark.parametrize("name", files("experiment"))
def test_every_experiment_composes(compose: Any, name: str) -> None:
    root = ["data.root=."] if "imagefolder" in (CONFIGS / f"experiment/{name}.yaml").read_text() else []
    config = compose(f"experiment={name}", *root)
    assert config.trainer.max_epochs >= 1


@pytest.mark.parametrize(
    "path", [f"experiment/{n}" for n in files("experiment")] + [f"debug/{n}" for n in files("debug")]
)
def test_recipes_open_with_the_command_that_runs_them(path: str) -> None:
    lines = (CONFIGS / f"{path}.yaml").read_text().splitlines()
    group, name = path.split("/")
    assert lines[0] == "# @package _global_"
    assert re.match(rf"#   python train\.py .*{group}={name}( |$)", lines[2])
    if group == "experiment":
        comment = "\n".join(line for line in lines if line.startswith("#"))
        assert "Cost" in comment
        assert "esult" in comment


def test_no_arguments_are_the_quickstart(compose: Any) -> None:
    default, quickstart = plain(compose()), plain(compose("experiment=quickstart"))
    for values in (default, quickstart):
        values.pop("run_dir")
        values["trainer"].pop("default_root_dir")
        for callback in values["callbacks"].values():
            callback.pop("run_dir", None)
    assert quickstart == default
    assert default["model"]["model_name"] == "vmamba2_nano"
    assert default["data"]["_target_"] == "data.digits.DigitsDataModule"


@pytest.mark.parametrize("name", files("optimizer"))
def test_optimizer_files_build_and_hold_only_arguments_of_timm_and_the_optimizer(
    compose: Any, name: str
) -> None:
    settings = plain(compose(f"optimizer={name}").optimizer)
    known = set(inspect.signature(timm.optim.create_optimizer_v2).parameters)
    known |= set(inspect.signature(timm.optim.get_optimizer_class(settings["opt"])).parameters)
    assert settings.keys() <= known
    optimizer = build_optimizer(torch.nn.Linear(2, 2), settings)
    assert {group["lr"] for group in optimizer.param_groups} == {settings["lr"]}


@pytest.mark.parametrize("name", files("scheduler"))
def test_scheduler_files_build_and_hold_only_arguments_of_timm(compose: Any, name: str) -> None:
    settings = plain(compose(f"scheduler={name}").scheduler)
    assert settings.keys() <= set(inspect.signature(timm.scheduler.create_scheduler_v2).parameters)
    built = UpdateSchedule(torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1), settings, 10)
    assert max(built.learning_rate(update) for update in range(10 * settings["num_epochs"])) == pytest.approx(
        0.1
    )


def test_the_working_directory_never_changes_and_file_names_hold_no_equals_sign(compose: Any) -> None:
    text = (CONFIGS / "train.yaml").read_text()
    assert "chdir: false" in text
    assert "=" not in plain(compose())["run_dir"]
