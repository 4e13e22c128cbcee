"""The real program in processes of its own."""

from __future__ import annotations

import itertools
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from vmamba2.training.callbacks.epoch_report import read_rows
from vmamba2.training.config.run_config import load_run_config

PATIENCE_S = 240
QUICK = ["callbacks.curves=null", "callbacks.predictions=null", "callbacks.summary=null"]
# Nothing answers there: whatever asks the network fails at once.
NO_NETWORK = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "http://127.0.0.1:9")

pytestmark = pytest.mark.slow


def finish(process: subprocess.Popen[str], code: int = 0) -> str:
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == code, output
    return output


def wait_for_rows(process: subprocess.Popen[str], table: Path, rows: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not (table.is_file() and len(read_rows(table)) >= rows):
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.005)


def timeless(table: Path) -> list[dict[str, str]]:
    rows = read_rows(table)
    return [{name: value for name, value in row.items() if name != "train/images_per_s"} for row in rows]


def test_a_run_killed_in_an_epoch_and_resumed_equals_the_unbroken_run(train_py: Any, tmp_path: Path) -> None:
    longer = ["trainer.max_epochs=4", "data.train_images=96", "model.drop_path_rate=0.3", *QUICK]
    killed = train_py(*longer, "run_dir=killed")
    wait_for_rows(killed, tmp_path / "killed/metrics.csv", 2)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert len(read_rows(tmp_path / "killed/metrics.csv")) < 4
    whole, resumed = train_py(*longer, "run_dir=whole"), train_py(*longer, "run_dir=killed", "resume=auto")
    finish(whole)
    assert "continues after epoch" in finish(resumed)
    assert timeless(tmp_path / "killed/metrics.csv") == timeless(tmp_path / "whole/metrics.csv")
    first, second = (
        torch.load(tmp_path / name / "checkpoints/last.ckpt", weights_only=True)
        for name in ("killed", "whole")
    )
    assert first["global_step"] == second["global_step"] == 48
    for key in ("state_dict", "ema_state_dict"):
        assert all(torch.equal(first[key][name], tensor) for name, tensor in second[key].items())
    assert first["callbacks"]["RunCheckpoints"] == second["callbacks"]["RunCheckpoints"]


def test_a_run_leaves_its_folder_and_its_checkpoint_validates(train_py: Any, tmp_path: Path) -> None:
    output = finish(train_py("logger=wandb", environment=NO_NETWORK))
    (folder,) = (tmp_path / "runs/vmamba2_nano").iterdir()
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert {
        "config.yaml", "metrics.csv", "curves.png", "predictions.png", "train.log",
        "checkpoints/last.ckpt", "checkpoints/best.ckpt",
    } <= files  # fmt: skip
    assert any(name.startswith("wandb/offline-run-") and name.endswith(".wandb") for name in files)
    rows = read_rows(folder / "metrics.csv")
    (closing,) = (line for line in output.splitlines() if line.startswith("validation accuracy"))
    assert f"validation accuracy {float(rows[-1]['val/acc1']):.2f} %" in closing
    assert closing.endswith(f"run folder {folder.relative_to(tmp_path)}")
    log = (folder / "train.log").read_text()
    assert closing in log
    assert "train.py data=synthetic" in log
    assert "epoch 2/2" in log
    config = load_run_config(folder)
    assert config["optimizer"]["lr"] == 0.002
    assert config["model"]["num_classes"] == 4
    assert config["run_dir"] == str(folder.relative_to(tmp_path))

    checkpoint = folder / "checkpoints/last.ckpt"
    resumed = train_py("resume=auto", "trainer.max_epochs=2", *QUICK)
    validated = finish(train_py("task=validate", f"ckpt_path={checkpoint}", *QUICK))
    assert f"accuracy {float(rows[-1]['val/acc1']):.2f} %, top-5" in validated
    assert f"EMA weights: accuracy {float(rows[-1]['val/ema_acc1']):.2f} %" in validated
    assert f"loss {float(rows[-1]['val/loss']):.4f}" in validated
    output = finish(resumed)
    assert f"{folder.relative_to(tmp_path)} is finished after epoch 2" in output
    assert closing.split(" after ")[0] in output


