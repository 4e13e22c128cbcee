"""Checkpoint files: which are written, when, and that they are whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback

from vmamba2.training.callbacks import RunCheckpoints
from vmamba2.training.callbacks.checkpoints import replace_by_link
from vmamba2.training.checkpoint_files import describe_checkpoint, load_checkpoint, resume_path
from vmamba2.training.checkpoint_io import AtomicCheckpoints


def test_cfg_1_a_run_writes_last_and_best_without_an_equals_sign(build: Any) -> None:
    run = build().fit()
    names = sorted(path.name for path in (run.folder / "checkpoints").iterdir())
    assert names == ["best.ckpt", "last.ckpt"]
    assert describe_checkpoint(run.folder / "checkpoints/last.ckpt").epochs == 2


@pytest.mark.parametrize(
    ("mode", "scores", "kept"),
    [("max", [50, 75, 75, 60], 1), ("min", [3, 1, 2, 1], 1), ("max", [float("nan"), 1], 1)],
)
def test_tr_5_best_file_is_that_of_the_first_best_epoch(
    build: Any, mode: str, scores: list[float], kept: int
) -> None:
    class Score(Callback):
        def on_validation_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            pl_module.log("score", torch.tensor(float(scores[trainer.current_epoch])))

    run = build(
        f"trainer.max_epochs={len(scores)}", f"callbacks.checkpoints.mode={mode}", callbacks=(Score(),)
    )
    run.callback(RunCheckpoints).monitor = "score"
    run.fit()
    assert run.checkpoint("best.ckpt")["epoch"] == kept
    assert run.checkpoint("last.ckpt")["epoch"] == len(scores) - 1
    assert run.callback(RunCheckpoints).best_epoch == kept + 1


def test_an_epoch_without_validation_is_saved_but_is_not_the_best(build: Any) -> None:
    run = build("trainer.max_epochs=3", "trainer.check_val_every_n_epoch=2").fit()
    assert run.callback(RunCheckpoints).best_epoch == 2
    assert run.checkpoint("last.ckpt")["epoch"] == 2
    assert ["val/acc1" in row for row in run.rows()] == [False, True, False]


def test_an_unknown_monitor_names_the_metrics_there_are(build: Any) -> None:
    run = build("trainer.max_epochs=1", "callbacks.checkpoints.monitor=val/f1")
    with pytest.raises(
        ValueError, match=r"monitor \(val/f1\) must be a metric of this run: val/acc1, val/acc5"
    ):
        run.fit()


def test_a_save_that_fails_leaves_the_file_before(tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    AtomicCheckpoints().save_checkpoint({"epoch": torch.tensor(1)}, path)
    with pytest.raises((TypeError, AttributeError)):
        AtomicCheckpoints().save_checkpoint({"epoch": torch.tensor(2), "bad": (i for i in range(3))}, path)
    assert torch.load(path, weights_only=True)["epoch"] == 1
    assert [file.name for file in tmp_path.iterdir()] == ["last.ckpt"]


def test_a_link_replaces_a_file_and_survives_the_next_save(tmp_path: Path) -> None:
    best, last = tmp_path / "best.ckpt", tmp_path / "last.ckpt"
    writer = AtomicCheckpoints()
    writer.save_checkpoint({"epoch": 1}, last)
    writer.save_checkpoint({"epoch": 2}, best)
    replace_by_link(best, last)
    assert torch.load(last, weights_only=True)["epoch"] == 2
    writer.save_checkpoint({"epoch": 3}, last)
    assert torch.load(best, weights_only=True)["epoch"] == 2


def test_resume_path_by_what_resume_says(tmp_path: Path) -> None:
    last = tmp_path / "checkpoints/last.ckpt"
    assert resume_path(None, tmp_path) is None
    assert resume_path("auto", tmp_path) is None
    AtomicCheckpoints().save_checkpoint({}, last)
    assert resume_path("auto", tmp_path) == last
    assert resume_path(str(tmp_path), Path("elsewhere")) == last
    assert resume_path("a/b.ckpt", tmp_path) == Path("a/b.ckpt")


def test_ck_6_a_file_that_is_no_checkpoint_says_why(tmp_path: Path) -> None:
    noise, weights, code = tmp_path / "noise.ckpt", tmp_path / "weights.ckpt", tmp_path / "code.ckpt"
    noise.write_bytes(b"not a checkpoint")
    torch.save({"state_dict": {}}, weights)
    torch.save({"state_dict": {}, "hyper_parameters": Path("x")}, code)
    for path, message in (
        (noise, "it cannot be read"),
        (
            weights,
            "it has no optimizer_states and no loops and no hyper_parameters; bare weights go into weights=",
        ),
        (code, "it cannot be read: Weights only load failed"),
    ):
        with pytest.raises(ValueError, match=message):
            load_checkpoint(path)
