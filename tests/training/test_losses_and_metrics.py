"""Losses by the kind of target, accuracies in percent."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from data.mixup import Mixup
from vmamba2.training.losses import TrainingLoss, class_ids, validation_loss
from vmamba2.training.metrics import EvaluationMetrics, TopK

LOGITS = torch.tensor([[2.0, 0.5, -1.0], [0.0, 1.0, 0.3], [0.2, 0.1, 0.9], [1.5, -0.5, 0.0]])
CLASSES = torch.tensor([0, 1, 2, 1])


def smoothed(smoothing: float) -> torch.Tensor:
    return F.one_hot(CLASSES, 3) * (1 - smoothing) + smoothing / 3


def test_tr_10_smoothing_is_applied_exactly_once_with_and_without_mixup() -> None:
    expected = -(smoothed(0.1) * LOGITS.log_softmax(1)).sum(1).mean()
    loss = TrainingLoss(label_smoothing=0.1)
    assert loss(LOGITS, CLASSES).item() == pytest.approx(expected.item(), rel=1e-6)
    # A share of one: the images stay, the targets get mixup's own smoothing.
    mix = Mixup(mixup_alpha=1.0, label_smoothing=0.1)
    _, soft = mix(torch.zeros(4, 1, 2, 2), CLASSES, num_classes=3, key=(0, 0))
    assert torch.allclose(soft.sum(1), torch.ones(4))
    expected = -(soft * LOGITS.log_softmax(1)).sum(1).mean()
    assert loss(LOGITS, soft).item() == pytest.approx(expected.item(), rel=1e-6)


def test_tr_10_validation_uses_the_true_labels_without_smoothing() -> None:
    expected = F.nll_loss(LOGITS.log_softmax(1), CLASSES)
    assert validation_loss(LOGITS, CLASSES).item() == pytest.approx(expected.item(), rel=1e-6)


def test_tr_10_accuracy_under_mixup_counts_the_larger_share() -> None:
    soft = torch.tensor([[0.7, 0.3, 0.0], [0.4, 0.0, 0.6]])
    assert class_ids(soft).tolist() == [0, 2]
    assert class_ids(CLASSES) is CLASSES


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_binary_cross_entropy_takes_both_kinds_of_targets(smoothing: float) -> None:
    loss = TrainingLoss(label_smoothing=smoothing, bce=True)
    expected = F.binary_cross_entropy_with_logits(LOGITS, smoothed(smoothing))
    assert loss(LOGITS, CLASSES).item() == pytest.approx(expected.item(), rel=1e-5)
    assert loss(LOGITS, smoothed(smoothing)).item() == pytest.approx(expected.item(), rel=1e-5)


def test_losses_are_float32_under_bfloat16_logits() -> None:
    assert TrainingLoss(0.1)(LOGITS.bfloat16(), CLASSES).dtype == torch.float32
    assert validation_loss(LOGITS.bfloat16(), CLASSES).dtype == torch.float32


def test_tr_11_top_five_of_three_classes_is_hundred_percent() -> None:
    metrics = EvaluationMetrics(3)
    metrics.update(LOGITS, CLASSES)
    results = metrics.results("val/")
    assert results["val/acc5"] == 100
    assert results["val/acc1"] == 75
    assert results["val/loss"].item() == pytest.approx(validation_loss(LOGITS, CLASSES).item())


def test_accuracy_averages_over_images_not_over_classes() -> None:
    metric = TopK(1, 3)
    logits = torch.eye(3)[torch.tensor([0, 0, 0, 1])]
    metric.update(logits, torch.tensor([0, 0, 0, 2]))
    assert metric.compute() == 75


def test_batches_of_different_sizes_count_by_images_and_nan_stays_nan() -> None:
    metrics = EvaluationMetrics(3)
    metrics.update(LOGITS[:3], CLASSES[:3])
    metrics.update(LOGITS[3:], CLASSES[3:])
    whole = validation_loss(LOGITS, CLASSES).item()
    assert metrics.results("")["loss"].item() == pytest.approx(whole, rel=1e-6)
    metrics.update(torch.full((1, 3), torch.nan), CLASSES[:1])
    assert torch.isnan(metrics.results("")["loss"])
