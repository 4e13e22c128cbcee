"""The training loss, by what the targets of a batch are: class ids, or shares of every class (mixup)."""

from __future__ import annotations

import torch.nn.functional as F
from timm.loss import BinaryCrossEntropy, LabelSmoothingCrossEntropy, SoftTargetCrossEntropy
from torch import Tensor, nn


class TrainingLoss(nn.Module):
    """Cross entropy (or binary cross entropy) on hard or soft targets.

    Label smoothing is applied once: by this loss when targets are class ids, by the mixup that made them when
    they are shares.

    Args:
        label_smoothing: share of the target that is spread over all classes.
        bce: one sigmoid per class instead of one softmax.
    """

    def __init__(self, label_smoothing: float = 0.0, bce: bool = False) -> None:
        super().__init__()
        self.soft: nn.Module = BinaryCrossEntropy(smoothing=0.0) if bce else SoftTargetCrossEntropy()
        if bce:
            self.hard: nn.Module = BinaryCrossEntropy(smoothing=label_smoothing)
        elif label_smoothing:
            self.hard = LabelSmoothingCrossEntropy(smoothing=label_smoothing)
        else:
            self.hard = nn.CrossEntropyLoss()

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Mean loss of a batch, in float32.

        Args:
            logits: (B, classes).
            targets: (B,) class ids, or (B, classes) shares that sum to 1.
        """
        loss = self.soft if targets.is_floating_point() else self.hard
        return loss(logits.float(), targets)


def validation_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross entropy on the true labels, without smoothing, in float32."""
    return F.cross_entropy(logits.float(), targets)


def class_ids(targets: Tensor) -> Tensor:
    """The class a target stands for: with mixup the one with the larger share."""
    return targets.argmax(dim=1) if targets.is_floating_point() else targets
