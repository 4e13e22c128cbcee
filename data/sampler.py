"""The order of the training images."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from torch.utils.data import DistributedSampler


class EpochIndex(NamedTuple):
    """An image of an epoch: what its augmentation depends on, beside the run's seed."""

    epoch: int
    number: int


class EpochSampler(DistributedSampler[EpochIndex]):
    """Shuffles by (seed, epoch) alone and gives each process its share, all shares of one length.

    The epoch travels with every index, because workers that stay alive between epochs hold a copy of the
    dataset that nobody can tell about a new epoch. The base class keeps Lightning from putting a sampler of
    its own here.
    """

    def __init__(self, size: int, *, seed: int, num_replicas: int = 1, rank: int = 0) -> None:
        super().__init__(
            range(size),  # type: ignore[arg-type]
            num_replicas=num_replicas,
            rank=rank,
            seed=seed,
            drop_last=True,
        )
        self.size = size

    def __iter__(self) -> Iterator[EpochIndex]:
        order = np.random.default_rng((self.seed, self.epoch)).permutation(self.size)
        share = order[self.rank : self.num_samples * self.num_replicas : self.num_replicas]
        return (EpochIndex(self.epoch, int(number)) for number in share)
