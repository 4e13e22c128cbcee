"""timm's image transforms for training and evaluation, as checked options."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from timm.data import create_transform

from data.checks import check_choice, check_count, check_number, check_range
from data.dataset import Transform

Filter = Literal["bilinear", "bicubic", "nearest", "lanczos", "box", "hamming"]
TrainFilter = Literal["bilinear", "bicubic", "nearest", "lanczos", "box", "hamming", "random"]
TrainCrop = Literal["rrc", "rkrc", "rkrr"]
EvalCrop = Literal["center", "squash", "border"]
Erasing = Literal["const", "rand", "pixel"]
AUTO_AUGMENTS = ("rand", "augmix", "original", "originalr", "v0", "v0r", "3a")


@dataclass(frozen=True)
class TrainTransform:
    """Random transforms of training; the names are those of timm's `create_transform`.

    Args:
        train_crop_mode: `rrc` (random resized crop), `rkrc` (resize keeping ratio, centre crop or pad) or
            `rkrr` (the same with a random place).
        scale: range of the crop's share of the image area.
        ratio: range of the crop's width / height.
        hflip: probability of a horizontal flip.
        vflip: probability of a vertical flip.
        color_jitter: strength for brightness, contrast and saturation, or one number each (and a fourth for
            hue); off when null, and when `auto_augment` is set.
        color_jitter_prob: probability of the colour jitter; null applies it always.
        grayscale_prob: probability of turning grey.
        gaussian_blur_prob: probability of a blur.
        auto_augment: timm's policy string, such as `rand-m9-mstd0.5-inc1`; null for none.
        interpolation: filter of the resize; `random` draws bilinear or bicubic.
        re_prob: probability of random erasing.
        re_mode: what erased pixels become: `const` (the mean), `rand` (one colour) or `pixel` (noise).
        re_count: number of erased boxes.
    """

    train_crop_mode: TrainCrop = "rrc"
    scale: Sequence[float] = (0.08, 1.0)
    ratio: Sequence[float] = (3 / 4, 4 / 3)
    hflip: float = 0.5
    vflip: float = 0.0
    color_jitter: float | Sequence[float] | None = 0.4
    color_jitter_prob: float | None = None
    grayscale_prob: float = 0.0
    gaussian_blur_prob: float = 0.0
    auto_augment: str | None = None
    interpolation: TrainFilter = "bicubic"
    re_prob: float = 0.0
    re_mode: Erasing = "pixel"
    re_count: int = 1

    def __post_init__(self) -> None:
        for name in ("hflip", "vflip", "grayscale_prob", "gaussian_blur_prob", "re_prob"):
            check_number(f"train_transform.{name}", getattr(self, name), 0, 1)
        if self.color_jitter_prob is not None:
            check_number("train_transform.color_jitter_prob", self.color_jitter_prob, 0, 1)
        check_choice("train_transform.train_crop_mode", self.train_crop_mode, get_args(TrainCrop))
        check_range("train_transform.scale", self.scale, 0.001, 1)
        check_range("train_transform.ratio", self.ratio, 0.01, 100)
        check_choice("train_transform.interpolation", self.interpolation, get_args(TrainFilter))
        check_choice("train_transform.re_mode", self.re_mode, get_args(Erasing))
        check_count("train_transform.re_count", self.re_count, 1)
        if self.auto_augment is not None:
            self._check_auto_augment()
        self._check_color_jitter()

    def build(self, image_size: int, mean: Sequence[float], std: Sequence[float]) -> Transform:
        """Return the transform from a PIL image to a normalised tensor (C, image_size, image_size)."""
        jitter = self.color_jitter
        return create_transform(
            input_size=image_size,
            is_training=True,
            train_crop_mode=self.train_crop_mode,
            scale=(self.scale[0], self.scale[1]),
            ratio=(self.ratio[0], self.ratio[1]),
            hflip=self.hflip,
            vflip=self.vflip,
            # timm takes None for off, though it does not say so.
            color_jitter=tuple(jitter) if isinstance(jitter, Sequence) else jitter,  # type: ignore[arg-type]
            color_jitter_prob=self.color_jitter_prob,
            grayscale_prob=self.grayscale_prob,
            gaussian_blur_prob=self.gaussian_blur_prob,
            auto_augment=self.auto_augment,
            interpolation=self.interpolation,
            mean=tuple(mean),
            std=tuple(std),
            re_prob=self.re_prob,
            re_mode=self.re_mode,
            re_count=self.re_count,
        )

    def _check_auto_augment(self) -> None:
        name = "train_transform.auto_augment"
        check_choice(name, str(self.auto_augment).split("-")[0], AUTO_AUGMENTS)
        try:
            self.build(32, (0.5,) * 3, (0.5,) * 3)
        except (AssertionError, ValueError, KeyError) as error:
            example = "'rand-m9-mstd0.5-inc1'"
            raise ValueError(
                f"{name} ({self.auto_augment}) must be a timm policy such as {example}: {error}"
            ) from error

    def _check_color_jitter(self) -> None:
        jitter = self.color_jitter
        if isinstance(jitter, Sequence) and not isinstance(jitter, str):
            if len(jitter) not in (3, 4):
                raise ValueError(
                    f"train_transform.color_jitter ({jitter}) must be one number, or three or four"
                )
            for value in jitter:
                check_number("train_transform.color_jitter", value, 0, math.inf)
        elif jitter is not None:
            check_number("train_transform.color_jitter", jitter, 0, math.inf)


@dataclass(frozen=True)
class EvalTransform:
    """The resize and crop of evaluation; the names are those of timm's `create_transform`.

    Args:
        crop_pct: side of the crop / side of the resized image.
        crop_mode: `center` (short side resized, centre cropped), `squash` (both sides resized) or `border`
            (long side resized, border filled with the mean).
        interpolation: filter of the resize.
    """

    crop_pct: float = 0.875
    crop_mode: EvalCrop = "center"
    interpolation: Filter = "bicubic"

    def __post_init__(self) -> None:
        check_number("eval_transform.crop_pct", self.crop_pct, 0.01, 1)
        check_choice("eval_transform.crop_mode", self.crop_mode, get_args(EvalCrop))
        check_choice("eval_transform.interpolation", self.interpolation, get_args(Filter))

    def build(self, image_size: int, mean: Sequence[float], std: Sequence[float]) -> Transform:
        """Return the transform from a PIL image to a normalised tensor (C, image_size, image_size)."""
        return create_transform(
            input_size=image_size,
            is_training=False,
            crop_pct=self.crop_pct,
            crop_mode=self.crop_mode,
            interpolation=self.interpolation,
            mean=tuple(mean),
            std=tuple(std),
        )
