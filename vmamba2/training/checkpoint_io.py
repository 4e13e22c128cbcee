"""Checkpoint files that are either complete or not there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins.io import TorchCheckpointIO


class AtomicCheckpoints(TorchCheckpointIO):
    """Writes beside the target and renames: a run killed while it saves leaves the file of the epoch before.

    Lightning's own writer goes through the temporary folder, from where a move to another file system is a
    copy that can be cut short.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | os.PathLike[str], storage_options: Any | None = None
    ) -> None:
        """Save a checkpoint."""
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.tmp")
        try:
            with temporary.open("wb") as file:
                torch.save(checkpoint, file)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
