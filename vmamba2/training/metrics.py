"""Metrics in the form the module and the callbacks report them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torchmetrics import Metric
from torchmetrics.classification import MulticlassAccuracy

from vmamba2.training.losses import class_ids, validation_loss


class TopK(MulticlassAccuracy):
    """Share of images, in percent, whose class is among the k best; k is at most the number of classes."""

    def __init__(self, k: int, num_classes: int) -> None:
        # "macro", torchmetrics' default, would average over classes instead of images.
        super().__init__(num_classes=num_classes, top_k=min(k, num_classes), average="micro")

    def compute(self) -> Tensor:
        """The percentage over everything seen since the last reset."""
        return 100 * super().compute()


class MeanLoss(Metric):
    """Mean over images of a loss that is a mean over the images of a batch; a NaN stays a NaN."""

    total: Tensor
    images: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("total", default=torch.tensor(0.0), dist_reduce_fx="sum")
        self.add_state("images", default=torch.tensor(0), dist_reduce_fx="sum")

    def update(self, loss: Tensor, images: int) -> None:
        """Add the mean loss of a batch of so many images."""
        self.total += loss.detach().float() * images
        self.images += images

    def compute(self) -> Tensor:
        """The mean over everything seen since the last reset."""
        return self.total / self.images


class EvaluationMetrics(nn.Module):
    """Loss, top-1 and top-5 of one set of weights over a validation run."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.loss = MeanLoss()
        self.acc1 = TopK(1, num_classes)
        self.acc5 = TopK(5, num_classes)

    def update(self, logits: Tensor, targets: Tensor) -> None:
        """Add a batch: logits (B, classes), targets (B,) class ids."""
        self.loss.update(validation_loss(logits, targets), len(targets))
        for metric in (self.acc1, self.acc5):
            metric.update(logits.float(), class_ids(targets))

    def results(self, prefix: str) -> dict[str, Any]:
        """Every metric's value by name, reduced over all processes."""
        return {f"{prefix}{name}": metric.compute() for name, metric in self._named()}

    def reset(self) -> None:
        """Forget everything seen."""
        for _, metric in self._named():
            metric.reset()

    def _named(self) -> list[tuple[str, Any]]:
        return [("loss", self.loss), ("acc1", self.acc1), ("acc5", self.acc5)]
