"""What a model costs, and the CPU threads it gets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from vmamba2.training.cost import multiply_adds, set_cpu_threads


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("threads", "cost", "expected"), [(None, 4_000_000, 1), (None, 4e9, 2), (None, None, 2), (3, 1, 3)]
)
def test_a_small_model_gets_one_thread_unless_told_otherwise(
    threads: int | None, cost: int | None, expected: int
) -> None:
    set_cpu_threads(threads, cost)
    assert torch.get_num_threads() == expected


def test_a_network_that_needs_values_has_an_unknown_cost_and_keeps_its_mode() -> None:
    class NeedsValues(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(2, 2))

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return images * images.max().item()

    assert multiply_adds(NeedsValues(), 3, 8) is None
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 10))
    assert multiply_adds(model, 3, 4) == 480
    assert model.training
