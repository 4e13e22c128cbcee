"""The steps of `train.py` around the training itself: the run folder, its log, its end."""

from __future__ import annotations

import logging
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from lightning.pytorch import Callback, Trainer, seed_everything
from omegaconf import DictConfig, OmegaConf

from vmamba2.training.build import BuildError, plain
from vmamba2.training.callbacks import EmaWeights, NonFiniteError, RunCheckpoints
from vmamba2.training.callbacks.epoch_report import NAME as TABLE
from vmamba2.training.callbacks.epoch_report import read_rows
from vmamba2.training.checkpoint_files import FOLDER, LAST, CheckpointError, describe_checkpoint, resume_path
from vmamba2.training.config.run_config import NAME, differences, load_run_config, save_run_config
from vmamba2.training.console import FILE_ONLY, route_messages
from vmamba2.training.cost import multiply_adds, set_cpu_threads
from vmamba2.training.module import ImageClassifier

log = logging.getLogger(__name__)

CONFIG_ERROR, RUN_ERROR, INTERRUPTED = 2, 1, 130
# Where a run is, and how it was started: no setting of the run itself.
NOT_SETTINGS = ("resume", "run_dir", "ckpt_path", "task", "paths")


def start_run(config: DictConfig) -> Path:
    """Enter the folder that Hydra has made: log, seed, and the configuration's idea of where it is."""
    route_messages()
    run_dir = Path(HydraConfig.get().runtime.output_dir)
    OmegaConf.set_struct(config, False)
    config.run_dir = shown_path(run_dir)
    seed_everything(config.seed, workers=True, verbose=False)
    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", "lightning", "timm"))
    log.info("%s (python %s, %s)", " ".join(sys.argv), platform.python_version(), versions, extra=FILE_ONLY)
    return run_dir


def fit(
    config: DictConfig, run_dir: Path, trainer: Trainer, module: ImageClassifier, data: Any
) -> float | None:
    """Train, from the start or from where `resume` points to; returns the best score."""
    checkpoint = resume_path(config.resume, run_dir)
    _announce(config, run_dir, checkpoint)
    _record(config, run_dir, trainer)
    _set_threads(config, module, data)
    started = time.monotonic()
    _call(trainer, lambda: trainer.fit(module, datamodule=data, ckpt_path=checkpoint, weights_only=True))
    callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
    checkpoints = next((c for c in callbacks if isinstance(c, RunCheckpoints)), None)
    log.info("%s", closing_line(run_dir, checkpoints, time.monotonic() - started))
    return checkpoints.best_score if checkpoints else None


def validate(
    config: DictConfig, run_dir: Path, trainer: Trainer, module: ImageClassifier, data: Any
) -> float:
    """Validate the weights (and their average) of `ckpt_path`, or `weights`; returns the accuracy."""
    path = config.ckpt_path
    if path is None or not describe_checkpoint(Path(path)).has_ema:
        callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
        callbacks[:] = [callback for callback in callbacks if not isinstance(callback, EmaWeights)]
    _record(config, run_dir, trainer)
    _set_threads(config, module, data)
    _call(
        trainer,
        lambda: trainer.validate(module, datamodule=data, ckpt_path=path, verbose=False, weights_only=True),
    )
    metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
    parts = [_evaluated("", metrics, "val/")]
    if "val/ema_acc1" in metrics:
        parts.append(_evaluated("EMA weights: ", metrics, "val/ema_"))
    log.info("%s: %s; run folder %s", path or config.weights, "; ".join(parts), shown_path(run_dir))
    return metrics["val/acc1"]


