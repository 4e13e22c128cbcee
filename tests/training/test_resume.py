"""A resumed run is the unbroken run, to the last digit."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import Callback

from vmamba2.training.callbacks import EmaWeights, RunCheckpoints
from vmamba2.training.checkpoint_files import EMA_KEY, CheckpointError
from vmamba2.training.config.problems import ConfigError

RANDOM = ["model.drop_path_rate=0.3", "model.drop_rate=0.2", "data.mixup.mixup_alpha=0.8"]


class Trace(Callback):
    """Learning rate and loss of every update."""

    def __init__(self) -> None:
        self.rates: list[float] = []
        self.losses: list[float] = []

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        self.rates.append(optimizer.param_groups[0]["lr"])

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self.losses.append(float(outputs["loss"]))


def assert_equal_states(first: dict[str, Any], second: dict[str, Any]) -> None:
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), name


def test_exact_resume_after_two_of_four_epochs(build: Any) -> None:
    unbroken, before, after = Trace(), Trace(), Trace()
    whole = build(*RANDOM, "trainer.max_epochs=4", folder="whole", callbacks=(unbroken,)).fit()
    build(*RANDOM, "trainer.max_epochs=2", "scheduler.num_epochs=4", callbacks=(before,)).fit()
    # Whatever else has drawn numbers in between must not matter.
    torch.rand(7), random.random(), np.random.rand()
    resumed = build(*RANDOM, "trainer.max_epochs=4", "resume=auto", "seed=0", callbacks=(after,)).fit()

    assert len(unbroken.losses) == 12
    assert before.losses + after.losses == unbroken.losses
    assert before.rates + after.rates == unbroken.rates
    assert resumed.rows() == whole.rows()
    assert resumed.trainer.global_step == whole.trainer.global_step == 12
    assert_equal_states(resumed.module.state_dict(), whole.module.state_dict())
    assert_equal_states(
        resumed.callback(EmaWeights).model.state_dict(), whole.callback(EmaWeights).model.state_dict()
    )


def test_tr_7_learning_rates_under_accumulation_equal_the_unbroken_trace(build: Any) -> None:
    settings = ["trainer.accumulate_grad_batches=2", "scheduler.warmup_epochs=1", "data.num_workers=1"]
    unbroken, before, after = Trace(), Trace(), Trace()
    build(*settings, "trainer.max_epochs=4", folder="whole", callbacks=(unbroken,)).fit()
    build(*settings, "trainer.max_epochs=2", "scheduler.num_epochs=4", callbacks=(before,)).fit()
    resumed = build(*settings, "trainer.max_epochs=4", "resume=auto", callbacks=(after,)).fit()
    assert resumed.trainer.global_step == len(unbroken.rates) == 8
    assert before.rates + after.rates == unbroken.rates
    assert before.losses + after.losses == unbroken.losses
    assert max(unbroken.rates) == unbroken.rates[2] == resumed.config.optimizer.lr


def test_tr_1_raw_and_averaged_weights_come_back_bit_equal(build: Any) -> None:
    first = build("trainer.max_epochs=1").fit()
    raw = {name: tensor.clone() for name, tensor in first.module.model.state_dict().items()}
    averaged = {n: t.clone() for n, t in first.callback(EmaWeights).model.state_dict().items()}
    assert any(not torch.equal(raw[name], averaged[name]) for name in raw)

    class Stop(Callback):
        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            ema = next(c for c in trainer.callbacks if isinstance(c, EmaWeights))
            self.raw = {n: t.clone() for n, t in pl_module.model.state_dict().items()}
            self.averaged = {n: t.clone() for n, t in ema.model.state_dict().items()}

    seen = Stop()
    build("trainer.max_epochs=2", "resume=auto", callbacks=(seen,)).fit()
    assert_equal_states(seen.raw, raw)
    assert_equal_states(seen.averaged, averaged)


def test_tr_5_best_file_survives_a_worse_epoch_after_a_resume(build: Any) -> None:
    first = build("trainer.max_epochs=1").fit()
    best = (first.folder / "checkpoints/best.ckpt").read_bytes()
    path = first.folder / "checkpoints/last.ckpt"
    checkpoint = torch.load(path, weights_only=True)
    checkpoint["callbacks"]["RunCheckpoints"]["best_score"] = 100.5
    path.unlink()
    torch.save(checkpoint, path)
    resumed = build("trainer.max_epochs=2", "resume=auto").fit()
    assert resumed.callback(RunCheckpoints).best_score == 100.5
    assert (first.folder / "checkpoints/best.ckpt").read_bytes() == best


def test_rows_of_epochs_after_the_checkpoint_are_dropped(build: Any) -> None:
    whole = build("trainer.max_epochs=3", folder="whole").fit()
    run = build("trainer.max_epochs=2", "scheduler.num_epochs=3").fit()
    # Killed after it had written the third epoch's row, before that epoch's checkpoint.
    table = run.folder / "metrics.csv"
    header, first, second = table.read_text().splitlines()
    table.write_text("\n".join([header, first, second, second.replace("2,6,", "3,9,", 1)]) + "\n")
    resumed = build("trainer.max_epochs=3", "resume=auto").fit()
    assert resumed.rows() == whole.rows()


def test_a_longer_horizon_is_followed_and_said(build: Any, caplog: pytest.LogCaptureFixture) -> None:
    build("trainer.max_epochs=2").fit()
    trace, fresh = Trace(), Trace()
    build("trainer.max_epochs=4", "resume=auto", callbacks=(trace,)).fit()
    assert "num_epochs 2 -> 4" in caplog.text
    build("trainer.max_epochs=4", folder="fresh", callbacks=(fresh,)).fit()
    assert trace.rates == fresh.rates[6:]


def test_changed_optimizer_settings_are_followed_after_a_resume(build: Any) -> None:
    build("trainer.max_epochs=1").fit()
    overrides = ["optimizer.weight_decay=0.2", "optimizer.betas=[0.8,0.99]", "trainer.max_epochs=2"]
    resumed = build(*overrides, "resume=auto").fit()
    groups = resumed.trainer.optimizers[0].param_groups
    assert sorted(group["weight_decay"] for group in groups) == [0.0, 0.2]
    assert all(tuple(group["betas"]) == (0.8, 0.99) for group in groups)


def test_a_checkpoint_of_another_run_is_refused_before_anything_starts(build: Any) -> None:
    build("trainer.max_epochs=2").fit()
    cases = {
        "optimizer.opt=lamb": "optimizer.opt: got 'lamb'; allowed 'adamw'",
        "optimizer.layer_decay=0.5": "optimizer.layer_decay: got 0.5; allowed None",
        "optimizer.weight_decay=0.0": "optimizer.weight_decay: got 0.0; allowed above 0",
        "data.num_classes=3": "it holds 4",
        "model.model_name=vmamba2_micro": "did you mean model=vmamba2_nano",
        "trainer.max_epochs=1": "trainer.max_epochs: got 1; allowed at least 2",
    }
    for override, message in cases.items():
        with pytest.raises(ConfigError) as error:
            build("trainer.max_epochs=3", override, "resume=auto")
        assert message in str(error.value)


def test_weights_of_another_size_are_one_sentence_before_the_first_batch(build: Any) -> None:
    build("trainer.max_epochs=1").fit()
    other = build("+model.mlp_ratio=3.0", "resume=auto")
    before = {name: tensor.clone() for name, tensor in other.module.state_dict().items()}
    message = (
        r"model\.stages\..* must be the same in the file \(.*\) and in this model \(.*\); weights=... loads"
    )
    with pytest.raises(CheckpointError, match=message):
        other.fit()
    assert_equal_states(other.module.state_dict(), before)


def test_an_average_is_never_rebuilt_from_the_weights(build: Any) -> None:
    build("trainer.max_epochs=1", "ema.enabled=false").fit()
    with pytest.raises(ConfigError, match="holds no average of the weights"):
        build("trainer.max_epochs=2", "resume=auto")


def test_ck_7_checkpoints_load_with_weights_only_and_hold_plain_settings(build: Any) -> None:
    checkpoint = build(*RANDOM, "trainer.max_epochs=1").fit().checkpoint()
    assert checkpoint["hyper_parameters"]["optimizer"]["betas"] == [0.9, 0.999]
    assert type(checkpoint["hyper_parameters"]["scheduler"]) is dict
    assert set(checkpoint[EMA_KEY]) == {name.removeprefix("model.") for name in checkpoint["state_dict"]}


def test_tr_8_a_run_stopped_in_an_epoch_repeats_that_epoch_exactly(build: Any) -> None:
    class Break(Callback):
        def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
            if trainer.global_step == 5:
                raise RuntimeError("stopped in epoch 2, batch 2 of 3")

    whole = build(*RANDOM, "trainer.max_epochs=2", folder="whole").fit()
    with pytest.raises(RuntimeError, match="stopped in epoch 2"):
        build(*RANDOM, "trainer.max_epochs=2", callbacks=(Break(),)).fit()
    resumed = build(*RANDOM, "trainer.max_epochs=2", "resume=auto").fit()
    assert resumed.rows() == whole.rows()
