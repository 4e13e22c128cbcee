"""The Lightning module in real, tiny runs."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback

from vmamba2.training.build import BuildError
from vmamba2.training.callbacks import EmaWeights
from vmamba2.training.callbacks.summary import summary


class Gradients(Callback):
    """The gradients that an update gets to see, after clipping."""

    def on_before_zero_grad(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        named = dict(pl_module.model.named_parameters())
        self.last = {n: p.grad.clone() for n, p in named.items() if p.grad is not None} or self.last

    last: dict[str, torch.Tensor] = {}  # noqa: RUF012  replaced, never changed


def test_a_run_reports_the_metrics_of_the_contract_and_learns(build: Any) -> None:
    run = build("trainer.max_epochs=8", "optimizer.lr=1e-2", "ema.decay=0.9").fit()
    expected = {"train/loss", "train/acc1", "val/loss", "val/acc1", "val/acc5"}
    expected |= {"val/ema_loss", "val/ema_acc1", "val/ema_acc5"}
    assert expected <= run.rows()[-1].keys()
    assert float(run.rows()[-1]["val/acc1"]) >= 90
    assert float(run.rows()[-1]["val/loss"]) < float(run.rows()[0]["val/loss"]) / 2


@pytest.mark.parametrize(
    ("precision", "computed", "kept"),
    [("bf16-mixed", torch.bfloat16, torch.float32), ("64-true", torch.float64, torch.float64)],
)
def test_precision_on_a_cpu_is_what_it_says_for_weights_and_average(
    build: Any, precision: str, computed: torch.dtype, kept: torch.dtype
) -> None:
    seen = set()

    class Kinds(Callback):
        def on_validation_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, *_: Any) -> None:
            seen.update((outputs["logits"].dtype, outputs["ema_logits"].dtype))

    run = build("trainer.max_epochs=3", f"trainer.precision={precision}", "optimizer.lr=1e-2")
    run.trainer.callbacks.append(Kinds())
    run.fit()
    assert seen == {computed}
    assert float(run.rows()[-1]["train/loss"]) < float(run.rows()[0]["train/loss"])
    models = (run.module.model, run.callback(EmaWeights).model)
    assert {p.dtype for model in models for p in model.parameters()} == {kept}


@pytest.mark.parametrize(("accumulate", "updates"), [(1, 6), (2, 4), (5, 2)])
def test_updates_and_schedule_count_under_accumulation(build: Any, accumulate: int, updates: int) -> None:
    run = build(f"trainer.accumulate_grad_batches={accumulate}").fit()
    assert run.trainer.global_step == updates
    assert run.module.schedule.updates_per_epoch * 2 == updates
    assert run.module.schedule.learning_rate(updates) == run.config.scheduler.min_lr


def test_an_accumulated_update_equals_one_of_a_larger_batch(build: Any) -> None:
    small, large = Gradients(), Gradients()
    common = ["trainer.max_epochs=1", "trainer.gradient_clip_val=null", "trainer.limit_train_batches"]
    build(
        *common[:2], f"{common[2]}=2", "trainer.accumulate_grad_batches=2", folder="a", callbacks=(small,)
    ).fit()
    build(*common[:2], f"{common[2]}=1", "data.batch_size=16", folder="b", callbacks=(large,)).fit()
    for name, gradient in large.last.items():
        assert torch.allclose(small.last[name], gradient, rtol=1e-4, atol=1e-6), name


def test_clipping_by_norm_by_value_and_adaptively(build: Any) -> None:
    limits = {"norm": 1e-3, "value": 1e-5, "agc": 1e-4}
    for algorithm, limit in limits.items():
        seen = Gradients()
        clip = [f"trainer.gradient_clip_algorithm={algorithm}", f"trainer.gradient_clip_val={limit}"]
        run = build("trainer.max_epochs=1", *clip, folder=algorithm, callbacks=(seen,)).fit()
        norm = torch.cat([g.flatten() for g in seen.last.values()]).norm()
        largest = max(g.abs().max() for g in seen.last.values())
        if algorithm == "norm":
            assert norm <= 1.001e-3
        elif algorithm == "value":
            assert largest <= 1.001e-5
        else:
            head = seen.last["head.weight"].norm()
            weight = dict(run.module.model.named_parameters())["patch_embed.weight"]
            bound = 1e-4 * weight.detach().flatten(1).norm(dim=1).clamp(min=1e-3)
            assert (seen.last["patch_embed.weight"].flatten(1).norm(dim=1) <= 1.05 * bound).all()
            assert head > 10 * 1e-4 * run.module.model.head.weight.detach().norm()


def test_summary_tells_global_batch_rate_groups_and_cost(build: Any) -> None:
    run = build("trainer.max_epochs=1", "trainer.accumulate_grad_batches=2").fit()
    facts = summary(run.trainer, run.module)
    assert facts["batch"] == "16 images = 8 x 1 process(es) x 2 batch(es) per update"
    assert "learning rate 0.002, weight decay 0.05 on" in facts["optimizer"]
    assert "parameters" in facts["model"]
    assert "multiply-adds per 3x16x16 image" in facts["model"]
    assert facts["schedule"].startswith("cosine, 1 epochs x 2 updates")
    assert run.module.model.training


def test_initial_weights_are_loaded_and_reported(build: Any, caplog: pytest.LogCaptureFixture) -> None:
    first = build("trainer.max_epochs=1", folder="first").fit()
    with caplog.at_level(logging.INFO):
        second = build(f"weights={first.folder}/checkpoints/last.ckpt")
    assert "loaded" in caplog.text
    assert "the moving average in" in caplog.text
    averaged = first.checkpoint()["ema_state_dict"]
    assert all(torch.equal(averaged[n], t) for n, t in second.module.model.state_dict().items())


def test_a_class_count_that_differs_from_the_data_is_one_sentence(build: Any) -> None:
    with pytest.raises(BuildError, match=r"model: num_classes \(7\) must be 10"):
        build("data.num_classes=null", "model.num_classes=7")


def test_an_argument_the_model_does_not_know_is_named(build: Any) -> None:
    with pytest.raises(
        BuildError, match=r"model: got the key windows, which VMamba2 does not know; ~model\.windows"
    ):
        build("+model.windows=3")
