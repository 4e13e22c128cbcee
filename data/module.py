"""The Lightning data module that every source of images shares.

What a batch is made of depends on (seed, epoch, place in the epoch) alone: not on the number of workers, not
on what was drawn before, not on whether the run was interrupted at an epoch's end. See sampler.py (order),
dataset.py (augmentation) and mixup.py (mixing).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from lightning.pytorch import LightningDataModule
from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from torch import Tensor
from torch.utils.data import DataLoader, DistributedSampler

from data.checks import check_count, check_number, options
from data.dataset import ImageDataset, ImageSource
from data.images import ImageReadError
from data.mixup import Mixup
from data.sampler import EpochSampler
from data.transforms import EvalTransform, TrainTransform


@dataclass(frozen=True)
class Splits:
    """Training and validation images under one set of class names."""

    train: ImageSource
    val: ImageSource
    class_names: list[str]


class EpochLoader(DataLoader[tuple[Tensor, int]]):
    """A DataLoader that reads its sampler when the first batch is asked for.

    A DataLoader with workers asks the sampler for the first batches as soon as it is iterated; after a resume
    Lightning does that before it has counted the finished epoch, and would get the previous epoch's order.
    """

    def __iter__(self) -> Iterator[list[Tensor]]:  # type: ignore[override]
        try:
            yield from super().__iter__()
        except ImageReadError as error:
            # A worker's error arrives with the worker's traceback around its sentence.
            raise ImageReadError(str(error).rpartition("ImageReadError: ")[2].strip()) from error


class ImageDataModule(LightningDataModule):
    """Training and validation batches of images; subclasses say where the images come from.

    `prepare()` finds the images; from then on `num_classes`, `class_names`, `train_size` and `val_size` are
    there. A batch is images (B, in_chans, image_size, image_size), float32, normalised, and targets (B,),
    int64. With mixup a training batch has targets (B, num_classes), float32, after its transfer to the
    device.

    Args:
        batch_size: training images per step and process.
        eval_batch_size: validation images per step and process; null takes `batch_size`.
        num_workers: loading processes per training process; 0 loads in the training process.
        pin_memory: page-locked batches; null decides by the trainer's device.
        image_size: height and width of a batch.
        in_chans: 1 (grey) or 3 (RGB); images are converted.
        mean: per channel, in units of the largest pixel value; one number serves every channel, null takes
            ImageNet's.
        std: as `mean`.
        num_classes: expected number of classes; null takes what the data has.
        seed: of the order, the augmentation and the mixing.
        train_transform: a TrainTransform, or a mapping of its fields.
        eval_transform: an EvalTransform, or a mapping of its fields.
        mixup: a Mixup, or a mapping of its fields, or null for none.
    """

    num_classes: int
    class_names: list[str]
    train_size: int
    val_size: int

    def __init__(
        self,
        *,
        batch_size: int,
        eval_batch_size: int | None,
        num_workers: int,
        pin_memory: bool | None,
        image_size: int,
        in_chans: int,
        mean: Sequence[float] | None,
        std: Sequence[float] | None,
        num_classes: int | None,
        seed: int,
        train_transform: TrainTransform | Mapping[str, Any] | None,
        eval_transform: EvalTransform | Mapping[str, Any] | None,
        mixup: Mixup | Mapping[str, Any] | None,
    ) -> None:
        super().__init__()
        check_count("batch_size", batch_size, 1)
        check_count("eval_batch_size", batch_size if eval_batch_size is None else eval_batch_size, 1)
        check_count("num_workers", num_workers, 0)
        check_count("image_size", image_size, 1)
        check_count("num_classes", 1 if num_classes is None else num_classes, 1)
        check_count("seed", seed, 0)
        if in_chans not in (1, 3):
            raise ValueError(f"in_chans ({in_chans}) must be 1 (grey) or 3 (RGB)")
        self.batch_size = batch_size
        self.eval_batch_size = batch_size if eval_batch_size is None else eval_batch_size
        self.num_workers = num_workers
        self.pin_memory = pin_memory
        self.image_size = image_size
        self.in_chans = in_chans
        self.mean = _per_channel("mean", mean, IMAGENET_DEFAULT_MEAN, in_chans)
        self.std = _per_channel("std", std, IMAGENET_DEFAULT_STD, in_chans)
        self._expected_classes = num_classes
        self.seed = seed
        self.train_transform = options("train_transform", TrainTransform, train_transform)
        self.eval_transform = options("eval_transform", EvalTransform, eval_transform)
        self.mixup = options("mixup", Mixup, mixup)
        self.mixup.check_batch_size(batch_size)
        self._datasets: tuple[ImageDataset, ImageDataset] | None = None

    @abstractmethod
    def load_splits(self) -> Splits:
        """Find the images; called once per process, must be cheap and give the same on every process."""

    def prepare(self) -> None:
        """Find the images and check them against the configuration; the second call does nothing."""
        if self._datasets is not None:
            return
        splits = self.load_splits()
        names = splits.class_names
        if self._expected_classes not in (None, len(names)):
            raise ValueError(
                f"num_classes ({self._expected_classes}) must be the number of classes in the data,"
                f" {len(names)} ({', '.join(names[:5])}{', ...' if len(names) > 5 else ''}), or null"
            )
        self.num_classes, self.class_names = len(names), names
        self.train_size, self.val_size = len(splits.train.targets), len(splits.val.targets)
        # Says so here, before a model is built, when the training images do not fill one batch.
        self.train_batches_per_epoch()
        self._datasets = (
            self._dataset(splits.train, self.train_transform),
            self._dataset(splits.val, self.eval_transform),
        )

    def setup(self, stage: str) -> None:
        """Prepare, for a trainer that was handed an unprepared module."""
        self.prepare()

    @property
    def train_dataset(self) -> ImageDataset:
        """The training images; an item is asked for by EpochIndex."""
        self.prepare()
        assert self._datasets is not None
        return self._datasets[0]

    @property
    def val_dataset(self) -> ImageDataset:
        """The validation images."""
        self.prepare()
        assert self._datasets is not None
        return self._datasets[1]

    def train_batches_per_epoch(self, world_size: int = 1) -> int:
        """Return the number of training batches per process and epoch; an incomplete last one is dropped."""
        images = self.train_size // world_size
        if images < self.batch_size:
            share = f"{self.train_size} training images"
            if world_size > 1:
                share = f"{images} training images of each process ({self.train_size} / {world_size})"
            raise ValueError(f"batch_size ({self.batch_size}) must be at most the {share}")
        return images // self.batch_size

    def train_dataloader(self) -> DataLoader[tuple[Tensor, int]]:
        """Return the shuffled, augmented training batches of this process."""
        world_size, rank = self._processes()
        dataset = self.train_dataset
        self.train_batches_per_epoch(world_size)
        sampler = EpochSampler(len(dataset), seed=self.seed, num_replicas=world_size, rank=rank)
        return self._loader(dataset, self.batch_size, sampler=sampler, drop_last=True)

    def val_dataloader(self) -> DataLoader[tuple[Tensor, int]]:
        """Return the validation batches of this process, in the order of the files."""
        world_size, rank = self._processes()
        dataset = self.val_dataset
        sampler: DistributedSampler | None = None
        if world_size > 1:
            # Pads to shares of one length: up to world_size - 1 images count twice.
            sampler = DistributedSampler(dataset, num_replicas=world_size, rank=rank, shuffle=False)
        return self._loader(dataset, self.eval_batch_size, sampler=sampler, drop_last=False)

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """Mix a training batch, on its device."""
        trainer = self.trainer
        if not self.mixup.enabled or trainer is None or not trainer.training:
            return batch
        images, targets = batch
        # The loop counts a batch after its transfer.
        key = (self.seed, trainer.current_epoch, trainer.fit_loop.batch_idx + 1, trainer.global_rank)
        return self.mixup(images, targets, num_classes=self.num_classes, key=key)

    def _dataset(self, source: ImageSource, transform: TrainTransform | EvalTransform) -> ImageDataset:
        built = transform.build(self.image_size, self.mean, self.std)
        return ImageDataset(source, built, in_chans=self.in_chans, seed=self.seed)

    def _loader(
        self, dataset: ImageDataset, batch_size: int, *, sampler: DistributedSampler | None, drop_last: bool
    ) -> DataLoader[tuple[Tensor, int]]:
        # Workers run single-threaded: PyTorch sees to that, and seeds their generators from this one.
        generator = torch.Generator().manual_seed(self.seed)
        return EpochLoader(
            dataset,
            batch_size=batch_size,
            sampler=sampler,
            num_workers=self.num_workers,
            pin_memory=self._pins_memory(),
            drop_last=drop_last,
            generator=generator,
            persistent_workers=self.num_workers > 0,
        )

    def _processes(self) -> tuple[int, int]:
        return (1, 0) if self.trainer is None else (self.trainer.world_size, self.trainer.global_rank)

    def _pins_memory(self) -> bool:
        if self.pin_memory is not None or self.trainer is None:
            return bool(self.pin_memory)
        return self.trainer.strategy.root_device.type not in ("cpu", "mps")


def _per_channel(
    name: str, values: Sequence[float] | None, imagenet: Sequence[float], in_chans: int
) -> list[float]:
    """Return one number per channel."""
    if values is None:
        return list(imagenet) if in_chans == len(imagenet) else [sum(imagenet) / len(imagenet)] * in_chans
    listed = list(values)
    if len(listed) not in (1, in_chans):
        raise ValueError(
            f"{name} ({listed}) must hold one number, or one per channel (in_chans is {in_chans}), or be null"
        )
    for value in listed:
        check_number(name, value, 1e-6 if name == "std" else 0, 1)
    return [float(value) for value in (listed * in_chans)[:in_chans]]
