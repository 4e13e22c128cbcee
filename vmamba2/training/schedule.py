"""Learning rates: a timm schedule over optimizer updates."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

from timm.scheduler import create_scheduler_v2
from torch.optim import Optimizer

log = logging.getLogger(__name__)


class UpdateSchedule:
    """A timm schedule that follows the count of optimizer updates.

    The whole schedule, warm-up included, takes `num_epochs`. The warm-up comes first and ends exactly at the
    configured learning rate, from where the schedule proper begins: `decay_epochs` and `decay_milestones`
    count from there.

    A resumed run follows its own configuration, not the one in the checkpoint: the learning rate depends on
    nothing but the settings and the number of updates, so there is no other state to restore. When the two
    differ, a warning says so.

    Args:
        optimizer: gets its learning rates set; groups may carry an `lr_scale` (layer decay).
        settings: the keys of the `scheduler` config group.
        updates_per_epoch: optimizer updates per epoch, accumulation counted in.
    """

    def __init__(self, optimizer: Optimizer, settings: Mapping[str, Any], updates_per_epoch: int) -> None:
        self.optimizer = optimizer
        self.settings = dict(settings)
        self.updates_per_epoch = updates_per_epoch
        options = {name: value for name, value in settings.items() if value is not None}
        # timm counts in "epochs" of one update each, so that fractions of an epoch stay possible.
        warmup, cooldown, total = (
            round(options.pop(name, 0) * updates_per_epoch)
            for name in ("warmup_epochs", "cooldown_epochs", "num_epochs")
        )
        if "decay_epochs" in options:
            options["decay_epochs"] *= updates_per_epoch
        if "decay_milestones" in options:
            options["decay_milestones"] = [epoch * updates_per_epoch for epoch in options["decay_milestones"]]
        self.timm_schedule, _ = create_scheduler_v2(
            optimizer,
            num_epochs=total - warmup - cooldown,
            warmup_epochs=warmup,
            warmup_prefix=True,
            step_on_epochs=False,
            updates_per_epoch=1,
            **options,
        )
        self.step(0)

    def step(self, num_updates: int) -> None:
        """Set the learning rates for the update that follows `num_updates` updates."""
        self.timm_schedule.step_update(num_updates=num_updates)

    def learning_rate(self, num_updates: int) -> float:
        """The learning rate of a group without scaling after `num_updates` updates; changes nothing."""
        return float(max(self.timm_schedule._get_lr(num_updates)))

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run compares its own settings with."""
        return {"settings": self.settings, "updates_per_epoch": self.updates_per_epoch}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Compare, warn about differences, and keep this run's settings."""
        before = {**state["settings"], "updates_per_epoch": state["updates_per_epoch"]}
        now = {**self.settings, "updates_per_epoch": self.updates_per_epoch}
        changes = [f"{n} {before.get(n)} -> {now.get(n)}" for n in now if before.get(n) != now.get(n)]
        if changes:
            log.warning(
                "resume: the schedule differs from the checkpoint's (%s); "
                "learning rates follow this run's settings from here on", ", ".join(changes)
            )  # fmt: skip


def updates_per_epoch(batches: int, limit: int | float, accumulate: int) -> int:
    """Optimizer updates per epoch: the last, incomplete accumulation of an epoch is an update too.

    Args:
        batches: training batches per epoch of one process.
        limit: `trainer.limit_train_batches`: a number of batches, or a share of them.
        accumulate: `trainer.accumulate_grad_batches`.
    """
    kept = min(limit, batches) if isinstance(limit, int) else int(batches * limit)
    if kept < 1:
        raise ValueError(
            f"trainer.limit_train_batches ({limit}) must leave at least one of {batches} batches"
        )
    return math.ceil(kept / accumulate)
