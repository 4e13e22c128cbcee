"""What every key of `configs/train.yaml` may hold; `_target_` groups are checked against their classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import timm.optim

from vmamba2.training.config.values import OneOf, Range

Fraction = Annotated[float, Range(low=0, below=1)]
Positive = Annotated[int, Range(low=1)]
NotNegative = Annotated[int, Range(low=0)]

METRICS = ("val/acc1", "val/acc5", "val/loss", "val/ema_acc1", "val/ema_acc5", "val/ema_loss")


@dataclass
class PathsConfig:
    """Folders."""

    runs: str


@dataclass
class LossConfig:
    """The training loss; validation always uses plain cross entropy on the true labels."""

    label_smoothing: Fraction
    bce: bool


@dataclass
class EmaConfig:
    """The moving average of the weights."""

    enabled: bool
    decay: Annotated[float, Range(above=0, below=1)]
    warmup: bool
    start_step: NotNegative


@dataclass
class OptimizerConfig:
    """Arguments of timm's `create_optimizer_v2`; more keys are arguments of the optimizer itself."""

    opt: Annotated[str, OneOf(tuple(timm.optim.list_optimizers()))]
    lr: Annotated[float, Range(above=0)]
    weight_decay: Annotated[float, Range(low=0)]
    layer_decay: Annotated[float, Range(above=0, high=1)] | None = None
    momentum: Fraction = 0.9
    betas: list[Annotated[float, Range(low=0, below=1)]] | None = None
    eps: Annotated[float, Range(above=0)] | None = None
    foreach: bool | None = None


@dataclass
class SchedulerConfig:
    """Arguments of timm's `create_scheduler_v2`, in epochs; it is stepped once per optimizer update."""

    sched: Literal["cosine", "tanh", "step", "multistep", "poly"]
    num_epochs: Positive
    warmup_epochs: Annotated[float, Range(low=0)]
    warmup_lr: Annotated[float, Range(low=0)]
    min_lr: Annotated[float, Range(low=0)]
    cooldown_epochs: NotNegative = 0
    decay_epochs: Annotated[float, Range(above=0)] = 30.0
    decay_milestones: list[Positive] | None = None
    decay_rate: Annotated[float, Range(above=0)] = 0.1
    k_decay: Annotated[float, Range(above=0)] = 1.0


@dataclass
class TrainerConfig:
    """Arguments of Lightning's `Trainer`; more keys are looked up in its signature."""

    accelerator: Literal["auto", "cpu", "cuda", "gpu"]
    devices: Positive | list[NotNegative] | Literal["auto"]
    precision: Literal["32-true", "bf16-mixed", "16-mixed", "64-true"]
    max_epochs: Positive
    accumulate_grad_batches: Positive
    gradient_clip_val: Annotated[float, Range(above=0)] | None
    gradient_clip_algorithm: Literal["norm", "value", "agc"]
    check_val_every_n_epoch: Positive
    limit_train_batches: NotNegative | Annotated[float, Range(low=0, high=1)]
    limit_val_batches: NotNegative | Annotated[float, Range(low=0, high=1)]
    overfit_batches: NotNegative | Annotated[float, Range(low=0, high=1)]
    fast_dev_run: bool | Positive
    log_every_n_steps: Positive
    num_sanity_val_steps: NotNegative
    deterministic: bool | Literal["warn"] | None
    benchmark: bool | None
    enable_progress_bar: bool
    num_nodes: Positive = 1
    strategy: str = "auto"


@dataclass
class ModelConfig:
    """What every timm model takes; further keys are checked by the named model when it is built."""

    model_name: str
    num_classes: Annotated[int, Range(low=1)] | None
    in_chans: Positive
    drop_rate: Fraction = 0.0
    drop_path_rate: Fraction = 0.0
    pretrained: bool = False


@dataclass
class DataConfig:
    """What every data module takes; further keys are checked against the constructor of its class."""

    batch_size: Positive
    eval_batch_size: Positive | None = None
    num_workers: NotNegative = 0
    image_size: Positive = 224
    num_classes: Annotated[int, Range(low=2)] | None = None
    in_chans: Positive = 3
    seed: NotNegative = 0


@dataclass
class TrainConfig:
    """The top level."""

    task: Literal["fit", "validate"]
    name: str
    seed: Annotated[int, Range(low=0, high=2**32 - 1)]
    threads: Positive | None
    run_dir: str
    resume: str | None
    ckpt_path: str | None
    weights: str | None
    model: Mapping[str, Any]
    data: Mapping[str, Any]
    optimizer: Mapping[str, Any]
    scheduler: SchedulerConfig
    trainer: Mapping[str, Any]
    callbacks: Mapping[str, Any]
    logger: Mapping[str, Any]
    paths: PathsConfig
    loss: LossConfig
    ema: EmaConfig
