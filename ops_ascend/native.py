"""The compiled libraries: what they are built from, where they lie, and why one cannot be used.

There are three kinds: "cpu", once for each set of instructions; "twin", on the CPU too, and "npu", once per
chip.
"""

import hashlib
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).resolve().parent
CHIPS = {"910B3": 2201, "950PR": 3510}
# Of the processors that the "cpu" libraries are for, the best first; every machine has the last.
INSTRUCTIONS = ("avx512", "avx2", "generic")


class Kind(NamedTuple):
    """What the libraries of a kind are called, how to get them, and what each of them is for."""

    title: str
    cure: str
    variants: Sequence[int | str]


KINDS = {
    "cpu": Kind("the CPU library", "run `make ops` or `vmamba2 build-ops`", INSTRUCTIONS),
    "twin": Kind("the twin", "run `make ops` or `vmamba2 build-ops`", tuple(CHIPS.values())),
    "npu": Kind(
        "the native library", "run `vmamba2 build-ops` where CANN is installed", tuple(CHIPS.values())
    ),
}
_SUFFIXES = (".h", ".cpp", ".asc")


@cache
def sources_digest(kind: str) -> str:
    """A digest of every file that the libraries of a kind are built from."""
    digest = hashlib.sha256()
    cpu = PACKAGE / "csrc" / "cpu"
    files = [path for path in (PACKAGE / "csrc").rglob("*") if path.suffix in _SUFFIXES]
    own = [path for path in files if (cpu in path.parents) == (kind == "cpu")]
    for path in sorted([PACKAGE / "CMakeLists.txt", *own]):
        digest.update(f"{path.relative_to(PACKAGE).as_posix()}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:32]


def output_folder(kind: str) -> Path:
    """Where libraries are built to: beside the sources, or in the user's cache if that cannot be written."""
    return _folders(kind)[0 if os.access(PACKAGE, os.W_OK) else 1]


def _folders(kind: str) -> tuple[Path, Path]:
    return PACKAGE / "lib", Path.home() / ".cache" / "vmamba2" / sources_digest(kind)


def library_path(kind: str, variant: int | str) -> Path | None:
    """The file of a library; None when it was never built."""
    paths = [folder / f"libvmamba2_{kind}_{variant}.so" for folder in _folders(kind)]
    return next((path for path in paths if path.exists()), None)


def _examine(kind: str, variant: int | str) -> list[str]:
    title, cure, _ = KINDS[kind]
    path = library_path(kind, variant)
    if path is None:
        return [f"{title} is not built: {cure}"]
    # Reading instead of loading: a library that was loaded stays, even when a newer one takes its place.
    if f"vmamba2-sources:{sources_digest(kind)}".encode() not in path.read_bytes():
        return [f"{title} was built from other sources than these: {cure}"]
    return []


_reasons: dict[tuple[str, int | str], list[str]] = {}


def look() -> None:
    """Look for the libraries again; once on import, and after a build in this process."""
    sources_digest.cache_clear()
    for kind, (_, _, variants) in KINDS.items():
        for variant in variants:
            _reasons[kind, variant] = _examine(kind, variant)


look()


def reasons_against(kind: str, variant: int | str) -> list[str]:
    """Why a library cannot be loaded, as of the last look: not built, or built from other sources."""
    return list(_reasons[kind, variant])
