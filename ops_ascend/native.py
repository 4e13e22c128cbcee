"""The compiled libraries: what they are built from, where they lie, and why one cannot be used.

There are two kinds, each once per chip: the "twin" for the CPU and the "npu" library.
"""

import hashlib
import os
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
CHIPS = {"910B3": 2201, "950PR": 3510}
# What each kind is called, and how to get it.
_KINDS = {
    "twin": ("the twin", "run `make ops` or `vmamba2 build-ops`"),
    "npu": ("the native library", "run `vmamba2 build-ops` where CANN is installed"),
}
_SUFFIXES = (".h", ".cpp", ".asc")


@cache
def sources_digest() -> str:
    """A digest of every file that the libraries are built from."""
    digest = hashlib.sha256()
    files = [path for path in (PACKAGE / "csrc").rglob("*") if path.suffix in _SUFFIXES]
    for path in sorted([PACKAGE / "CMakeLists.txt", *files]):
        digest.update(f"{path.relative_to(PACKAGE).as_posix()}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:32]


def output_folder() -> Path:
    """Where libraries are built to: beside the sources, or in the user's cache if that cannot be written."""
    return _folders()[0 if os.access(PACKAGE, os.W_OK) else 1]


def _folders() -> tuple[Path, Path]:
    return PACKAGE / "lib", Path.home() / ".cache" / "vmamba2" / sources_digest()


def library_path(kind: str, arch: int) -> Path | None:
    """The file of a library; None when it was never built."""
    paths = [folder / f"libvmamba2_{kind}_{arch}.so" for folder in _folders()]
    return next((path for path in paths if path.exists()), None)


def _examine(kind: str, arch: int) -> list[str]:
    what, cure = _KINDS[kind]
    path = library_path(kind, arch)
    if path is None:
        return [f"{what} is not built: {cure}"]
    # Reading instead of loading: a library that was loaded stays, even when a newer one takes its place.
    if f"vmamba2-sources:{sources_digest()}".encode() not in path.read_bytes():
        return [f"{what} was built from other sources than these: {cure}"]
    return []


_reasons: dict[tuple[str, int], list[str]] = {}


def look() -> None:
    """Look for the libraries again; once on import, and after a build in this process."""
    sources_digest.cache_clear()
    for kind in _KINDS:
        for arch in CHIPS.values():
            _reasons[kind, arch] = _examine(kind, arch)


look()


def reasons_against(kind: str, arch: int) -> list[str]:
    """Why a library cannot be loaded, as of the last look: not built, or built from other sources."""
    return list(_reasons[kind, arch])
