"""Numbered images and the dataset that turns them into tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from data.images import with_channels
from data.randomness import seeded
from data.sampler import EpochIndex

Transform = Callable[[Image.Image], Tensor]


class ImageSource(Protocol):
    """Numbered images with their class ids; pickles small, because every worker gets a copy."""

    targets: np.ndarray  # (images,), int64

    def image(self, index: int) -> Image.Image:
        """Return image number `index`, in whatever mode it is stored."""


class SubsetSource:
    """Some images of a source, in a given order."""

    def __init__(self, source: ImageSource, indices: np.ndarray) -> None:
        self.source = source
        self.indices = indices
        self.targets = source.targets[indices]

    def image(self, index: int) -> Image.Image:
        """Return image number `index` of the subset."""
        return self.source.image(int(self.indices[index]))


class ImageDataset(Dataset[tuple[Tensor, int]]):
    """Images as normalised tensors (C, height, width) with their class ids.

    Args:
        source: the images.
        transform: from a PIL image to a tensor.
        in_chans: 1 (grey) or 3 (RGB); images are converted before the transform.
        seed: what random transforms depend on, with the epoch and the index.
    """

    def __init__(self, source: ImageSource, transform: Transform, *, in_chans: int, seed: int) -> None:
        self.source = source
        self.transform = transform
        self.in_chans = in_chans
        self.seed = seed

    def __len__(self) -> int:
        return len(self.source.targets)

    def __getitem__(self, key: EpochIndex | int) -> tuple[Tensor, int]:
        # A plain index comes from a sequential sampler, which knows no epoch.
        epoch, index = key if isinstance(key, tuple) else (0, key)
        image = with_channels(self.source.image(index), self.in_chans)
        with seeded(self.seed, epoch, index):
            return self.transform(image), int(self.source.targets[index])
