"""Reproducible made-up images of any size and number of classes, for tests of shape and speed.

Every class is a grating of its own direction, width and colour under noise, so that a model can learn it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image

from data.checks import check_count
from data.mixup import Mixup
from data.module import ImageDataModule, Splits
from data.transforms import EvalTransform, TrainTransform

# Steps of the golden ratio spread any number of classes evenly.
GOLDEN = (math.sqrt(5) - 1) / 2


class SyntheticSource:
    """Images that are computed when asked for, each from (stream, index) alone.

    Args:
        size: number of images; their classes take turns.
        num_classes: number of classes.
        side: height and width in pixels.
        stream: sources with other numbers have other images of the same classes.
    """

    def __init__(self, size: int, *, num_classes: int, side: int, stream: int) -> None:
        self.targets = np.arange(size, dtype=np.int64) % num_classes
        self.num_classes = num_classes
        self.side = side
        self.stream = stream

    def image(self, index: int) -> Image.Image:
        """Return image number `index`, RGB."""
        rng = np.random.default_rng((self.stream, index))
        class_id = int(self.targets[index])
        angle = math.pi * class_id / self.num_classes
        waves = 2 + class_id % 3
        along = np.arange(self.side, dtype=np.float32) * (2 * math.pi * waves / self.side)
        phase = rng.uniform(0, 2 * math.pi)
        grating = np.sin(math.cos(angle) * along[None, :] + math.sin(angle) * along[:, None] + phase)
        hue = 2 * math.pi * (class_id * GOLDEN % 1)
        colour = np.array([math.cos(hue + shift) for shift in (0, 2.1, 4.2)], dtype=np.float32)
        pixels = 128 + 40 * grating[..., None] + 20 * colour
        pixels = pixels + rng.integers(-60, 61, size=pixels.shape, dtype=np.int8)
        return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


class SyntheticDataModule(ImageDataModule):
    """Made-up images; the arguments below and those of ImageDataModule.

    Args:
        train_images: number of training images.
        val_images: number of validation images.
        num_classes: number of classes; null makes ten.
    """

    def __init__(
        self,
        *,
        train_images: int = 1024,
        val_images: int = 256,
        batch_size: int = 64,
        eval_batch_size: int | None = None,
        num_workers: int = 0,
        pin_memory: bool | None = None,
        image_size: int = 224,
        in_chans: int = 3,
        mean: Sequence[float] | None = (0.5,),
        std: Sequence[float] | None = (0.2,),
        num_classes: int | None = 10,
        seed: int = 0,
        train_transform: TrainTransform | Mapping[str, Any] | None = None,
        eval_transform: EvalTransform | Mapping[str, Any] | None = None,
        mixup: Mixup | Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(
            batch_size=batch_size,
            eval_batch_size=eval_batch_size,
            num_workers=num_workers,
            pin_memory=pin_memory,
            image_size=image_size,
            in_chans=in_chans,
            mean=mean,
            std=std,
            num_classes=num_classes,
            seed=seed,
            train_transform=train_transform,
            eval_transform=eval_transform,
            mixup=mixup,
        )
        check_count("train_images", train_images, 1)
        check_count("val_images", val_images, 1)
        self.train_images = train_images
        self.val_images = val_images
        self.made_classes = 10 if num_classes is None else num_classes

    def load_splits(self) -> Splits:
        """Number the images; nothing is drawn yet."""

        def source(size: int, stream: int) -> SyntheticSource:
            return SyntheticSource(size, num_classes=self.made_classes, side=self.image_size, stream=stream)

        names = [f"class_{number}" for number in range(self.made_classes)]
        return Splits(source(self.train_images, 0), source(self.val_images, 1), names)
