"""What of a command line reaches Hydra."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vmamba2.training.config.overrides import normalise


def quoted(argument: str) -> str:
    return normalise(argument, sweep=False)


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("ckpt_path=runs/epoch=3-step=10.ckpt", "ckpt_path='runs/epoch=3-step=10.ckpt'"),
        ("data.root=/data/新加卷2/x", "data.root='/data/新加卷2/x'"),
        ("data.root=/a folder, with commas (1)", "data.root='/a folder, with commas (1)'"),
        ("data.root=it's", r"data.root='it\'s'"),
        ("data.root='already = quoted'", "data.root='already = quoted'"),
        ("data.root=2024", "data.root='2024'"),
        ("name=007", "name='007'"),
        ("resume=auto", "resume=auto"),
        ("weights=null", "weights=null"),
        ("+data.extra=a=b", "+data.extra='a=b'"),
        ("optimizer.lr=1e-3", "optimizer.lr=1e-3"),
        ("data.mean=[0.5,0.4]", "data.mean=[0.5,0.4]"),
        ("data.root=${paths.runs}/x", "data.root=${paths.runs}/x"),
        ("experiment=quickstart", "experiment=quickstart"),
    ],
)
def test_values_that_hydra_would_misread_are_quoted(argument: str, expected: str) -> None:
    assert quoted(argument) == expected


def test_a_tilde_is_the_home_folder() -> None:
    assert quoted("data.root=~/photos") == f"data.root='{Path.home()}/photos'"


def test_paths_can_be_swept() -> None:
    assert normalise("data.root=a,b", sweep=True) == "data.root=a,b"
    assert quoted("data.root=a,b") == "data.root='a,b'"


@pytest.mark.parametrize("folder", ["a=b", "新加卷2", "with blank", "com,ma", "epoch=3, (ü)", "2024", "it's"])
def test_cfg_1_cfg_2_any_folder_works_as_data_root(
    arguments_of: Any, compose: Any, tmp_path: Path, folder: str
) -> None:
    (tmp_path / folder).mkdir()
    for root in (folder, str(tmp_path / folder)):
        arguments_of("data=imagefolder", f"data.root={root}")
        assert compose("data=imagefolder", f"data.root={root}").data.root == root


def test_flags_may_stand_anywhere(arguments_of: Any) -> None:
    assert arguments_of("seed=0,1", "-m", "trainer=cpu") == ["-m", "seed=0,1", "trainer=cpu"]
    assert arguments_of("trainer=cpu", "--cfg", "job", "--resolve") == [
        "--cfg",
        "job",
        "--resolve",
        "trainer=cpu",
    ]
    assert arguments_of("--help") == ["--help"]


def test_a_configuration_can_be_shown_before_it_is_complete(arguments_of: Any) -> None:
    assert arguments_of("--cfg", "job", "data=imagefolder")[-1] == "data=imagefolder"


def test_a_search_path_of_ones_own_offers_its_files(arguments_of: Any, tmp_path: Path) -> None:
    (tmp_path / "own/experiment").mkdir(parents=True)
    (tmp_path / "own/experiment/mine.yaml").write_text("# @package _global_\ntrainer:\n  max_epochs: 3\n")
    assert arguments_of("-cd", "own", "experiment=mine") == ["-cd", "own", "experiment=mine"]
    path = f"hydra.searchpath=[file://{tmp_path}/own]"
    assert arguments_of(path, "experiment=mine") == [path, "experiment=mine"]
