from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from data.sampler import EpochIndex, EpochSampler
from data.split import stratified_split
from data.synthetic import SyntheticDataModule

STRONG = {
    "auto_augment": "rand-m9-mstd0.5-inc1",
    "re_prob": 0.5,
    "re_mode": "pixel",
    "interpolation": "random",
}


def small(**options) -> SyntheticDataModule:
    defaults = {"train_images": 21, "val_images": 10, "batch_size": 4, "image_size": 16, "num_classes": 3}
    return SyntheticDataModule(**(defaults | options))


def epochs(module: SyntheticDataModule, which: list[int]) -> list[list[tuple[torch.Tensor, torch.Tensor]]]:
    """Draw epochs from one loader, the way a trainer does."""
    loader = module.train_dataloader()
    drawn = []
    for epoch in which:
        loader.sampler.set_epoch(epoch)
        drawn.append([(images.clone(), targets.clone()) for images, targets in loader])
    return drawn


def same(first, second) -> bool:
    return len(first) == len(second) and all(
        (a[0] == b[0]).all() and (a[1] == b[1]).all() for a, b in zip(first, second, strict=True)
    )


def generators() -> tuple[object, ...]:
    return random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()


@pytest.mark.parametrize("workers", [0, 2])
def test_an_epoch_depends_on_seed_and_epoch_alone(workers):
    straight = epochs(small(train_transform=STRONG), [0, 1, 2])
    torch.manual_seed(99)
    np.random.seed(99)
    random.seed(99)
    later = epochs(small(train_transform=STRONG, num_workers=workers), [1, 2])
    assert same(straight[1], later[0])
    assert same(straight[2], later[1])
    assert not same(straight[1], straight[2])
    other_seed = epochs(small(train_transform=STRONG, num_workers=workers, seed=1), [1])
    assert not same(straight[1], other_seed[0])


def test_every_epoch_augments_an_image_anew_and_every_image_differently():
    dataset = small(train_transform=STRONG).train_dataset
    drawn = [dataset[EpochIndex(epoch, 5)][0] for epoch in range(8)]
    assert all((a != b).any() for i, a in enumerate(drawn) for b in drawn[:i])
    assert (dataset[EpochIndex(3, 5)][0] == drawn[3]).all()


@pytest.mark.parametrize("workers", [0, 2])
def test_loading_leaves_the_global_generators_alone(workers):
    before = generators()
    module = small(train_transform=STRONG, num_workers=workers)
    list(module.train_dataloader())
    list(module.val_dataloader())
    assert generators() == before


def test_the_generators_come_back_after_a_broken_transform():
    module = small()
    module.train_dataset.transform = lambda image: 1 / 0
    before = generators()
    with pytest.raises(ZeroDivisionError):
        module.train_dataset[0]
    assert generators() == before


def test_an_epoch_covers_the_images_once_and_drops_the_rest():
    sampler = EpochSampler(10, seed=0)
    seen = list(sampler)
    assert sorted(number for _, number in seen) == list(range(10))
    assert {epoch for epoch, _ in seen} == {0}
    sampler.set_epoch(1)
    assert [number for _, number in sampler] != [number for _, number in seen]
    module = small()
    assert [len(targets) for _, targets in module.train_dataloader()] == [4] * 5


