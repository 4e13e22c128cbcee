from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from data import digits
from data.digits import DigitsDataModule
from data.folder import ImageFolderDataModule


@pytest.fixture(scope="module")
def module() -> DigitsDataModule:
    module = DigitsDataModule(eval_transform={"crop_pct": 1.0})
    module.prepare()
    return module


def test_every_digit_is_used_once(module):
    assert (module.train_size, module.val_size) == (1438, 359)
    assert module.class_names == [str(digit) for digit in range(10)]
    train, val = module.train_dataset.source.indices, module.val_dataset.source.indices
    assert sorted([*train, *val]) == list(range(1797))


def test_the_split_keeps_every_class_in_proportion(module):
    shares = np.bincount(module.val_dataset.source.targets) / np.bincount(
        np.r_[module.train_dataset.source.targets, module.val_dataset.source.targets]
    )
    assert np.abs(shares - 0.2).max() < 0.004


def test_the_split_is_the_same_for_every_seed(module):
    other = DigitsDataModule(seed=7)
    assert (other.val_dataset.source.indices == module.val_dataset.source.indices).all()


def test_batches_are_normalised_grey_images_of_the_wanted_size(module):
    images, targets = next(iter(module.train_dataloader()))
    assert images.shape == (64, 1, 32, 32)
    assert (images.dtype, targets.dtype) == (torch.float32, torch.int64)
    whole = torch.cat([x for x, _ in module.val_dataloader()])
    assert abs(whole.mean()) < 0.05
    assert abs(whole.std() - 1) < 0.05


def test_images_are_the_digits_enlarged(module):
    image, target = module.val_dataset[0]
    number = module.val_dataset.source.indices[0]
    small = digits.load_digits().images[number] / 16
    pixels = image[0] * module.std[0] + module.mean[0]
    blocks = pixels.unfold(0, 4, 4).unfold(1, 4, 4).mean((2, 3)).numpy()
    assert target == digits.load_digits().target[number]
    assert np.corrcoef(blocks.ravel(), small.ravel())[0, 1] > 0.98


def test_three_channels_repeat_the_grey_one():
    module = DigitsDataModule(in_chans=3, image_size=24)
    image, _ = module.val_dataset[0]
    assert image.shape == (3, 24, 24)
    assert (image[0] == image[1]).all()
    assert (image[0] == image[2]).all()


def test_prepare_twice_is_prepare_once(module):
    before = module.train_dataset
    module.prepare()
    assert module.train_dataset is before


def test_written_digits_are_read_back_as_an_image_folder(module, tmp_path):
    folder = tmp_path / "my digits"
    digits.main(["--write", str(folder)])
    options = {"in_chans": 1, "image_size": 32, "mean": module.mean, "std": module.std, "num_workers": 0}
    read = ImageFolderDataModule(root=str(folder), eval_transform={"crop_pct": 1.0}, **options)
    read.prepare()
    assert (read.train_size, read.val_size, read.class_names) == (1438, 359, module.class_names)
    by_class = np.argsort(module.val_dataset.source.targets, kind="stable")
    for place in (0, 100, 358):
        image, target = read.val_dataset[place]
        wanted, wanted_target = module.val_dataset[int(by_class[place])]
        assert target == wanted_target
        assert (image == wanted).all()


def test_digits_are_not_written_over_something(tmp_path, capsys):
    (tmp_path / "mine.txt").write_text("x")
    with pytest.raises(SystemExit) as caught:
        digits.main(["--write", str(tmp_path)])
    assert caught.value.code == 2
    assert re.search(r"error: digits: folder \(.*\) must be new or empty$", capsys.readouterr().err.strip())
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
