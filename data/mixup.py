"""Mixup and cutmix of one batch, on whatever device it lies."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import timm.data
from torch import Tensor

from data.checks import check_choice, check_number
from data.randomness import seeded

Mode = Literal["batch", "pair", "elem"]


@dataclass(frozen=True)
class Mixup:
    """Mixes each image with the one at the other end of its batch, and their targets in the same shares.

    Args:
        mixup_alpha: shape of the Beta distribution of mixup's share; 0 turns mixup off.
        cutmix_alpha: the same for cutmix; with both at 0 batches stay as they are and targets stay class ids.
        prob: probability of mixing a batch (or a pair or an element).
        switch_prob: probability of cutmix when both are on.
        mode: draw one share per `batch`, `pair` or `elem`.
        label_smoothing: share of the target spread evenly over all classes.
    """

    mixup_alpha: float = 0.0
    cutmix_alpha: float = 0.0
    prob: float = 1.0
    switch_prob: float = 0.5
    mode: Mode = "batch"
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        check_number("mixup.mixup_alpha", self.mixup_alpha, 0, math.inf)
        check_number("mixup.cutmix_alpha", self.cutmix_alpha, 0, math.inf)
        for name in ("prob", "switch_prob", "label_smoothing"):
            check_number(f"mixup.{name}", getattr(self, name), 0, 1)
        check_choice("mixup.mode", self.mode, get_args(Mode))

    @property
    def enabled(self) -> bool:
        """Whether batches are mixed and targets become soft."""
        return self.prob > 0 and (self.mixup_alpha > 0 or self.cutmix_alpha > 0)

    def check_batch_size(self, batch_size: int) -> None:
        """Refuse a batch in which one image would have no partner."""
        if self.enabled and batch_size % 2:
            raise ValueError(
                f"batch_size ({batch_size}) must be even with mixup or cutmix, which mix images in pairs"
            )

    def __call__(
        self, images: Tensor, targets: Tensor, *, num_classes: int, key: tuple[int, ...]
    ) -> tuple[Tensor, Tensor]:
        """Mix a batch; the result depends on the batch and the key alone.

        Args:
            images: (B, C, height, width), floating point, B even; may be overwritten.
            targets: (B,), class ids.
            num_classes: number of classes.
            key: whole numbers >= 0.

        Returns:
            Mixed images, and targets (B, num_classes) in float32 whose rows sum to 1.
        """
        mix = timm.data.Mixup(
            mixup_alpha=self.mixup_alpha,
            cutmix_alpha=self.cutmix_alpha,
            prob=self.prob,
            switch_prob=self.switch_prob,
            mode=self.mode,
            label_smoothing=self.label_smoothing,
            num_classes=num_classes,
        )
        with seeded(*key):
            # In half precision the two shares of a pair would not add up to one.
            mixed, soft = mix(images.float(), targets)
        return mixed.to(images.dtype), soft
