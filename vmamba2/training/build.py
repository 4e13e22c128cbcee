"""Build the parts of a run from its configuration; what cannot be built is one sentence."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hydra.errors import HydraException
from hydra.utils import instantiate
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.loggers import Logger
from omegaconf import DictConfig, OmegaConf
from torch import nn

from vmamba2.models import load_weights
from vmamba2.training.callbacks import EmaWeights, EpochBar
from vmamba2.training.checkpoint_files import EMA_KEY, load_checkpoint
from vmamba2.training.checkpoint_io import AtomicCheckpoints
from vmamba2.training.module import ImageClassifier

log = logging.getLogger(__name__)

# What a wrong configuration can raise while a part is built; the traceback goes to train.log.
BUILD_ERRORS = (
    HydraException,
    ValueError,
    TypeError,
    OSError,
    ImportError,
    NotImplementedError,
    RuntimeError,
)


class BuildError(ValueError):
    """A part that cannot be built from this configuration."""


def build_data(config: DictConfig) -> Any:
    """Build the data module and find its images; the number of classes goes into the configuration."""
    with _building("data"):
        datamodule = instantiate(config.data)
        datamodule.prepare()
        if datamodule.num_classes < 2:
            raise ValueError(f"num_classes ({datamodule.num_classes}) must be at least 2")
    # The model's number follows the data's where it is not set: see configs/model.
    if config.data.get("num_classes") is None:
        config.data.num_classes = datamodule.num_classes
    if config.model.num_classes is None:
        config.model.num_classes = datamodule.num_classes
    return datamodule


def build_module(config: DictConfig) -> ImageClassifier:
    """Build the network, load its initial weights if it has some, and wrap it in the Lightning module."""
    with _building("model"):
        model = instantiate(config.model)
        if config.model.num_classes != config.data.num_classes:
            raise ValueError(f"num_classes ({config.model.num_classes}) must be {config.data.num_classes}")
    with _building("weights"):
        if config.weights is not None:
            for line in load_initial_weights(model, config.weights).splitlines():
                log.info("%-9s %s", "weights", line)
    return ImageClassifier(
        model,
        num_classes=config.model.num_classes,
        optimizer=plain(config.optimizer),
        scheduler=plain(config.scheduler),
        loss=plain(config.loss),
        clip_algorithm=config.trainer.gradient_clip_algorithm,
        model_name=config.model.model_name,
    )


def build_trainer(config: DictConfig) -> Trainer:
    """Build the trainer with its callbacks and loggers."""
    with _building("trainer"):
        # The average comes first: later callbacks show its results.
        callbacks: list[Callback] = []
        if config.ema.enabled:
            callbacks.append(EmaWeights(config.ema.decay, config.ema.warmup, config.ema.start_step))
        callbacks += [instantiate(node) for node in config.callbacks.values() if node is not None]
        if not config.trainer.enable_progress_bar:
            callbacks = [callback for callback in callbacks if not isinstance(callback, EpochBar)]
        loggers: list[Logger] = [instantiate(node) for node in config.logger.values() if node is not None]
        # Lightning knows no agc; the module does the clipping.
        agc = config.trainer.gradient_clip_algorithm == "agc"
        options: dict[str, Any] = {"gradient_clip_algorithm": None} if agc else {}
        plugins = [AtomicCheckpoints()]
        return instantiate(config.trainer, callbacks=callbacks, logger=loggers, plugins=plugins, **options)


def load_initial_weights(model: nn.Module, source: str) -> str:
    """Load a model's initial weights; of a checkpoint of `train.py` the average, where it has one."""
    if source.startswith("hf-hub:") or Path(source).suffix != ".ckpt":
        return str(load_weights(model, source))
    checkpoint = load_checkpoint(Path(source))
    if EMA_KEY in checkpoint:
        return f"{load_weights(model, checkpoint[EMA_KEY])} (the moving average in {source})"
    return str(load_weights(model, source))


def plain(node: Any) -> Any:
    """A config node as plain containers."""
    return OmegaConf.to_container(node, resolve=True)


@contextmanager
def _building(part: str) -> Iterator[None]:
    try:
        yield
    except BUILD_ERRORS as error:
        cause = error.__cause__ if isinstance(error, HydraException) and error.__cause__ else error
        text = " ".join(str(cause).split()) or type(cause).__name__
        unexpected = re.search(r"(\w+)\.__init__\(\) got an unexpected keyword argument '(\w+)'", text)
        if unexpected:
            key, owner = unexpected[2], unexpected[1]
            text = f"got the key {key}, which {owner} does not know; ~{part}.{key} drops it"
        raise BuildError(text if text.startswith(f"{part}:") else f"{part}: {text}") from error
