"""Where a measurement was made: processor, versions, commit, date, load."""

import os
import platform
import subprocess
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch

_PACKAGE = Path(__file__).parents[1]
_CPUINFO = Path("/proc/cpuinfo")


def describe() -> dict[str, Any]:
    """What a reader of the figures has to know, for JSON."""
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "commit": commit(),
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "load": load(),
    }


def processor() -> str:
    """The processor's name."""
    if _CPUINFO.exists():
        for line in _CPUINFO.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def load() -> float | None:
    """How many processes wanted a core over the last minute, where the system says."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def commit() -> str | None:
    """The commit of the sources, "-dirty" behind it when they were changed; None outside of a checkout."""
    tracked = _git("ls-files", "--error-unmatch", "__init__.py")
    return _git("describe", "--always", "--dirty", "--abbrev=12", "--exclude=*") if tracked else None


def _git(*arguments: str) -> str | None:
    try:
        run = subprocess.run(["git", *arguments], cwd=_PACKAGE, capture_output=True, text=True, check=True)
    except (FileNotFoundError, subprocess.CalledProcessError):
        return None
    return run.stdout.strip()
