"""Build the native libraries: what this machine allows, and why not the rest.

    python -m ops_ascend.build

The CPU kernels and the twin need CMake and a C++17 compiler; the NPU library also CANN and torch_npu. This
imports no torch: wheel.py runs it where there is none.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ops_ascend.native import KINDS, PACKAGE, look, output_folder, reasons_against, sources_digest

Write = Callable[[str], object]


class BuildError(RuntimeError):
    """The libraries could not be built; the message says why."""


class NoCompilerError(BuildError):
    """There is no C++ compiler on this machine, or none that works."""


def build(
    write: Write,
    kinds: Sequence[str] = tuple(KINDS),
    folder: Path | None = None,
    tree: Path | None = None,
    options: Sequence[str] = (),
) -> list[Path]:
    """Build every library of some kinds that this machine allows, where it is not there yet.

    Args:
        write: takes the lines that say what was built and why not the rest.
        kinds: of libraries: "cpu", "twin", "npu".
        folder: where the libraries go; None for the place where the loader looks.
        tree: where CMake works; None for a folder that stays beside the libraries.
        options: of CMake.

    Returns:
        The libraries.

    Raises:
        BuildError: there is no CMake, no compiler, or the compiler found an error.
    """
    look()  # the sources may have changed since they were imported
    began = time.monotonic()
    libraries: list[Path] = []
    for kind in kinds:
        place = folder or output_folder(kind)
        with _alone(place):
            if folder is None and _is_current(kind):
                write(f"{KINDS[kind].title} is up to date\n")
                continue
            cmake = _cmake()
            below = (tree or place / "build") / kind
            notes = _configure(cmake, below, kind, options)
            jobs = str(os.cpu_count() or 1)
            _run([cmake, "--build", str(below), "--parallel", jobs], "a source does not compile")
            libraries += [_put(path, place) for path in sorted((below / "lib").glob("*.so"))]
        for note in notes:
            write(f"{note}\n")
    look()
    if libraries:
        names = ", ".join(path.name for path in libraries)
        places = ", ".join(sorted({str(path.parent) for path in libraries}))
        write(f"{names} in {places}, {time.monotonic() - began:.0f} s\n")
    return libraries


def _is_current(kind: str) -> bool:
    """Whether every library of a kind belongs to the sources."""
    look()  # another build may just have ended
    return not any(reasons_against(kind, variant) for variant in KINDS[kind].variants)


def _cmake() -> str:
    # The environment's own first, activated or not: another cmake would configure, and build, from the start.
    found = shutil.which("cmake", path=str(Path(sys.executable).parent)) or shutil.which("cmake")
    if found is None:
        raise BuildError("cmake was not found: install it, for example with `pip install cmake`")
    return found


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Two builds into the same folder take turns."""
    folder.mkdir(parents=True, exist_ok=True)
    if sys.platform == "win32":
        yield
        return
    import fcntl

    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _configure(cmake: str, tree: Path, kind: str, options: Sequence[str]) -> list[str]:
    """Configure the build tree of a kind; what CMake says about our targets."""
    known = tree / "CMakeCache.txt"
    # A tree of another checkout or of another generator cannot be reused.
    if known.exists() and f"CMAKE_HOME_DIRECTORY:INTERNAL={PACKAGE}\n" not in known.read_text():
        shutil.rmtree(tree)
    command = [cmake, "-S", str(PACKAGE), "-B", str(tree), f"-DVMAMBA2_KINDS={kind}", *options]
    command += [f"-DVMAMBA2_SOURCES={sources_digest(kind)}", f"-DPython3_EXECUTABLE={sys.executable}"]
    if shutil.which("ninja") and not known.exists():
        command += ["-G", "Ninja"]
    said = _run(command, "CMake cannot configure the project")
    marker = "-- vmamba2: "
    return [line.removeprefix(marker) for line in said.splitlines() if line.startswith(marker)]


def _run(command: list[str], failure: str) -> str:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode == 0:
        return done.stdout
    if "No CMAKE_CXX_COMPILER could be found" in done.stdout:
        raise NoCompilerError("no C++ compiler was found: install g++ or clang++")
    if "is not able to compile a simple test program" in done.stdout:
        raise NoCompilerError("the C++ compiler cannot compile a simple program: install g++ or clang++")
    raise BuildError(f"{failure}: `{' '.join(command)}` says\n{done.stdout}")


def _put(library: Path, folder: Path) -> Path:
    """Copy a library to where it is looked for, in one step: a process may be loading the old one."""
    arriving, place = folder / f"{library.name}.new", folder / library.name
    shutil.copyfile(library, arriving)
    arriving.replace(place)
    return place


def main(arguments: Sequence[str] | None = None) -> int:
    """Build and say what was built; the exit status is 1 when nothing was."""
    parser = argparse.ArgumentParser(prog="vmamba2 build-ops", description=__doc__.split("\n")[0])
    parser.add_argument("--only", choices=tuple(KINDS), help="build the libraries of this kind alone")
    only = parser.parse_args(arguments).only
    try:
        build(sys.stdout.write, (only,) if only else tuple(KINDS))
    except BuildError as error:
        sys.stdout.write(f"nothing was built: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
