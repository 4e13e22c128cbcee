from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from data.mixup import Mixup
from data.synthetic import SyntheticDataModule

KINDS = [
    {"mixup_alpha": 0.8},
    {"cutmix_alpha": 1.0},
    {"mixup_alpha": 0.8, "cutmix_alpha": 1.0},
    {"mixup_alpha": 0.8, "cutmix_alpha": 1.0, "prob": 0.5},
]


def batch(
    size: int, num_classes: int, dtype: torch.dtype = torch.float32
) -> tuple[torch.Tensor, torch.Tensor]:
    """Images whose every pixel is their class id."""
    targets = torch.arange(size) % num_classes
    return targets.to(dtype)[:, None, None, None].expand(size, 3, 16, 16).clone(), targets


@pytest.mark.parametrize("mode", ["batch", "pair", "elem"])
@pytest.mark.parametrize("kind", KINDS)
def test_tr_10_targets_are_mixed_in_the_shares_of_the_pixels(kind, mode):
    images, targets = batch(8, num_classes=8)
    mixed_any = False
    for key in range(20):
        mixed, soft = Mixup(**kind, mode=mode)(images.clone(), targets, num_classes=8, key=(key,))
        assert soft.shape == (8, 8)
        assert soft.dtype == torch.float32
        assert torch.allclose(soft.sum(1), torch.ones(8), atol=1e-6)
        assert torch.allclose(mixed.mean((1, 2, 3)), soft @ torch.arange(8.0), atol=1e-4)
        mixed_any |= bool((mixed != images).any())
    assert mixed_any


@pytest.mark.parametrize("mode", ["batch", "pair", "elem"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_tr_10_smoothed_rows_sum_to_one(mode, dtype):
    mixup = Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, mode=mode, label_smoothing=0.1)
    for key in range(20):
        images, targets = batch(6, num_classes=3, dtype=dtype)
        mixed, soft = mixup(images, targets, num_classes=3, key=(key,))
        assert mixed.dtype == dtype
        assert torch.allclose(soft.sum(1), torch.ones(6), atol=1e-6)
        assert soft.min() >= 0.1 / 3 - 1e-6


def test_smoothing_is_that_of_the_loss_when_nothing_is_mixed():
    images, targets = batch(4, num_classes=4)
    smoothed = torch.nn.functional.one_hot(targets, 4) * 0.9 + 0.025
    for key in range(50):
        mixed, soft = Mixup(mixup_alpha=0.8, prob=0.2, label_smoothing=0.1)(
            images.clone(), targets, num_classes=4, key=(key,)
        )
        if (mixed == images).all():
            assert torch.allclose(soft, smoothed)
            return
    pytest.fail("prob=0.2 mixed fifty batches of fifty")


def test_the_key_decides_and_the_global_generators_stay():
    mixup = Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, mode="elem")
    images, targets = batch(8, num_classes=8)
    states = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    first, again, other = (
        mixup(images.clone(), targets, num_classes=8, key=key) for key in ((1, 2, 3), (1, 2, 3), (1, 2, 4))
    )
    assert (first[0] == again[0]).all()
    assert (first[1] == again[1]).all()
    assert (first[0] != other[0]).any()
    assert states == (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())


@pytest.mark.parametrize("batch_size", [7, 1])
def test_tr_9_an_odd_batch_with_mixup_is_refused_at_the_start(batch_size):
    wanted = rf"^batch_size \({batch_size}\) must be even with mixup or cutmix, which mix images in pairs$"
    with pytest.raises(ValueError, match=wanted):
        SyntheticDataModule(batch_size=batch_size, mixup={"cutmix_alpha": 1.0})
    assert SyntheticDataModule(batch_size=batch_size, mixup={"prob": 0.0, "mixup_alpha": 1.0}).batch_size


def test_tr_9_a_training_set_of_seven_works_with_mixup():
    """The odd image out is dropped, another one every epoch."""
    module = SyntheticDataModule(
        train_images=7, val_images=2, batch_size=2, image_size=8, num_classes=2, mixup={"mixup_alpha": 1.0}
    )
    assert [len(targets) for _, targets in module.train_dataloader()] == [2, 2, 2]


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"mixup_alpha": -1}, r"^mixup.mixup_alpha \(-1\) must be a number, at least 0$"),
        ({"label_smoothing": 1.5}, r"^mixup.label_smoothing \(1.5\) must be a number between 0 and 1$"),
        (
            {"mode": "pairs"},
            r"^mixup.mode \(pairs\) must be one of batch, pair, elem; did you mean 'pair'\?$",
        ),
    ],
)
def test_a_bad_option_is_named(options, wanted):
    with pytest.raises(ValueError, match=wanted):
        Mixup(**options)


def test_without_alphas_mixup_is_off():
    assert not Mixup(label_smoothing=0.1).enabled
    assert not Mixup(mixup_alpha=0.8, prob=0).enabled
    assert Mixup(cutmix_alpha=0.5).enabled