@pytest.mark.parametrize(("size", "processes"), [(10, 2), (11, 3), (64, 4)])
def test_processes_share_an_epoch(size, processes):
    samplers = [EpochSampler(size, seed=3, num_replicas=processes, rank=rank) for rank in range(processes)]
    shares = [[number for _, number in sampler] for sampler in samplers]
    assert {len(share) for share in shares} == {size // processes} == {len(sampler) for sampler in samplers}
    assert len({number for share in shares for number in share}) == size // processes * processes


@pytest.mark.parametrize("processes", [1, 2, 5])
def test_train_batches_per_epoch_is_what_the_loader_yields(processes):
    module = small(train_images=43)
    module.prepare()
    loaders = [
        DataLoader(
            range(43), 4, sampler=EpochSampler(43, seed=0, num_replicas=processes, rank=rank), drop_last=True
        )
        for rank in range(processes)
    ]
    assert {len(loader) for loader in loaders} == {module.train_batches_per_epoch(processes)}
    if processes == 1:
        assert len(list(module.train_dataloader())) == module.train_batches_per_epoch()


def test_a_batch_larger_than_the_training_set_is_refused():
    with pytest.raises(ValueError, match=r"^batch_size \(22\) must be at most the 21 training images$"):
        small(batch_size=22).prepare()
    module = small(batch_size=8)
    module.prepare()
    wanted = r"^batch_size \(8\) must be at most the 7 training images of each process \(21 / 3\)$"
    with pytest.raises(ValueError, match=wanted):
        module.train_batches_per_epoch(3)


def test_validation_is_whole_in_order_and_unmixed():
    module = small(mixup={"mixup_alpha": 1.0}, eval_batch_size=7)
    batches = list(module.val_dataloader())
    assert [len(targets) for _, targets in batches] == [7, 3]
    assert torch.cat([targets for _, targets in batches]).tolist() == [i % 3 for i in range(10)]
    assert small().eval_batch_size == 4


def test_workers_stay_and_run_one_thread_each():
    module = small(num_workers=2)
    module.train_dataset.transform = lambda image: torch.tensor(
        [torch.get_num_threads(), torch.initial_seed()]
    )
    loader = module.train_dataloader()
    assert loader.persistent_workers
    threads_and_seeds = torch.cat([images for images, _ in loader])
    assert threads_and_seeds[:, 0].unique().tolist() == [1]
    assert not small().train_dataloader().persistent_workers


def test_memory_is_pinned_as_asked():
    assert not small().train_dataloader().pin_memory
    assert small(pin_memory=True).train_dataloader().pin_memory
    assert not small(pin_memory=False).val_dataloader().pin_memory


def test_synthetic_images_are_the_same_every_time_and_can_be_told_apart():
    first, again = (small(image_size=32, num_classes=4, train_images=400) for _ in range(2))
    images = torch.stack([first.val_dataset[i][0] for i in range(10)])
    assert (images == torch.stack([again.val_dataset[i][0] for i in range(10)])).all()
    assert not (images[0] == first.train_dataset[0][0]).all()
    # The mean colour alone tells four classes apart.
    colours = images.mean((2, 3))
    assert torch.cdist(colours[4:], colours[:4]).argmin(1).tolist() == [0, 1, 2, 3, 0, 1]


@pytest.mark.parametrize(("size", "classes", "chans"), [(8, 1, 3), (33, 1000, 1), (224, 7, 3)])
def test_synthetic_images_come_in_any_size_and_number_of_classes(size, classes, chans):
    module = small(image_size=size, num_classes=classes, in_chans=chans, train_images=4)
    images, targets = next(iter(module.train_dataloader()))
    assert images.shape == (4, chans, size, size)
    assert module.num_classes == len(module.class_names) == classes
    assert targets.max() < classes


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"batch_size": 0}, r"^batch_size \(0\) must be a whole number, at least 1$"),
        ({"batch_size": 1.5}, r"^batch_size \(1.5\) must be a whole number, at least 1$"),
        ({"eval_batch_size": -1}, r"^eval_batch_size \(-1\) must be a whole number, at least 1$"),
        ({"num_workers": -1}, r"^num_workers \(-1\) must be a whole number, at least 0$"),
        ({"image_size": "big"}, r"^image_size \(big\) must be a whole number, at least 1$"),
        ({"seed": -5}, r"^seed \(-5\) must be a whole number, at least 0$"),
        ({"num_classes": 0}, r"^num_classes \(0\) must be a whole number, at least 1$"),
        ({"in_chans": 4}, r"^in_chans \(4\) must be 1 \(grey\) or 3 \(RGB\)$"),
        (
            {"mean": [0.1, 0.2]},
            r"^mean \(\[0.1, 0.2\]\) must hold one number, or one per channel \(in_chans is 3\)",
        ),
        ({"std": [0.0]}, r"^std \(0.0\) must be a number between 1e-06 and 1$"),
        ({"train_images": 0}, r"^train_images \(0\) must be a whole number, at least 1$"),
        (
            {"train_transform": {"hfilp": 0.5}},
            r"^train_transform.hfilp must be one of .*; did you mean 'hflip'\?$",
        ),
        ({"mixup": {"alpha": 0.5}}, r"^mixup.alpha must be one of mixup_alpha, cutmix_alpha,"),
    ],
)
def test_a_bad_option_is_named(options, wanted):
    with pytest.raises(ValueError, match=wanted):
        small(**options)


def test_mean_and_std_follow_in_chans():
    assert small(mean=[0.5], std=[0.2]).mean == [0.5] * 3
    assert small(mean=None).mean == [0.485, 0.456, 0.406]
    assert small(mean=None, in_chans=1).mean == [pytest.approx(0.449)]


def test_stratified_split_of_few_images():
    targets = np.array([0, 0, 0, 1, 1, 1, 2])
    train, val = stratified_split(targets, 0.5)
    assert sorted([*train, *val]) == list(range(7))
    assert set(targets[train]) == {0, 1, 2}
    assert len(val) in (3, 4)
