"""A validation part cut from one set of images."""

from __future__ import annotations

import numpy as np


def stratified_split(targets: np.ndarray, fraction: float) -> tuple[np.ndarray, np.ndarray]:
    """Split images so that every class gives the same share to the second part.

    The split depends on the targets alone, not on a run's seed: runs with other seeds are judged on the same
    images, and a run that goes on with another seed has not trained on them. Each class keeps an image in the
    first part.

    Args:
        targets: (images,), class ids.
        fraction: share of the second part; it gets round(images * fraction) images.

    Returns:
        Indices of the first and of the second part, ascending.
    """
    counts = np.bincount(targets)
    wanted = counts * fraction
    sizes = np.floor(wanted).astype(np.int64)
    # The classes with the largest remainders give one image more until the total is right.
    missing = round(len(targets) * fraction) - int(sizes.sum())
    sizes[np.argsort(sizes - wanted, kind="stable")[:missing]] += 1
    sizes = np.minimum(sizes, np.maximum(counts - 1, 0))
    second = np.zeros(len(targets), dtype=bool)
    rng = np.random.default_rng(0)
    for class_id, size in enumerate(sizes):
        second[rng.permutation(np.flatnonzero(targets == class_id))[:size]] = True
    return np.flatnonzero(~second), np.flatnonzero(second)
