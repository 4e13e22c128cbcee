"""Every mistake on the command line is one line: `key: got X; allowed ...; did you mean ...`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

UNKNOWN = "got a key that does not exist; allowed"
#   id, arguments, the beginning of the line, what it must also say
CASES = [
    ("cfg_3_key", "trainer.max_epoch=1",
     f"trainer.max_epoch: {UNKNOWN}", "did you mean trainer.max_epochs?"),
    ("cfg_3_hydra_key", "hydra.ouput_subdir=x",
     f"hydra.ouput_subdir: {UNKNOWN}", "did you mean hydra.output_subdir?"),
    ("cfg_3_deep_key", "data.train_transform.hflp=0",
     f"data.train_transform.hflp: {UNKNOWN}", "did you mean data.train_transform.hflip?"),
    ("cfg_3_added_key", "+trainer.max_epoch=1",
     f"trainer.max_epoch: {UNKNOWN}", "did you mean trainer.max_epochs?"),
    ("cfg_3_added_callback_key", "+callbacks.progress.refresh=1",
     f"callbacks.progress.refresh: {UNKNOWN}", "did you mean callbacks.progress.refresh_s?"),
    ("key_without_its_group", "lr=1e-3", f"lr: {UNKNOWN}", "did you mean optimizer.lr?"),
    ("misspelt_group", "modle=vmamba2_tiny", f"modle: {UNKNOWN}", "did you mean model?"),
    ("cfg_6_group_choice", "model=nope", "model: got 'nope'; allowed one of", "vmamba2_tiny"),
    ("cfg_6_near_choice", "model=vmamba2_tinny",
     "model: got 'vmamba2_tinny'", "did you mean vmamba2_tiny?"),
    ("cfg_6_value_in_group", "model.name=x", f"model.name: {UNKNOWN}", "did you mean model.model_name?"),
    ("cfg_6_dict_in_group", "optimizer={lrr:1}", f"optimizer.lrr: {UNKNOWN}", "did you mean optimizer.lr?"),
    ("experiment_choice", "experiment=quickstrat",
     "experiment: got 'quickstrat'", "did you mean quickstart?"),
    ("model_name", "model.model_name=vmamba2_tinny",
     "model.model_name: got 'vmamba2_tinny'", "did you mean vmamba2_tiny?"),
    ("number", "optimizer.lr=abc", "optimizer.lr: got 'abc'; allowed a number > 0", ""),
    ("nothing_given", "optimizer.lr=", "optimizer.lr: got ''; allowed a number > 0", ""),
    ("zero_rate", "optimizer.lr=0", "optimizer.lr: got 0; allowed a number > 0", ""),
    ("whole_number", "trainer.max_epochs=1.5",
     "trainer.max_epochs: got 1.5; allowed a whole number >= 1", ""),
    ("switch", "ema.enabled=2", "ema.enabled: got 2; allowed true or false", ""),
    ("infinite", "ema.decay=inf", "ema.decay: got inf; allowed a number > 0 and < 1", ""),
    ("choice", "trainer.precision=bf16",
     "trainer.precision: got 'bf16'; allowed one of 32-true", "did you mean bf16-mixed?"),
    ("task", "task=train", "task: got 'train'; allowed one of fit, validate", ""),
    ("optimizer_name", "optimizer.opt=adamv", "optimizer.opt: got 'adamv'", "did you mean adam"),
    ("optimizer_argument", "+optimizer.beta=0.9",
     f"optimizer.beta: {UNKNOWN}", "did you mean optimizer.betas?"),
    ("list", "optimizer.betas=0.9", "optimizer.betas: got 0.9; allowed a list of a number", ""),
    ("list_item", "optimizer.betas=[0.9,1.5]",
     "optimizer.betas[1]: got 1.5; allowed a number >= 0 and < 1", ""),
    ("missing_value", "data=imagefolder",
     "data.root: got nothing (???); allowed a value: add data.root=...", ""),
    ("class_name", "data._target_=data.digits.Digits",
     "data._target_: got 'data.digits.Digits'; allowed a class", ""),
    ("interpolation", "name=${nope}", "name: got '${nope}'; allowed what resolves", "nope"),
    ("several_values", "optimizer.lr=1e-3,1e-4",
     "optimizer.lr: got 1e-3,1e-4 (several values); allowed one value", "-m"),
    ("no_equals_sign", "quickstart",
     "quickstart: got 'quickstart'; allowed what can be read: key=value", ""),
    ("broken_list", "data.mean=[0.5",
     "data.mean: got '[0.5'; allowed what can be read: quote the value", ""),
    ("devices", "trainer.devices=0", "trainer.devices: got 0; allowed a whole number >= 1", ""),
    ("fp16_on_cpu", "trainer=cpu trainer.precision=16-mixed",
     "trainer.precision: got '16-mixed'; allowed bf16-mixed", "did you mean bf16-mixed?"),
    ("tr_9_odd_batch", "data.mixup.mixup_alpha=0.8 data.batch_size=7",
     "data.batch_size: got 7; allowed an even", "mixup"),
    ("tr_10_smoothing_twice", "data.mixup.label_smoothing=0.3",
     "data.mixup.label_smoothing: got 0.3; allowed 0.1", "loss.label_smoothing"),
    ("warm_up", "trainer.max_epochs=2 scheduler.warmup_epochs=2",
     "scheduler.warmup_epochs: got 2; allowed less than", ""),
    ("horizon", "scheduler.num_epochs=3",
     "scheduler.num_epochs: got 3; allowed at least trainer.max_epochs", ""),
    ("min_lr", "scheduler.min_lr=1", "scheduler.min_lr: got 1; allowed at most optimizer.lr", ""),
    ("channels", "model.in_chans=3", "model.in_chans: got 3; allowed 1, as data.in_chans", ""),
    ("monitor", "ema.enabled=false callbacks.checkpoints.monitor=val/ema_acc1",
     "callbacks.checkpoints.monitor: got 'val/ema_acc1'; allowed a raw metric", ""),
    ("validate_what", "task=validate", "ckpt_path: got null; allowed a checkpoint to validate", ""),
    ("ckpt_path_for_fit", "ckpt_path=x.ckpt", "ckpt_path: got 'x.ckpt'", "did you mean resume=x.ckpt?"),
    ("weights", "weights=x.pt", "weights: got 'x.pt'; allowed an existing file", "no 'x.pt'"),
    ("ck_6_resume", "resume=/no/such/file",
     "resume: got '/no/such/file'; allowed auto, a run folder or a checkpoint", "/ has no 'no'"),
    ("data_root", "data=imagefolder data.root=no/such",
     "data.root: got 'no/such'; allowed an existing folder", "no 'no'"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "start", "also"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_a_mistake_is_named(problems: Any, arguments: str, start: str, also: str) -> None:
    lines = problems(*arguments.split())
    matching = [line for line in lines if line.startswith(start)]
    assert matching, lines
    assert also in matching[0]
    # ckpt_path=x.ckpt is wrong twice: it does not exist and it is not for task=fit.
    assert len(lines) <= 2


def test_all_mistakes_are_named_at_once(problems: Any) -> None:
    mistakes = {
        "modle": "x", "model": "nope", "trainer.devices": "0", "ema.decay": "2", "optimizer.opt": "adamv",
        "data.batch_size": "0", "hydra.joob.name": "x", "seed": "1,2", "data.mean": "[0.5",
    }  # fmt: skip
    lines = problems(*(f"{key}={value}" for key, value in mistakes.items()))
    assert {line.split(":")[0] for line in lines} == mistakes.keys()


def test_a_mistake_in_a_file_of_ones_own_is_named(problems: Any, tmp_path: Path) -> None:
    own = tmp_path / "own/experiment"
    own.mkdir(parents=True)
    (own / "mine.yaml").write_text("# @package _global_\ntrainer:\n  max_epoch: 3\nextra: 1\n")
    lines = problems("-cd", "own", "experiment=mine")
    assert [line.split(":")[0] for line in lines] == ["extra", "trainer.max_epoch"]
    assert "did you mean trainer.max_epochs?" in lines[1]


def test_yaml_that_cannot_be_read_is_one_line(problems: Any, tmp_path: Path) -> None:
    own = tmp_path / "own/experiment"
    own.mkdir(parents=True)
    (own / "mine.yaml").write_text("# @package _global_\ntrainer: [1\n")
    assert len(problems("-cd", "own", "experiment=mine")) == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_a_named_accelerator_is_never_replaced_by_the_cpu(problems: Any) -> None:
    (line,) = problems("trainer=cuda")
    assert line.startswith("trainer.accelerator: got 'cuda'; allowed auto or cpu")


def test_ck_6_a_file_that_is_no_checkpoint_is_refused(problems: Any, tmp_path: Path) -> None:
    (tmp_path / "noise.ckpt").write_bytes(b"noise")
    torch.save({"state_dict": {}}, tmp_path / "bare.ckpt")
    (line,) = problems("resume=noise.ckpt")
    assert "resume: got 'noise.ckpt'; allowed a checkpoint of train.py (it cannot be read" in line
    (line,) = problems("task=validate", "ckpt_path=bare.ckpt")
    assert "it has no optimizer_states" in line


def test_a_folder_with_a_run_is_not_overwritten(problems: Any, tmp_path: Path) -> None:
    (tmp_path / "mine/checkpoints").mkdir(parents=True)
    (tmp_path / "mine/checkpoints/last.ckpt").write_bytes(b"")
    (line,) = problems("run_dir=mine")
    assert line == "run_dir: got 'mine'; allowed a folder without a run, or resume=auto to continue it"


def test_cfg_5_a_sweep_over_several_processes_is_refused(problems: Any) -> None:
    (line,) = problems("-m", "optimizer.lr=1e-3,1e-4", "trainer.devices=2")
    assert line.startswith("trainer.devices: got 2; allowed 1 in a sweep")


def test_every_job_of_a_sweep_is_checked(problems: Any) -> None:
    lines = problems("-m", "optimizer.lr=1e-3,-1", "model=vmamba2_nano,vmamba2_micro", "seed=0,-5")
    assert {line.split(";")[0] for line in lines} == {
        "optimizer.lr: got -1", "seed: got -5", "data.seed: got -5",
    }  # fmt: skip
    (line,) = problems("-m", "model=vmamba2_nano,nope")
    assert line.startswith("model: got 'nope'")


def test_a_sweep_of_another_sweeper_is_checked_as_far_as_it_is_known(problems: Any) -> None:
    (line,) = problems("-m", "hydra/sweeper=basic", "optimizer.lr=interval(1e-4,1e-3)", "ema.decay=2")
    assert line.startswith("ema.decay: got 2")
