"""Learning rates follow optimizer updates."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from vmamba2.training.schedule import UpdateSchedule, updates_per_epoch

COSINE = {"sched": "cosine", "num_epochs": 4, "warmup_epochs": 1, "warmup_lr": 0.0, "min_lr": 0.0}


def schedule(settings: dict[str, Any], updates: int = 5, lr: float = 0.1) -> UpdateSchedule:
    parameter = torch.nn.Parameter(torch.zeros(1))
    return UpdateSchedule(torch.optim.SGD([parameter], lr=lr), settings, updates)


def trace(built: UpdateSchedule, updates: int) -> list[float]:
    rates = []
    for update in range(updates):
        rates.append(built.optimizer.param_groups[0]["lr"])
        built.step(update + 1)
    return rates


def test_tr_7_cosine_with_one_epoch_of_warm_up_at_all_twenty_steps() -> None:
    warm = [0.1 * step / 5 for step in range(5)]
    cosine = [0.05 * (1 + math.cos(math.pi * step / 15)) for step in range(15)]
    assert trace(schedule(COSINE), 20) == pytest.approx(warm + cosine, abs=1e-12)


@pytest.mark.parametrize("sched", ["cosine", "step", "multistep", "poly", "tanh"])
def test_tr_22_the_peak_after_the_warm_up_is_the_configured_rate(sched: str) -> None:
    settings = {**COSINE, "sched": sched, "decay_epochs": 2.4, "decay_milestones": [1, 2], "decay_rate": 0.9}
    rates = trace(schedule(settings), 20)
    # tanh only approaches its bounds.
    assert max(rates) == rates[5] == pytest.approx(0.1, rel=0.01 if sched == "tanh" else 1e-12)


def test_a_rate_that_is_read_is_the_rate_that_was_set() -> None:
    built = schedule({**COSINE, "warmup_epochs": 0.5, "cooldown_epochs": 1})
    rates = trace(built, 20)
    assert [built.learning_rate(update) for update in range(20)] == rates
    assert rates[15:] == [0.0] * 5


def test_constant_rate_after_a_warm_up() -> None:
    settings = {**COSINE, "sched": "step", "decay_epochs": 30, "decay_rate": 1.0}
    assert trace(schedule(settings), 20)[5:] == [0.1] * 15


def test_groups_with_layer_decay_keep_their_share() -> None:
    groups = [{"params": [torch.nn.Parameter(torch.zeros(1))], "lr_scale": s} for s in (0.25, 1.0)]
    built = UpdateSchedule(torch.optim.SGD(groups, lr=0.1), COSINE, 5)
    built.step(7)
    low, high = (group["lr"] for group in built.optimizer.param_groups)
    assert low == 0.25 * high
    assert high == built.learning_rate(7) > 0.09


@pytest.mark.parametrize(
    ("batches", "limit", "accumulate", "updates"),
    [(10, 1.0, 1, 10), (10, 1.0, 4, 3), (10, 3, 1, 3), (10, 0.5, 2, 3), (10, 100, 10, 1)],
)
def test_updates_per_epoch(batches: int, limit: float, accumulate: int, updates: int) -> None:
    assert updates_per_epoch(batches, limit, accumulate) == updates


def test_an_epoch_without_batches_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"limit_train_batches \(0.01\) must leave at least one of 10"):
        updates_per_epoch(10, 0.01, 1)
