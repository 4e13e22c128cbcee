"""Real handwritten digits that ship with scikit-learn: 1,797 grey images of 8x8 pixels in ten classes.

    python -m data.digits --write FOLDER

writes them as pictures, FOLDER/train/<class>/*.png and FOLDER/val/<class>/*.png, the layout of data.folder.
"""

from __future__ import annotations

import argparse
import logging
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

from data.dataset import SubsetSource
from data.mixup import Mixup
from data.module import ImageDataModule, Splits
from data.split import stratified_split
from data.transforms import EvalTransform, TrainTransform

log = logging.getLogger(__name__)

# Pictures are enlarged once, so that crops can move by less than one of the 8x8 pixels.
SIDE = 32
INK_LEVELS = 16
VAL_FRACTION = 0.2


class DigitsSource:
    """All digits as grey images, white on black."""

    def __init__(self) -> None:
        bunch = load_digits()
        small = np.rint(bunch.images * (255 / INK_LEVELS)).astype(np.uint8)
        resized = [Image.fromarray(image).resize((SIDE, SIDE), Image.Resampling.BICUBIC) for image in small]
        self.pixels = np.stack([np.asarray(image) for image in resized])  # (images, SIDE, SIDE)
        self.targets = bunch.target.astype(np.int64)

    def image(self, index: int) -> Image.Image:
        """Return digit number `index`."""
        return Image.fromarray(self.pixels[index])


def load_splits() -> Splits:
    """Return 1,438 digits for training and 359 for validation, the same ones every time."""
    source = DigitsSource()
    train, val = stratified_split(source.targets, VAL_FRACTION)
    return Splits(SubsetSource(source, train), SubsetSource(source, val), [str(digit) for digit in range(10)])


class DigitsDataModule(ImageDataModule):
    """Handwritten digits; the arguments are those of ImageDataModule."""

    def __init__(
        self,
        *,
        batch_size: int = 64,
        eval_batch_size: int | None = None,
        num_workers: int = 0,
        pin_memory: bool | None = None,
        image_size: int = SIDE,
        in_chans: int = 1,
        mean: Sequence[float] | None = (0.305,),
        std: Sequence[float] | None = (0.345,),
        num_classes: int | None = None,
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

    def load_splits(self) -> Splits:
        """Load the digits."""
        return load_splits()


def write_folder(folder: str | Path) -> int:
    """Write the digits as PNG files in class folders and return their number.

    Args:
        folder: gets `train/<class>/` and `val/<class>/`; must be new or empty.
    """
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"digits: folder ({folder}) must be new or empty")
    splits = load_splits()
    for name, source in (("train", splits.train), ("val", splits.val)):
        for class_name in splits.class_names:
            (folder / name / class_name).mkdir(parents=True)
        for index, target in enumerate(source.targets):
            source.image(index).save(folder / name / splits.class_names[target] / f"{index:04d}.png")
    return len(splits.train.targets) + len(splits.val.targets)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m data.digits", description="Handwritten digits as pictures."
    )
    parser.add_argument(
        "--write", metavar="FOLDER", required=True, help="new or empty folder for the pictures"
    )
    folder = parser.parse_args(arguments).write
    try:
        count = write_folder(folder)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    command = f"python train.py data=imagefolder {shlex.quote(f'data.root={folder}')}"
    log.info("wrote %d pictures to %s; train on them with: %s", count, folder, command)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    main()
