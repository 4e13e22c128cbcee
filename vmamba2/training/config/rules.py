"""Rules between keys, checked when every single key is right."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from vmamba2.training.checkpoint_files import LAST, CheckpointSummary, describe_checkpoint, resume_path
from vmamba2.training.config.problems import Problem

Values = Mapping[str, Any]


def cross_check(values: Values) -> list[Problem]:
    """The problems of a configuration whose keys all have the right type."""
    return [problem for rule in RULES for problem in rule(values)]


def _device(values: Values) -> Iterator[Problem]:
    trainer = values["trainer"]
    accelerator, precision = trainer["accelerator"], trainer["precision"]
    cuda = torch.cuda.is_available()
    if accelerator in ("cuda", "gpu") and not cuda:
        allowed = "auto or cpu: this machine or this PyTorch has no CUDA"
        yield Problem("trainer.accelerator", repr(accelerator), allowed)
    on_cpu = accelerator == "cpu" or not cuda
    if on_cpu and precision == "16-mixed":
        yield Problem("trainer.precision", repr(precision), "bf16-mixed or 32-true on a CPU", "bf16-mixed")
    devices = trainer["devices"]
    wanted = len(devices) if isinstance(devices, list) else devices
    count = torch.cuda.device_count()
    if not on_cpu and isinstance(wanted, int) and wanted > count:
        yield Problem("trainer.devices", repr(devices), f"at most {count} here")
    if on_cpu and isinstance(devices, list):
        yield Problem("trainer.devices", repr(devices), "a number of processes on a CPU")


def _batches(values: Values) -> Iterator[Problem]:
    data, mixup = values["data"], values["data"].get("mixup") or {}
    mixes = mixup.get("prob", 1) > 0 and (mixup.get("mixup_alpha", 0) > 0 or mixup.get("cutmix_alpha", 0) > 0)
    if mixes and data["batch_size"] % 2:
        yield Problem("data.batch_size", str(data["batch_size"]), "an even number with mixup or cutmix")
    smoothing, wanted = mixup.get("label_smoothing"), values["loss"]["label_smoothing"]
    if smoothing is not None and smoothing != wanted:
        allowed = f"{wanted}, the value of loss.label_smoothing"
        yield Problem("data.mixup.label_smoothing", repr(smoothing), allowed)


def _schedule(values: Values) -> Iterator[Problem]:
    scheduler, epochs = values["scheduler"], values["scheduler"]["num_epochs"]
    if scheduler["warmup_epochs"] + scheduler.get("cooldown_epochs", 0) >= epochs:
        allowed = f"less than scheduler.num_epochs ({epochs}), cooldown_epochs counted in"
        yield Problem("scheduler.warmup_epochs", repr(scheduler["warmup_epochs"]), allowed)
    if epochs < values["trainer"]["max_epochs"]:
        allowed = f"at least trainer.max_epochs ({values['trainer']['max_epochs']})"
        yield Problem("scheduler.num_epochs", repr(epochs), allowed)
    for name in ("warmup_lr", "min_lr"):
        if scheduler[name] > values["optimizer"]["lr"]:
            allowed = f"at most optimizer.lr ({values['optimizer']['lr']})"
            yield Problem(f"scheduler.{name}", repr(scheduler[name]), allowed)


def _classes(values: Values) -> Iterator[Problem]:
    model, data = values["model"], values["data"]
    if (
        None not in (model["num_classes"], data.get("num_classes"))
        and model["num_classes"] != data["num_classes"]
    ):
        yield Problem(
            "model.num_classes", str(model["num_classes"]), f"{data['num_classes']}, as data.num_classes"
        )
    if "in_chans" in data and model["in_chans"] != data["in_chans"]:
        yield Problem("model.in_chans", str(model["in_chans"]), f"{data['in_chans']}, as data.in_chans")


def _monitor(values: Values) -> Iterator[Problem]:
    checkpoints = values["callbacks"].get("checkpoints") or {}
    monitor = checkpoints.get("monitor", "")
    if "ema" in monitor and not values["ema"]["enabled"]:
        yield Problem(
            "callbacks.checkpoints.monitor", repr(monitor), "a raw metric while ema.enabled is false"
        )


def _paths(values: Values) -> Iterator[Problem]:
    root = values["data"].get("root")
    if isinstance(root, str) and not (root.strip() and Path(root).expanduser().is_dir()):
        yield Problem("data.root", repr(root), _existing("folder", Path(root).expanduser()))
    for key in ("ckpt_path", "weights"):
        path = values[key]
        if path is not None and not path.startswith("hf-hub:") and not Path(path).is_file():
            yield Problem(key, repr(path), _existing("file", Path(path)))


def _existing(what: str, path: Path) -> str:
    if path.exists():
        return f"a {what}, which this is not"
    parent = next(folder for folder in path.absolute().parents if folder.exists())
    missing = path.absolute().relative_to(parent).parts[0]
    return f"an existing {what} ({parent} has no '{missing}')"


def _task(values: Values) -> Iterator[Problem]:
    ckpt_path, resume, weights = values["ckpt_path"], values["resume"], values["weights"]
    if values["task"] == "validate":
        if ckpt_path is None and weights is None:
            yield Problem("ckpt_path", "null", "a checkpoint to validate (or weights=...) with task=validate")
        if resume is not None:
            yield Problem("resume", repr(resume), "null with task=validate", f"ckpt_path={resume}")
        if not values["trainer"]["limit_val_batches"]:
            yield Problem("trainer.limit_val_batches", "0", "above 0 with task=validate")
        return
    if ckpt_path is not None:
        allowed = "null with task=fit: resume=... continues a run, weights=... starts from its weights"
        yield Problem("ckpt_path", repr(ckpt_path), allowed, f"resume={ckpt_path}")
    last = Path(values["run_dir"]) / "checkpoints" / LAST
    if resume is None and last.is_file():
        yield Problem(
            "run_dir", repr(values["run_dir"]), "a folder without a run, or resume=auto to continue it"
        )
    if resume not in (None, "auto") and weights is not None:
        yield Problem("weights", repr(weights), "null with resume: the checkpoint holds the weights")


def _checkpoint(values: Values) -> Iterator[Problem]:
    if values["task"] == "validate":
        key, path = "ckpt_path", Path(values["ckpt_path"]) if values["ckpt_path"] else None
    else:
        key, path = "resume", resume_path(values["resume"], Path(values["run_dir"]))
    if path is None or (key == "ckpt_path" and not path.is_file()):
        return
    if not path.is_file():
        yield Problem(
            key, repr(values[key]), f"auto, a run folder or a checkpoint: {_existing('file', path)}"
        )
        return
    try:
        checkpoint = describe_checkpoint(path)
    except ValueError as error:
        yield Problem(key, repr(str(path)), f"a checkpoint of train.py ({error})")
        return
    model = values["model"]
    if checkpoint.model_name not in (None, model["model_name"]):
        hint = f"model={checkpoint.model_name}"
        yield Problem(
            key, repr(str(path)), f"weights of {model['model_name']}; it holds {checkpoint.model_name}", hint
        )
    elif model["num_classes"] not in (None, checkpoint.num_classes):
        allowed = f"{model['num_classes']} classes; it holds {checkpoint.num_classes}"
        yield Problem(key, repr(str(path)), allowed)
    if values["task"] == "fit":
        yield from _resumable(values, path, checkpoint)


def _resumable(values: Values, path: Path, checkpoint: CheckpointSummary) -> Iterator[Problem]:
    max_epochs = values["trainer"]["max_epochs"]
    if checkpoint.epochs > max_epochs:
        allowed = f"at least {checkpoint.epochs}, the epochs done in {path}"
        yield Problem("trainer.max_epochs", str(max_epochs), allowed)
    if values["ema"]["enabled"] and not checkpoint.has_ema:
        yield Problem("ema.enabled", "true", f"false: {path} holds no average of the weights")
    # The state of an optimizer belongs to its kind and to its groups of parameters.
    optimizer = values["optimizer"]
    for name in ("opt", "layer_decay"):
        before = checkpoint.optimizer.get(name)
        if optimizer.get(name) != before:
            yield Problem(f"optimizer.{name}", repr(optimizer.get(name)), f"{before!r}, as in {path}")
    before = checkpoint.optimizer.get("weight_decay", 0)
    if bool(optimizer["weight_decay"]) != bool(before):
        allowed = f"{'above 0' if before else '0'}, as in {path}"
        yield Problem("optimizer.weight_decay", repr(optimizer["weight_decay"]), allowed)


RULES: tuple[Callable[[Values], Iterator[Problem]], ...] = (
    _device, _batches, _schedule, _classes, _monitor, _task, _paths, _checkpoint,
)  # fmt: skip