def closing_line(run_dir: Path, checkpoints: RunCheckpoints | None, seconds: float) -> str:
    """The line a finished run ends with."""
    folder = f"run folder {shown_path(run_dir)}"
    rows = read_rows(run_dir / TABLE) if (run_dir / TABLE).is_file() else []
    if not rows:
        return f"finished in {seconds:.0f} s, nothing saved; {folder}"
    last = rows[-1]
    text = f"training accuracy {float(last['train/acc1']):.2f} %"
    if "val/acc1" in last:
        text = f"validation accuracy {float(last['val/acc1']):.2f} %"
    if "val/ema_acc1" in last:
        text += f", with EMA weights {float(last['val/ema_acc1']):.2f} %"
    if checkpoints is not None and checkpoints.best_score is not None:
        text += (
            f" (best {checkpoints.monitor} {checkpoints.best_score:.2f} in epoch {checkpoints.best_epoch})"
        )
    return f"{text} after {last['epoch']} epochs, {seconds:.0f} s; {folder}"


@contextmanager
def reported_errors() -> Iterator[None]:
    """Turn the errors a user can cause into one sentence and an exit code."""
    try:
        yield
    except (BuildError, CheckpointError) as error:
        log.error("%s", error, exc_info=error)
        _drop_empty_folder(Path(HydraConfig.get().runtime.output_dir))
        sys.exit(CONFIG_ERROR)
    except (NonFiniteError, OSError) as error:
        # An unreadable image, a full disk: where it came from is in the log file.
        log.error("training stopped: %s; %s", error, _what_is_saved(), exc_info=error)
        sys.exit(RUN_ERROR)
    except KeyboardInterrupt:
        log.error("interrupted; %s", _what_is_saved())
        sys.exit(INTERRUPTED)


def shown_path(path: Path) -> str:
    """A path from the working directory where it lies below, otherwise whole."""
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


def _call(trainer: Trainer, action: Callable[[], Any]) -> None:
    try:
        action()
    except SystemExit:
        # Lightning ends the program after Ctrl-C; how it ends is decided in one place, above.
        if trainer.interrupted:
            raise KeyboardInterrupt from None
        raise


def _announce(config: DictConfig, run_dir: Path, checkpoint: Path | None) -> None:
    if checkpoint is None:
        found = "; nothing to resume with this model and data" if config.resume == "auto" else ""
        log.info("%-9s %s%s", "run", shown_path(run_dir), found)
        return
    done = describe_checkpoint(checkpoint).epochs
    what = "is finished" if done >= config.trainer.max_epochs else "continues"
    log.info("%-9s %s %s after epoch %d", "run", shown_path(run_dir), what, done)
    saved = checkpoint.parent.parent / NAME
    if saved.is_file():
        before, now = load_run_config(saved), plain(config)
        for name in NOT_SETTINGS:
            before.pop(name, None)
            now.pop(name, None)
        for change in differences(before, now):
            log.warning("resume: changed since the checkpoint, from here on: %s", change)


def _record(config: DictConfig, run_dir: Path, trainer: Trainer) -> None:
    if trainer.is_global_zero:
        save_run_config(config, run_dir)
    for logger in trainer.loggers:
        logger.log_hyperparams(plain(config))


def _set_threads(config: DictConfig, module: ImageClassifier, data: Any) -> None:
    set_cpu_threads(config.threads, multiply_adds(module.model, data.in_chans, data.image_size))


def _evaluated(label: str, metrics: dict[str, float], prefix: str) -> str:
    accuracies = f"accuracy {metrics[prefix + 'acc1']:.2f} %, top-5 {metrics[prefix + 'acc5']:.2f} %"
    return f"{label}{accuracies}, loss {metrics[prefix + 'loss']:.4f}"


def _what_is_saved() -> str:
    last = Path(HydraConfig.get().runtime.output_dir) / FOLDER / LAST
    if not last.is_file():
        return "no epoch was finished, nothing is saved"
    return (
        f"{shown_path(last)} holds epoch {describe_checkpoint(last).epochs}, resume=auto continues from there"
    )


def _drop_empty_folder(run_dir: Path) -> None:
    """Remove the folder of a run that could not start, when it holds nothing but the log of that."""
    names = {path.name for path in run_dir.iterdir()}
    if names <= {"train.log"}:
        (run_dir / "train.log").unlink(missing_ok=True)
        run_dir.rmdir()
