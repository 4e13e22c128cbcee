"""Random numbers that depend on a key alone.

Augmentations draw from Python's, NumPy's and PyTorch's global generators. Seeding these from (seed, epoch,
image) for the time of one call makes a picture of an epoch the same whichever process draws it, however many
workers there are and whatever was drawn before, and leaves the global generators to the model.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def seeded(*key: int) -> Iterator[None]:
    """Seed the global CPU generators from a key of whole numbers >= 0, then put them back as they were."""
    python_state, numpy_state, torch_state = random.getstate(), np.random.get_state(), torch.get_rng_state()
    words = [int(word) for word in np.random.SeedSequence(key).generate_state(3)]
    random.seed(words[0])
    np.random.seed(words[1])
    # torch.manual_seed would also reseed every accelerator.
    torch.default_generator.manual_seed(words[2])
    try:
        yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)
        torch.set_rng_state(torch_state)
