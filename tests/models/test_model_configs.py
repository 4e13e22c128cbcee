"""The files of configs/model build the models."""

from pathlib import Path

import hydra
import pytest
from omegaconf import OmegaConf

from vmamba2.layers import GridMixer

FOLDER = Path(__file__).parents[2] / "configs" / "model"
FILES = sorted(FOLDER.glob("vmamba2_*.yaml"))


def compose(path, **changes):
    model = OmegaConf.merge(OmegaConf.load(path), changes)
    return OmegaConf.create({"model": model, "data": {"num_classes": 10, "in_chans": 1}}).model


def test_every_size_has_a_file():
    sizes = ("base", "micro", "nano", "small", "tiny")
    assert [path.stem for path in FILES] == [f"vmamba2_{size}" for size in sizes]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_builds_its_model(path):
    config = compose(path)
    model = hydra.utils.instantiate(config, device="meta")
    assert model.pretrained_cfg["architecture"] == path.stem
    assert (model.num_classes, model.in_chans) == (10, 1)
    last = model.stages[-1][-1]
    assert getattr(last.drop_path, "drop_prob", 0) == pytest.approx(config.drop_path_rate)
    assert {m.directions for m in model.modules() if isinstance(m, GridMixer)} == {4}


def test_every_other_argument_may_be_added():
    changes = {
        "dims": [32, 64],
        "depths": [1, 2],
        "ngroups": 1,
        "headdim": 16,
        "directions": 2,
        "chunk_sizes": 8,
    }
    model = hydra.utils.instantiate(compose(FOLDER / "vmamba2_tiny.yaml", **changes), device="meta")
    assert [len(stage) for stage in model.stages] == [1, 2]
    assert [info["num_chs"] for info in model.feature_info] == [32, 64]
