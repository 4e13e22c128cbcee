"""The moving average: beside the weights, never in their place."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from lightning.pytorch import Callback

from vmamba2.training.callbacks import EmaWeights
from vmamba2.training.checkpoint_files import EMA_KEY


def states(run: Any) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    return run.module.model.state_dict(), run.callback(EmaWeights).model.state_dict()


def test_tr_2_a_short_run_forgets_its_initial_weights_by_default(build: Any) -> None:
    warm = build("ema.decay=0.9998", "trainer.max_epochs=3")
    initial = {name: tensor.clone() for name, tensor in warm.module.model.state_dict().items()}
    warm.fit()
    raw, averaged = states(warm)
    moved = sum(float((averaged[n] - initial[n]).norm()) for n in raw)
    assert moved > 0.3 * sum(float((raw[n] - initial[n]).norm()) for n in raw)
    assert {"val/acc1", "val/ema_acc1"} <= warm.rows()[-1].keys()


def test_tr_2_a_decay_too_slow_for_the_run_warns(build: Any, caplog: pytest.LogCaptureFixture) -> None:
    build("ema.decay=0.9998", "ema.warmup=false", "trainer.max_epochs=1").fit()
    assert "ema: 3 updates at decay 0.9998 leave 100 % of the initial weights in the average" in caplog.text
    caplog.clear()
    build("ema.decay=0.9998", "trainer.max_epochs=1", folder="warm").fit()
    assert "leave" not in caplog.text


def test_tr_3_before_its_start_the_average_is_the_weights(build: Any) -> None:
    run = build("ema.start_step=1000").fit()
    raw, averaged = states(run)
    assert all(torch.equal(raw[name], averaged[name]) for name in raw)
    assert all(row["val/acc1"] == row["val/ema_acc1"] for row in run.rows())
    assert all(row["val/loss"] == row["val/ema_loss"] for row in run.rows())


def test_tr_3_from_its_start_on_the_average_lags(build: Any) -> None:
    raw, averaged = states(build("ema.start_step=3").fit())
    assert any(not torch.equal(raw[name], averaged[name]) for name in raw)


def test_tr_4_a_checkpoint_written_around_validation_has_both_in_their_slots(build: Any) -> None:
    class SaveInValidation(Callback):
        def on_validation_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            if not trainer.sanity_checking:
                trainer.save_checkpoint(str(path), weights_only=False)
                self.raw = {n: t.clone() for n, t in pl_module.model.state_dict().items()}

    saver = SaveInValidation()
    run = build("trainer.max_epochs=1", callbacks=(saver,))
    path = run.folder / "inside.ckpt"
    run.fit()
    raw, averaged = states(run)
    for file in (path, run.folder / "checkpoints/last.ckpt"):
        checkpoint = torch.load(file, weights_only=True)
        assert all(torch.equal(checkpoint["state_dict"][f"model.{n}"], raw[n]) for n in raw)
        assert all(torch.equal(checkpoint[EMA_KEY][n], averaged[n]) for n in raw)
    assert all(torch.equal(saver.raw[name], raw[name]) for name in raw)


def test_tr_6_counters_stay_whole_numbers_and_statistics_are_averaged(build: Any) -> None:
    run = build("trainer.max_epochs=1", timm_model="test_resnet").fit()
    raw, averaged = states(run)
    counters = [name for name in raw if name.endswith("num_batches_tracked")]
    assert counters
    for name in counters:
        assert averaged[name].dtype == torch.int64
        assert averaged[name] == raw[name] == 3
    assert any(not torch.equal(raw[n], averaged[n]) for n in raw if n.endswith("running_mean"))


def test_the_average_is_updated_once_per_update_under_accumulation(build: Any) -> None:
    run = build("trainer.max_epochs=1", "trainer.accumulate_grad_batches=3")
    ema = run.callback(EmaWeights)
    ema.setup(run.trainer, run.module, "fit")
    steps: list[int] = []
    update = ema.ema.update
    ema.ema.update = lambda model, step: (steps.append(step), update(model, step))
    run.fit()
    assert steps == [1]


@pytest.mark.parametrize("decay", [0.0, 1.0, -1])
def test_a_decay_outside_its_range_is_an_error(decay: float) -> None:
    with pytest.raises(ValueError, match=r"ema: decay \(.*\) must lie between 0 and 1"):
        EmaWeights(decay)