def test_ctrl_c_leaves_the_last_checkpoint_and_says_how_to_go_on(train_py: Any, tmp_path: Path) -> None:
    process = train_py("trainer.max_epochs=500", "run_dir=mine", "data.num_workers=1", *QUICK)
    # The second row is written after the first epoch's checkpoint.
    wait_for_rows(process, tmp_path / "mine/metrics.csv", 2)
    process.send_signal(signal.SIGINT)
    output = finish(process, code=130)
    assert "Traceback" not in output
    done = torch.load(tmp_path / "mine/checkpoints/last.ckpt", weights_only=True)["epoch"] + 1
    expected = f"interrupted; mine/checkpoints/last.ckpt holds epoch {done}, resume=auto continues from there"
    assert output.rstrip().endswith(expected)


def test_what_cannot_run_ends_in_one_sentence_and_an_exit_code(train_py: Any, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    typo = train_py("trainer.max_epoch=1", "run_dir=typo")
    folder = train_py("data=imagefolder", "data.root=empty", "run_dir=folder", tiny=False)
    output = finish(typo, code=2)
    assert output.startswith("1 problem in the configuration; nothing was started:\n  trainer.max_epoch: got")
    output = finish(folder, code=2)
    assert output.startswith("data: ")
    assert len(output.splitlines()) == 1
    too_fast = ["optimizer=sgd", "optimizer.lr=1e30", "trainer.gradient_clip_val=null", "ema.enabled=false"]
    shown = train_py("--cfg", "job", "--resolve")
    output = finish(train_py(*too_fast, "run_dir=nan", *QUICK), code=1)
    assert "training stopped: the loss is" in output
    assert "in epoch 1, batch" in output
    assert output.rstrip().endswith("no epoch was finished, nothing is saved")
    assert "max_epochs: 2\n" in finish(shown)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "nan"]
    assert not list((tmp_path / "nan").rglob("*.ckpt"))


def test_an_unreadable_image_ends_in_one_sentence_with_its_path(train_py: Any, tmp_path: Path) -> None:
    for split, name in itertools.product(("train", "val"), ("cat", "dog")):
        folder = tmp_path / "photos" / split / name
        folder.mkdir(parents=True)
        for number in range(4):
            Image.new("RGB", (16, 16), (60 * number, 0, 0)).save(folder / f"{number}.png")
    broken = tmp_path / "photos/train/dog/2.png"
    broken.write_bytes(broken.read_bytes()[:40])
    photos = [
        "data=imagefolder",
        "data.root=photos",
        "data.image_size=16",
        "data.batch_size=8",
        "trainer=cpu",
    ]
    for workers in (0, 2):
        run = train_py(*photos, f"data.num_workers={workers}", f"run_dir=run{workers}", *QUICK, tiny=False)
        output = finish(run, code=1)
        assert "Traceback" not in output
        closing = output.rstrip().splitlines()[-1]
        assert f"training stopped: image ({broken}) cannot be read" in closing
        assert "Traceback" in (tmp_path / f"run{workers}/train.log").read_text()


def test_a_sweep_gives_every_job_its_folder(train_py: Any, tmp_path: Path) -> None:
    finish(train_py("-m", "seed=0,1", "run_dir=sweep", "trainer.max_epochs=1", *QUICK))
    for job in ("0", "1"):
        config = load_run_config(tmp_path / "sweep" / job)
        assert config["seed"] == config["data"]["seed"] == int(job)
        assert config["run_dir"] == f"sweep/{job}"
        assert (tmp_path / "sweep" / job / "checkpoints/last.ckpt").is_file()
