"""What a real trainer gets from a data module, unbroken, resumed and in two processes."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint

from data.synthetic import SyntheticDataModule


def digest(tensor: torch.Tensor) -> str:
    return hashlib.sha256(tensor.detach().contiguous().numpy().tobytes()).hexdigest()[:12]


class Witness(LightningModule):
    """A linear classifier that keeps account of its batches."""

    def __init__(self, notes: Path | None = None) -> None:
        super().__init__()
        self.head = torch.nn.Linear(3 * 8 * 8, 3)
        self.seen: list[tuple[int, int, str, str]] = []
        self.validated: list[torch.Tensor] = []
        self.notes = notes

    def training_step(self, batch, batch_idx):
        images, targets = batch
        self.seen.append((self.current_epoch, batch_idx, digest(images), digest(targets)))
        return torch.nn.functional.cross_entropy(self.head(images.flatten(1)), targets)

    def validation_step(self, batch, batch_idx):
        self.validated.append(batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def on_fit_end(self):
        if self.notes:
            torch.save(self.seen, self.notes / f"rank{self.global_rank}.pt")


def data(workers: int, *, mixup: bool = True) -> SyntheticDataModule:
    return SyntheticDataModule(
        train_images=27,
        val_images=5,
        batch_size=4,
        image_size=8,
        num_classes=3,
        num_workers=workers,
        seed=2,
        train_transform={"auto_augment": "rand-m9-mstd0.5-inc1", "re_prob": 0.5},
        mixup={"mixup_alpha": 0.8, "cutmix_alpha": 1.0, "label_smoothing": 0.1} if mixup else None,
    )


def fit(
    folder: Path, module: SyntheticDataModule, epochs: int, *, resume=None, saver=None, **options
) -> Witness:
    witness = Witness(options.pop("notes", None))
    options = {"devices": 1, "num_sanity_val_steps": 1} | options
    trainer = Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=saver is not None,
        callbacks=[saver] if saver else [],
        default_root_dir=folder,
        **options,
    )
    trainer.fit(witness, datamodule=module, ckpt_path=resume)
    return witness


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory) -> list[tuple[int, int, str, str]]:
    return fit(tmp_path_factory.mktemp("run"), data(0), 4).seen


def test_every_batch_of_every_epoch_is_new(unbroken):
    assert [place[:2] for place in unbroken] == [(epoch, i) for epoch in range(4) for i in range(6)]
    assert len({images for _, _, images, _ in unbroken}) == 24
    assert len({targets for *_, targets in unbroken}) == 24


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    "moment",
    [{"save_on_train_epoch_end": False}, {"save_on_train_epoch_end": True}, {"every_n_train_steps": 6}],
)
def test_a_run_resumed_at_an_epochs_end_sees_the_batches_of_the_unbroken_run(
    tmp_path, unbroken, workers, moment
):
    """Order, augmentation and mixing, whenever the checkpoint was written."""
    torch.manual_seed(7)
    saver = ModelCheckpoint(dirpath=tmp_path, filename="{epoch}", save_top_k=-1, **moment)
    first = fit(tmp_path, data(workers), 2, saver=saver)
    assert first.seen == unbroken[:12]
    rest = fit(tmp_path, data(0 if workers else 2), 4, resume=tmp_path / "epoch=1.ckpt")
    assert rest.seen == unbroken[12:]


def test_training_batches_are_mixed(tmp_path, unbroken):
    unmixed = fit(tmp_path, data(0, mixup=False), 1)
    changed = [a[2] != b[2] for a, b in zip(unmixed.seen, unbroken[:6], strict=True)]
    # A share of next to nothing can leave a batch of 8x8 pixels as it was.
    assert sum(changed) >= 3


def test_tr_10_validation_gets_class_ids(tmp_path):
    witness = fit(tmp_path, data(0), 1, num_sanity_val_steps=0)
    assert torch.cat(witness.validated).tolist() == [0, 1, 2, 0, 1]
    assert all(targets.dtype == torch.int64 for targets in witness.validated)


def test_two_processes_train_on_different_images(tmp_path):
    fit(tmp_path, data(0, mixup=False), 2, devices=2, strategy="ddp_fork", notes=tmp_path)
    ranks = [torch.load(tmp_path / f"rank{rank}.pt") for rank in range(2)]
    # 27 images, 13 for each process, three batches of four.
    assert [len(seen) for seen in ranks] == [6, 6]
    assert not {s[2] for s in ranks[0]} & {s[2] for s in ranks[1]}
