"""The Lightning module: one network, its loss, optimizer, schedule and metrics."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import LightningModule
from timm.utils import dispatch_clip_grad
from torch import Tensor, nn
from torch.optim import Optimizer

from vmamba2.training.checkpoint_files import check_tensors
from vmamba2.training.losses import TrainingLoss, class_ids
from vmamba2.training.metrics import EvaluationMetrics, MeanLoss, TopK
from vmamba2.training.parameter_groups import build_optimizer
from vmamba2.training.schedule import UpdateSchedule, updates_per_epoch

Settings = dict[str, Any]


class ImageClassifier(LightningModule):
    """Trains a network to tell classes of images.

    Everything but the network is plain numbers, text, lists and dicts, which go into the checkpoint as they
    are and come back without running code from it.

    Args:
        model: the network, (B, channels, height, width) -> (B, num_classes). Its tensors are `model.*` in the
            checkpoint.
        num_classes: number of classes.
        optimizer: keys of the `optimizer` config group.
        scheduler: keys of the `scheduler` config group.
        loss: keys of the `loss` config group.
        clip_algorithm: how `trainer.gradient_clip_val` is used: norm, value or agc.
        model_name: what the network is called in messages about the checkpoint.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        num_classes: int,
        optimizer: Settings,
        scheduler: Settings,
        loss: Settings,
        clip_algorithm: str = "norm",
        model_name: str = "",
    ) -> None:
        super().__init__()
        self.save_hyperparameters(ignore=["model"], logger=False)
        self.model = model
        self.optimizer_settings = optimizer
        self.scheduler_settings = scheduler
        self.clip_algorithm = clip_algorithm
        self.training_loss = TrainingLoss(**loss)
        self.train_loss = MeanLoss()
        self.train_acc1 = TopK(1, num_classes)
        self.val_metrics = EvaluationMetrics(num_classes)
        self.schedule: UpdateSchedule | None = None
        self._configured_groups: list[Settings] = []

    def forward(self, images: Tensor) -> Tensor:
        """Logits (B, num_classes) of images (B, channels, height, width)."""
        return self.model(images)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> dict[str, Tensor]:
        """Loss and right answers of a batch; under mixup the right class is the one with the larger share."""
        images, targets = batch
        logits = self(images)
        loss = self.training_loss(logits, targets)
        classes = class_ids(targets)
        self.train_loss.update(loss, len(images))
        self.train_acc1.update(logits.detach().float(), classes)
        self.log("train/loss", self.train_loss, on_step=False, on_epoch=True)
        self.log("train/acc1", self.train_acc1, on_step=False, on_epoch=True)
        self.log("train/loss_step", loss.detach(), on_step=True, on_epoch=False)
        self.log("lr", self.learning_rate(self.global_step), on_step=True, on_epoch=False)
        return {"loss": loss, "correct": (logits.detach().argmax(dim=1) == classes).sum()}

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> dict[str, Tensor]:
        """Logits of a batch, for callbacks that show them."""
        images, targets = batch
        logits = self(images)
        self.val_metrics.update(logits, targets)
        return {"logits": logits}

    def on_validation_epoch_end(self) -> None:
        """Report the validation run."""
        self.log_dict(self.val_metrics.results("val/"))
        self.val_metrics.reset()

    def configure_optimizers(self) -> Any:
        """Build optimizer and schedule; the updates of an epoch are counted from the data."""
        trainer = self.trainer
        batches = trainer.datamodule.train_batches_per_epoch(trainer.world_size)  # type: ignore[attr-defined]
        updates = updates_per_epoch(batches, trainer.limit_train_batches, trainer.accumulate_grad_batches)
        optimizer = build_optimizer(self.model, self.optimizer_settings)
        self.schedule = UpdateSchedule(optimizer, self.scheduler_settings, updates)
        self._configured_groups = [
            {name: value for name, value in group.items() if name not in ("params", "lr")}
            for group in optimizer.param_groups
        ]
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": self.schedule, "interval": "step"}}

    def lr_scheduler_step(self, scheduler: Any, metric: Any | None) -> None:
        """Set the learning rate of the next update."""
        scheduler.step(self.global_step)

    def on_train_start(self) -> None:
        """After a resume, let this run's settings govern the optimizer, not those in the checkpoint."""
        groups = self.trainer.optimizers[0].param_groups
        for group, configured in zip(groups, self._configured_groups, strict=True):
            group.update(configured)
        assert self.schedule is not None
        self.schedule.step(self.global_step)

    def learning_rate(self, num_updates: int) -> float:
        """The learning rate of the update that follows `num_updates` updates, before any scaling by depth."""
        assert self.schedule is not None
        return self.schedule.learning_rate(num_updates)

    def on_load_checkpoint(self, checkpoint: Settings) -> None:
        """Refuse the weights of another model, before anything of them is loaded."""
        check_tensors(checkpoint["state_dict"], self.state_dict())

    def configure_gradient_clipping(
        self,
        optimizer: Optimizer,
        gradient_clip_val: int | float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip by the configured algorithm; adaptive clipping leaves the classifier alone."""
        if not gradient_clip_val:
            return
        parameters = [p for p in self.model.parameters() if p.grad is not None]
        if self.clip_algorithm == "agc":
            classifier = getattr(self.model, "get_classifier", nn.Identity)()
            head = {id(p) for p in classifier.parameters()}
            parameters = [p for p in parameters if id(p) not in head]
        dispatch_clip_grad(parameters, value=gradient_clip_val, mode=self.clip_algorithm)
