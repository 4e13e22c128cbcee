"""What a user sees while a run is on."""

from __future__ import annotations

import io
import logging
import re
import sys
from typing import Any

import pytest
from lightning.pytorch.utilities import rank_zero_only

from vmamba2.training.callbacks.epoch_report import epoch_line
from vmamba2.training.console import FILE_ONLY, ConsoleHandler


class Terminal(io.StringIO):
    """Text that counts as a terminal."""

    def isatty(self) -> bool:
        return True


def test_the_bar_shows_loss_accuracy_and_images_per_second(
    build: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()
    run = build("trainer.enable_progress_bar=true", "callbacks.progress.refresh_s=0")
    monkeypatch.setattr(sys, "stderr", terminal)
    run.fit()
    pattern = r"epoch 2/2 100 %\|.*\| 3/3 \[.*\], loss \d\.\d{3}, accuracy \d+\.\d %, [\d,]+ images/s"
    assert re.search(pattern, terminal.getvalue())
    assert "validation" in terminal.getvalue()


def test_without_a_terminal_there_is_no_bar(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    text = io.StringIO()
    run = build("trainer.enable_progress_bar=true", "trainer.max_epochs=1")
    monkeypatch.setattr(sys, "stderr", text)
    run.fit()
    assert "epoch" not in text.getvalue()


def test_an_epoch_is_one_line() -> None:
    row = {"epoch": "3", "train/loss": "0.5", "train/acc1": "81.25", "train/images_per_s": "1234.5"}
    assert epoch_line(row, 12) == "epoch  3/12   train loss 0.500 accuracy  81.2 %   1,234 images/s"
    line = epoch_line({**row, "val/loss": "0.25", "val/acc1": "97.5", "val/ema_acc1": "98.25"}, 12)
    assert "val loss 0.250 accuracy  97.50 %   EMA  98.25 %" in line


def test_the_terminal_shows_no_traceback_and_nothing_for_the_file_only() -> None:
    text = io.StringIO()
    logger = logging.Logger("test")
    logger.addHandler(ConsoleHandler(text))
    logger.info("for the file", extra=FILE_ONLY)
    logger.error("a sentence", exc_info=ValueError("inside"))
    assert text.getvalue() == "a sentence\n"


def test_other_processes_than_the_first_are_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_zero_only, "rank", 1)
    text = io.StringIO()
    logger = logging.Logger("test")
    logger.addHandler(ConsoleHandler(text))
    logger.error("a sentence")
    assert text.getvalue() == ""


def test_tensorboard_gets_the_metrics(build: Any) -> None:
    pytest.importorskip("tensorboard")
    run = build("logger=tensorboard", "trainer.log_every_n_steps=1", "trainer.max_epochs=1").fit()
    (events,) = (run.folder / "tensorboard").glob("events.*")
    content = events.read_bytes()
    assert all(name in content for name in (b"train/loss_step", b"lr", b"val/acc1", b"val/ema_acc1"))
