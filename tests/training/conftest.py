"""Tiny real runs: the parts of train.py on a network and images that take a second."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, Trainer, seed_everything
from omegaconf import DictConfig, OmegaConf

from vmamba2.training.build import build_data, build_module, build_trainer
from vmamba2.training.callbacks.epoch_report import read_rows
from vmamba2.training.checkpoint_files import resume_path
from vmamba2.training.config.command_line import compose_config
from vmamba2.training.module import ImageClassifier

ROOT = Path(__file__).resolve().parents[2]
TINY = [
    "data=synthetic",
    "data.image_size=16",
    "data.train_images=24",
    "data.val_images=16",
    "data.batch_size=8",
    "data.num_classes=4",
    "+model.dims=[8,16]",
    "+model.depths=[1,1]",
    "+model.headdim=8",
    "+model.dstate=8",
    "+model.ngroups=1",
    "+model.chunk_sizes=16",
    "trainer=cpu",
    "trainer.enable_progress_bar=false",
    "trainer.max_epochs=2",
]
# The pictures take most of the time of a tiny run.
NO_PICTURES = ["callbacks.curves=null", "callbacks.predictions=null", "callbacks.summary=null"]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Threads only wait for each other in networks of this size."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@dataclasses.dataclass
class Run:
    """One run and its parts."""

    config: DictConfig
    folder: Path
    data: Any
    module: ImageClassifier
    trainer: Trainer

    def callback(self, kind: type) -> Any:
        return next(callback for callback in self.trainer.callbacks if isinstance(callback, kind))

    def checkpoint(self, name: str = "last.ckpt") -> dict[str, Any]:
        return torch.load(self.folder / "checkpoints" / name, weights_only=True)

    def rows(self) -> list[dict[str, str]]:
        """The rows of metrics.csv without what a clock decides."""
        rows = read_rows(self.folder / "metrics.csv")
        return [{name: value for name, value in row.items() if name != "train/images_per_s"} for row in rows]

    def fit(self) -> Run:
        OmegaConf.save(self.config, self.folder / "config.yaml", resolve=True)
        checkpoint = resume_path(self.config.resume, self.folder)
        self.trainer.fit(self.module, datamodule=self.data, ckpt_path=checkpoint, weights_only=True)
        return self


@pytest.fixture
def build(tmp_path: Path) -> Callable[..., Run]:
    """Build a run by overrides of the tiny configuration, in a named folder."""

    def make(
        *overrides: str,
        folder: str = "run",
        callbacks: tuple[Callback, ...] = (),
        pictures: bool = False,
        timm_model: str = "",
    ) -> Run:
        path = tmp_path / folder
        path.mkdir(exist_ok=True)
        tiny = TINY if pictures else TINY + NO_PICTURES
        config = compose_config(ROOT / "configs", [*tiny, f"run_dir={path}", *overrides])
        OmegaConf.set_struct(config, False)
        if timm_model:
            model = {
                "_target_": "timm.create_model",
                "model_name": timm_model,
                "num_classes": 4,
                "in_chans": 3,
            }
            config.model = OmegaConf.create(model)
        seed_everything(config.seed, workers=True, verbose=False)
        data = build_data(config)
        module, trainer = build_module(config), build_trainer(config)
        trainer.callbacks[:0] = callbacks  # type: ignore[attr-defined]
        return Run(config, path, data, module, trainer)

    return make


@pytest.fixture
def train_py(tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    """Start the real train.py on the tiny configuration; runs go below the test's folder."""

    def start(*overrides: str, tiny: bool = True, environment: dict[str, str] | None = None) -> Any:
        arguments = [*(TINY if tiny else []), f"paths.runs={tmp_path / 'runs'}", *overrides]
        return subprocess.Popen(
            [sys.executable, str(ROOT / "train.py"), *arguments],
            cwd=tmp_path,
            env={**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    return start
