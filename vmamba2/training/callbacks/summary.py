"""What is about to run, in a few lines: model, data, optimizer, schedule, device."""

from __future__ import annotations

import logging
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer

from vmamba2.training.cost import multiply_adds
from vmamba2.training.parameter_groups import count_decayed

log = logging.getLogger(__name__)


class RunSummary(Callback):
    """Logs the facts that decide a result, global batch and learning rate among them, before training."""

    def on_fit_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Log them."""
        for label, text in summary(trainer, pl_module).items():
            log.info("%-9s %s", label, text)


def summary(trainer: Trainer, pl_module: Any) -> dict[str, str]:
    """The facts by what they are about."""
    settings: Any = pl_module.hparams
    data: Any = trainer.datamodule  # type: ignore[attr-defined]
    schedule: Any = pl_module.schedule
    decayed, spared = count_decayed(trainer.optimizers[0])
    optimizer, scheduler = settings["optimizer"], settings["scheduler"]
    per_step = trainer.accumulate_grad_batches
    global_batch = data.batch_size * trainer.world_size * per_step
    return {
        "model": f"{settings['model_name']}: {model_cost(pl_module.model, data.in_chans, data.image_size)}",
        "data": (
            f"{data.train_size:,} training and {data.val_size:,} validation images,"
            f" {data.num_classes} classes"
        ),
        "batch": (
            f"{global_batch} images = {data.batch_size} x {trainer.world_size} process(es)"
            f" x {per_step} batch(es) per update"
        ),
        "optimizer": (
            f"{optimizer['opt']}, learning rate {optimizer['lr']:g},"
            f" weight decay {optimizer['weight_decay']:g} on {decayed} tensors, none on {spared}"
        ),
        "schedule": (
            f"{scheduler['sched']}, {scheduler['num_epochs']} epochs x {schedule.updates_per_epoch} updates, "
            f"{scheduler['warmup_epochs']:g} of warm-up"
        ),
        "device": f"{device_name(pl_module.device)}, precision {trainer.precision}",
    }


def model_cost(model: Any, in_chans: int, image_size: int) -> str:
    """Parameters, and multiply-adds of one image."""
    parameters = _count(sum(parameter.numel() for parameter in model.parameters()))
    cost = multiply_adds(model, in_chans, image_size)
    shown = "unknown" if cost is None else _count(cost)
    return f"{parameters} parameters, {shown} multiply-adds per {in_chans}x{image_size}x{image_size} image"


def device_name(device: torch.device) -> str:
    """The device for people."""
    if device.type == "cuda":
        return f"{device} ({torch.cuda.get_device_name(device)})"
    threads = torch.get_num_threads()
    return f"{device} ({threads} thread{'s' if threads > 1 else ''})"


def _count(number: int) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.2f} {unit}"
    return str(number)
