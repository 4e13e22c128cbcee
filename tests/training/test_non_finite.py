"""A run whose numbers break stops, says where, and saves nothing of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from lightning.pytorch import Callback

from vmamba2.training.callbacks import NonFiniteError
from vmamba2.training.callbacks.non_finite import first_non_finite


class Poison(Callback):
    """Breaks one weight after an update."""

    def __init__(self, step: int, value: float) -> None:
        self.step = step
        self.value = value

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        if trainer.global_step == self.step:
            with torch.no_grad():
                pl_module.model.head.weight[0, 0] = self.value


def test_op_18_a_nan_loss_names_step_and_tensor_and_is_not_saved(build: Any) -> None:
    run = build("trainer.max_epochs=3", callbacks=(Poison(4, float("nan")),))
    with pytest.raises(NonFiniteError) as error:
        run.fit()
    expected = (
        r"the loss is nan in epoch 2, batch 2 (step 4); head.weight is the first tensor that is not finite"
    )
    assert str(error.value) == expected
    checkpoint = run.checkpoint()
    assert checkpoint["global_step"] == 3
    assert all(torch.isfinite(tensor).all() for tensor in checkpoint["state_dict"].values())


def test_tr_16_weights_broken_by_the_last_update_of_an_epoch_are_not_saved(build: Any) -> None:
    run = build("trainer.max_epochs=3", callbacks=(Poison(6, float("inf")),))
    with pytest.raises(
        NonFiniteError, match=r"head.weight is no longer finite in epoch 2, batch 3 \(step 6\)"
    ):
        run.fit()
    assert run.checkpoint()["global_step"] == 3


def test_every_number_of_a_healthy_model_is_finite() -> None:
    model = torch.nn.BatchNorm2d(3)
    assert first_non_finite(model) == ""
    model.running_var[1] = torch.inf
    assert first_non_finite(model) == "running_var"
