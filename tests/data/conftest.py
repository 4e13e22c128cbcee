from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image


def write_image(path: Path, seed: int = 0) -> None:
    """Write a small noisy picture in the format of the path's suffix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(seed).integers(0, 256, (24, 32, 3), dtype=np.uint8)
    Image.fromarray(noise).save(path)


@pytest.fixture
def pictures(tmp_path: Path) -> Callable[[Iterable[str]], Path]:
    """Write pictures at paths relative to a new folder and return the folder."""

    def write(paths: Iterable[str], folder: str = "pictures") -> Path:
        for number, path in enumerate(paths):
            write_image(tmp_path / folder / path, seed=number)
        return tmp_path / folder

    return write


@pytest.fixture
def ten_pictures(pictures) -> Path:
    """Two classes, three training pictures and two validation pictures each."""
    return pictures(
        [f"train/{name}/{i}.png" for name in ("cat", "dog") for i in range(3)]
        + [f"val/{name}/{i}.png" for name in ("cat", "dog") for i in range(2)]
    )
