import gzip
import json
import math
import zlib
from pathlib import Path

import numpy as np
import pytest
import timm
import torch

import vmamba2  # noqa: F401  registers the models

GOLDEN = Path(__file__).parents[1] / "golden" / "vmamba2_golden.json.gz"
# Two stages whose dims, groups and chunk sizes differ.
SMALL = {
    "dims": (16, 32),
    "depths": (1, 2),
    "ngroups": (1, 2),
    "chunk_sizes": (16, 8),
    "headdim": 16,
    "dstate": 8,
    "num_classes": 7,
}


def fill_value(name, shape):
    """The golden networks' parameters are drawn from their names."""
    leaf = name.rsplit(".", 1)[-1]
    n = np.random.RandomState(zlib.crc32(name.encode())).standard_normal(tuple(shape))
    if leaf == "A_log":
        return 1.0 + 0.5 * n
    if leaf == "D":
        return 1 + 0.1 * n
    if leaf == "dt_bias":
        return -3 + 0.5 * n
    if leaf == "bias":
        return 0.1 * n
    if len(shape) == 1:
        return 1 + 0.1 * n
    return n / math.sqrt(np.prod(shape[1:]))


@pytest.fixture(scope="session")
def golden():
    with gzip.open(GOLDEN) as file:
        return json.load(file)


@pytest.fixture(scope="session")
def golden_state(golden):
    def state(case):
        keys = golden[case]["keys"]
        return {name: torch.tensor(fill_value(name, shape)).float() for name, shape in keys.items()}

    return state


@pytest.fixture
def make_small():
    """Build a small network; arguments change it."""

    def make(**overrides):
        torch.manual_seed(0)
        return timm.create_model("vmamba2_tiny", **{**SMALL, **overrides})

    return make


@pytest.fixture
def image():
    torch.manual_seed(1)
    return torch.randn(2, 3, 32, 48)
