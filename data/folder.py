"""Images in folders named for their classes: <root>/train/<class>/<image> and <root>/val/<class>/<image>."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from data.checks import check_number
from data.dataset import SubsetSource
from data.images import read_image
from data.mixup import Mixup
from data.module import ImageDataModule, Splits
from data.scan import FolderIndex, scan_folder, shortened
from data.split import stratified_split
from data.transforms import EvalTransform, TrainTransform


class FolderSource:
    """The images of a folder index, read when asked for."""

    def __init__(self, index: FolderIndex) -> None:
        self.index = index
        self.targets: np.ndarray = index.targets

    def image(self, index: int) -> Image.Image:
        """Read image number `index`."""
        return read_image(self.index.path(index))


class ImageFolderDataModule(ImageDataModule):
    """Images in class folders; the arguments below and those of ImageDataModule.

    Class ids are the places of the training folder's class folders in sorted order; the validation folder may
    lack classes but not add any.

    Args:
        root: folder of the data set, relative to the working directory or absolute; may be null when
            `train_dir` and `val_dir` say it all.
        train_dir: folder of the training class folders, relative to `root` or absolute; null takes
            `root/train`.
        val_dir: the same for validation; null takes `root/val`.
        val_fraction: share of the training images to validate on instead of a validation folder: the same
            share of each class, always the same images. `train_dir` null then takes `root/train` or, without
            that, `root`.
    """

    def __init__(
        self,
        *,
        root: str | None = None,
        train_dir: str | None = None,
        val_dir: str | None = None,
        val_fraction: float | None = None,
        batch_size: int = 128,
        eval_batch_size: int | None = None,
        num_workers: int = 4,
        pin_memory: bool | None = None,
        image_size: int = 224,
        in_chans: int = 3,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
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
        if val_fraction is not None:
            check_number("val_fraction", val_fraction, 0.001, 0.999)
            if val_dir is not None:
                raise ValueError(
                    f"val_fraction ({val_fraction}) must be null when val_dir ({val_dir}) is given"
                )
        self.root = root
        self.train_dir = train_dir
        self.val_dir = val_dir
        self.val_fraction = val_fraction

    def load_splits(self) -> Splits:
        """Scan the folders."""
        train_folder, val_folder = self._folders()
        train = scan_folder(train_folder, what="train_dir")
        source = FolderSource(train)
        if val_folder is not None:
            val = scan_folder(val_folder, what="val_dir", train_classes=train.class_names)
            return Splits(source, FolderSource(val), train.class_names)
        assert self.val_fraction is not None
        train_indices, val_indices = stratified_split(train.targets, self.val_fraction)
        if not len(val_indices):
            raise ValueError(
                f"val_fraction ({self.val_fraction}) must leave an image to validate on;"
                f" train_dir ({train_folder}) holds {len(train.targets)}"
            )
        return Splits(
            SubsetSource(source, train_indices), SubsetSource(source, val_indices), train.class_names
        )

    def _folders(self) -> tuple[Path, Path | None]:
        """Return the training folder and the validation folder, None when images are set apart instead."""
        root = None if self.root is None else _existing("root", self.root, Path())
        if root is None and (self.train_dir is None or (self.val_dir is None and self.val_fraction is None)):
            raise ValueError("root (None) must name a folder, unless train_dir and val_dir both do")
        base = root or Path()
        if self.train_dir is not None:
            train = _existing("train_dir", self.train_dir, base)
        elif (base / "train").is_dir():
            train = base / "train"
        elif self.val_fraction is not None:
            train = base
        else:
            raise FileNotFoundError(
                f"root ({self.root}) must hold a folder 'train', but holds {_contents(base)}; name another by"
                " data.train_dir, or set data.val_fraction=0.2 if root itself holds the class folders"
            )
        if self.val_dir is not None:
            return train, _existing("val_dir", self.val_dir, base)
        val = base / "val"
        if self.val_fraction is not None:
            if root is not None and self.train_dir is None and val.is_dir() and train != base:
                raise ValueError(
                    f"val_fraction ({self.val_fraction}) must be null, because root ({self.root}) holds a"
                    " folder 'val'; to split the training images all the same, set data.train_dir=train"
                )
            return train, None
        if not val.is_dir():
            raise FileNotFoundError(
                f"root ({self.root}) must hold a folder 'val', but holds {_contents(base)}; name another by"
                " data.val_dir, or set data.val_fraction=0.2 to validate on part of the training images"
            )
        return train, val


def _existing(name: str, folder: str, base: Path) -> Path:
    """Return the absolute path of a folder that exists."""
    if not str(folder).strip():
        raise ValueError(f"{name} ({folder!r}) must name a folder")
    path = Path(os.path.abspath(base / Path(folder).expanduser()))
    if not path.is_dir():
        rule = "be a folder, not a file" if path.exists() else "be an existing folder"
        where = "" if str(path) == str(folder) else f"; it stands for {path}"
        raise FileNotFoundError(f"{name} ({folder}) must {rule}{where}")
    return path


def _contents(folder: Path) -> str:
    """Name the folders in a folder."""
    return shortened(sorted(entry.name for entry in folder.iterdir() if entry.is_dir()), 10) or "no folder"
