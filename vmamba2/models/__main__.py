"""Print the README's table of sizes: `python -m vmamba2.models`."""

import sys
from typing import Any

import timm
import torch

from vmamba2.models.complexity import count_multiply_adds, count_parameters

SIZES = ("nano", "micro", "tiny", "small", "base")
INPUT_SIZE = (3, 224, 224)


def size_table(names: list[str]) -> str:
    """Describe models in a Markdown table: structure, parameters, multiply-adds at 224 x 224."""
    rows = [
        "| model | dims | depths | parameters | multiply-adds at 224 x 224 |",
        "|---|---|---|---|---|",
    ]
    for name in names:
        with torch.device("meta"):
            model: Any = timm.create_model(name)
        dims = ", ".join(str(info["num_chs"]) for info in model.feature_info)
        depths = ", ".join(str(len(stage)) for stage in model.stages)
        millions = count_parameters(model) / 1e6
        giga = count_multiply_adds(model, INPUT_SIZE) / 1e9
        rows.append(f"| `{name}` | {dims} | {depths} | {millions:.2f} M | {giga:.2f} G |")
    return "\n".join(rows)


if __name__ == "__main__":
    sys.stdout.write(size_table([f"vmamba2_{size}" for size in SIZES]) + "\n")
