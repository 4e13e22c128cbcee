from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from timm.data import create_transform

from data.randomness import seeded
from data.transforms import EvalTransform, TrainTransform

RAND = "rand-m9-mstd0.5-inc1"


def picture(mode: str = "RGB") -> Image.Image:
    pixels = np.random.default_rng(0).integers(0, 256, (50, 40, 3), dtype=np.uint8)
    return Image.fromarray(pixels).convert(mode)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"train_crop_mode": "rkrc", "hflip": 0.0, "vflip": 0.5},
        {"train_crop_mode": "rkrr", "scale": [0.5, 1.0], "ratio": [0.9, 1.1]},
        {"auto_augment": RAND, "re_prob": 1.0, "interpolation": "random"},
        {"auto_augment": "original", "re_prob": 1.0, "re_mode": "rand", "re_count": 3},
        {"auto_augment": "3a", "color_jitter": [0.3, 0.3, 0.3]},
        {"color_jitter": None, "grayscale_prob": 0.5, "gaussian_blur_prob": 0.5},
        {"color_jitter": 0.8, "color_jitter_prob": 0.5},
    ],
)
@pytest.mark.parametrize(("mode", "in_chans"), [("L", 1), ("RGB", 3)])
def test_training_transforms_work_on_grey_and_rgb(options, mode, in_chans):
    transform = TrainTransform(**options).build(32, (0.5,) * in_chans, (0.25,) * in_chans)
    for key in range(20):
        with seeded(key):
            image = transform(picture(mode))
        assert image.shape == (in_chans, 32, 32)
        assert image.dtype == torch.float32
        assert image.isfinite().all()


def test_augmix_works_on_rgb():
    """Grey images need a timm newer than the oldest that is supported."""
    transform = TrainTransform(auto_augment="augmix-m3-w3").build(32, (0.5,) * 3, (0.25,) * 3)
    for key in range(10):
        with seeded(key):
            assert transform(picture()).shape == (3, 32, 32)


def test_training_transform_is_timms():
    wanted = create_transform(
        32, is_training=True, auto_augment=RAND, re_prob=0.25, re_mode="pixel", interpolation="bicubic"
    )
    ours = TrainTransform(auto_augment=RAND, re_prob=0.25, re_mode="pixel", interpolation="bicubic")
    built = ours.build(32, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    for key in range(10):
        with seeded(key):
            first = wanted(picture())
        with seeded(key):
            second = built(picture())
        assert (first == second).all()


def test_evaluation_transform_is_timms():
    for options in (
        {},
        {"crop_pct": 1.0, "crop_mode": "squash"},
        {"crop_mode": "border", "interpolation": "bilinear"},
    ):
        asked = {"crop_pct": 0.875, "interpolation": "bicubic"} | options
        wanted = create_transform(32, mean=(0.5,) * 3, std=(0.2,) * 3, **asked)
        built = EvalTransform(**options).build(32, (0.5,) * 3, (0.2,) * 3)
        assert (built(picture()) == wanted(picture())).all()


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"hflip": 1.5}, "train_transform.hflip (1.5) must be a number between 0 and 1"),
        ({"re_prob": "often"}, "train_transform.re_prob (often) must be a number between 0 and 1"),
        (
            {"scale": [0.9, 0.1]},
            "train_transform.scale ([0.9, 0.1]) must be two numbers, low then high, between",
        ),
        (
            {"ratio": 1.0},
            "train_transform.ratio (1.0) must be two numbers, low then high, between 0.01 and 100",
        ),
        ({"re_count": 0}, "train_transform.re_count (0) must be a whole number, at least 1"),
        (
            {"color_jitter": [0.1]},
            "train_transform.color_jitter ([0.1]) must be one number, or three or four",
        ),
        ({"color_jitter": -1}, "train_transform.color_jitter (-1) must be a number, at least 0"),
        ({"color_jitter_prob": 2}, "train_transform.color_jitter_prob (2) must be a number between 0 and 1"),
        ({"interpolation": "bicubik"}, "hamming, random; did you mean 'bicubic'?"),
        (
            {"re_mode": "Pixel"},
            "train_transform.re_mode (Pixel) must be one of const, rand, pixel; did you mean",
        ),
        (
            {"auto_augment": "randaug-m9"},
            "train_transform.auto_augment (randaug) must be one of rand, augmix,",
        ),
        (
            {"auto_augment": "rand-m9-zz1"},
            "train_transform.auto_augment (rand-m9-zz1) must be a timm policy such as",
        ),
    ],
)
def test_a_bad_training_option_is_named(options, wanted):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the whole message is compared below)
        TrainTransform(**options)
    assert wanted in str(caught.value)


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"crop_pct": 0}, "eval_transform.crop_pct (0) must be a number between 0.01 and 1"),
        ({"crop_pct": 1.2}, "eval_transform.crop_pct (1.2) must be a number between 0.01 and 1"),
        (
            {"crop_mode": "centre"},
            "eval_transform.crop_mode (centre) must be one of center, squash, border; did you",
        ),
        (
            {"interpolation": "random"},
            "eval_transform.interpolation (random) must be one of bilinear, bicubic,",
        ),
    ],
)
def test_a_bad_evaluation_option_is_named(options, wanted):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the whole message is compared below)
        EvalTransform(**options)
    assert wanted in str(caught.value)
