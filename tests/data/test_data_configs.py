from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from hydra.utils import get_class, instantiate
from omegaconf import DictConfig, OmegaConf

from data.mixup import Mixup
from data.transforms import EvalTransform, TrainTransform

CONFIGS = Path(__file__).parents[2] / "configs/data"
NAMES = ["digits", "imagefolder", "synthetic"]


def config(name: str, **overrides) -> DictConfig:
    whole = OmegaConf.create({"seed": 5, "loss": {"label_smoothing": 0.1}})
    whole.data = OmegaConf.load(CONFIGS / f"{name}.yaml")
    for key, value in overrides.items():
        whole.data[key] = value
    return whole.data


def test_every_data_config_is_tested():
    assert sorted(path.stem for path in CONFIGS.glob("*.yaml")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_key_is_spelled_out_and_is_an_argument(name):
    root = config(name)
    for node in (root, root.train_transform, root.eval_transform, root.mixup):
        arguments = list(inspect.signature(get_class(node._target_)).parameters)
        assert [key for key in node if key != "_target_"] == arguments


@pytest.mark.parametrize("name", NAMES)
def test_configs_build_their_module(name, ten_pictures):
    overrides = (
        {"root": str(ten_pictures), "batch_size": 2, "num_workers": 0} if name == "imagefolder" else {}
    )
    module = instantiate(config(name, **overrides))
    module.prepare()
    assert isinstance(module.train_transform, TrainTransform)
    assert isinstance(module.eval_transform, EvalTransform)
    assert isinstance(module.mixup, Mixup)
    assert (module.seed, module.mixup.label_smoothing) == (5, 0.1)
    assert module.mixup.enabled == (name == "imagefolder")
    images, _ = next(iter(module.train_dataloader()))
    assert images.shape == (module.batch_size, module.in_chans, module.image_size, module.image_size)
    # Nothing of the configuration's own types may end up in a checkpoint.
    assert all(type(values) is list for values in (module.mean, module.std, module.class_names))


def test_the_root_of_an_image_folder_has_to_be_given():
    assert OmegaConf.is_missing(config("imagefolder"), "root")


def test_digits_are_never_mirrored():
    assert config("digits").train_transform.hflip == config("digits").train_transform.vflip == 0
