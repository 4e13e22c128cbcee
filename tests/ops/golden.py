"""Inputs and figures of the golden cases (tests/golden/README.md)."""

import gzip
import json
import zlib
from functools import cache
from pathlib import Path

import numpy as np

GOLDEN = Path(__file__).parents[1] / "golden" / "ops_golden.json.gz"
SSD = (
    "plain", "full", "tail37", "single_token", "limit", "d_no_z", "z_no_d", "seq_idx", "seq_idx_init",
    "odd_dims", "strong_decay",
)  # fmt: skip
SELECTIVE = ("plain", "mambavision", "full", "grouped", "one_token", "strong_decay")


@cache
def golden():
    return json.loads(gzip.decompress(GOLDEN.read_bytes()))


def draw(case, name, shape):
    seed = zlib.crc32(f"{case}/{name}".encode())
    return np.random.RandomState(seed).standard_normal(shape)


def ssd_inputs(case, entry):
    shape, flags = entry["shape"], entry["flags"]
    b, n, h, p, g, s = (shape[k] for k in ("batch", "seqlen", "nheads", "headdim", "ngroups", "dstate"))
    shapes = {"x": (b, n, h, p), "dt": (b, n, h), "A": (h,), "B": (b, n, g, s), "C": (b, n, g, s)}
    optional = {
        "D1": ("D", (h,)), "D2": ("D", (h, p)), "z": ("z", (b, n, h, p)), "bias": ("dt_bias", (h,)),
        "init": ("initial_states", (b, h, p, s)),
    }  # fmt: skip
    shapes |= dict(optional[flag] for flag in flags if flag in optional)
    values = {name: draw(case, name, size) for name, size in shapes.items()}
    steps_and_decays(values, "dt", entry["dt_softplus"], "bigdt" in flags)
    # Five times the decay in this operator's table only.
    values["A"] *= 5 if "bigdt" in flags else 1
    return values


def selective_inputs(case, entry):
    shape, flags = entry["shape"], entry["flags"]
    b, d, n, s, g = (shape[k] for k in ("batch", "dim", "seqlen", "dstate", "ngroups"))
    grouped = (b, g, s, n) if shape["grouped"] else (b, s, n)
    shapes = {"u": (b, d, n), "delta": (b, d, n), "A": (d, s), "B": grouped, "C": grouped}
    optional = {"D": ("D", (d,)), "z": ("z", (b, d, n)), "bias": ("delta_bias", (d,))}
    shapes |= dict(optional[flag] for flag in flags if flag in optional)
    values = {name: draw(case, name, size) for name, size in shapes.items()}
    steps_and_decays(values, "delta", entry["delta_softplus"], "bigdt" in flags)
    return values


def steps_and_decays(values, step, softplus, big):
    if big:
        values[step] = values[step] * 20 + 20
    elif not softplus:
        values[step] = np.abs(values[step]) * 0.5
    values["A"] = -(np.abs(values["A"]) + 0.2)
