"""Names and contents of checkpoint files: which one a run continues from, and what a file holds."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

LAST, BEST = "last.ckpt", "best.ckpt"
FOLDER = "checkpoints"
EMA_KEY = "ema_state_dict"
RNG_KEY = "random_state"


class CheckpointError(ValueError):
    """A checkpoint that does not belong to this run."""


@dataclass(frozen=True)
class CheckpointSummary:
    """What a checkpoint says about itself."""

    epochs: int
    model_name: str | None
    num_classes: int | None
    optimizer: dict[str, Any]
    has_ema: bool


def resume_path(resume: str | None, run_dir: Path) -> Path | None:
    """The file to continue from: of this run folder for `auto`, of a named run folder, or a named file."""
    if resume is None:
        return None
    if resume == "auto":
        last = run_dir / FOLDER / LAST
        return last if last.is_file() else None
    path = Path(resume)
    return path / FOLDER / LAST if path.is_dir() else path


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint of `train.py` on the CPU, without running code from it.

    Raises:
        ValueError: the file is no checkpoint, or one of another program.
    """
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError) as error:
        raise ValueError(f"it cannot be read: {str(error).strip().splitlines()[0]}") from error
    missing = [key for key in ("state_dict", "optimizer_states", "loops", "hyper_parameters")
               if not isinstance(checkpoint, dict) or key not in checkpoint]  # fmt: skip
    if missing:
        raise ValueError(f"it has no {' and no '.join(missing)}; bare weights go into weights=...")
    return checkpoint


def check_tensors(saved: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    """Raise CheckpointError unless two state dicts have the same names and shapes."""
    for name in [*wanted, *(name for name in saved if name not in wanted)]:
        shapes = [tuple(tensors[name].shape) if name in tensors else None for tensors in (saved, wanted)]
        if shapes[0] != shapes[1]:
            there, here = ("missing" if shape is None else str(shape) for shape in shapes)
            raise CheckpointError(
                f"checkpoint: {name} must be the same in the file ({there}) and in this model ({here}); "
                "weights=... loads what fits"
            )


def describe_checkpoint(path: Path) -> CheckpointSummary:
    """Summarise a checkpoint file; raises ValueError as `load_checkpoint` does."""
    checkpoint = load_checkpoint(path)
    settings = checkpoint["hyper_parameters"]
    progress = checkpoint["loops"]["fit_loop"]["epoch_progress"]["current"]
    return CheckpointSummary(
        epochs=int(progress["processed"]),
        model_name=settings.get("model_name"),
        num_classes=settings.get("num_classes"),
        optimizer=settings.get("optimizer", {}),
        has_ema=EMA_KEY in checkpoint,
    )
