"""Build the native libraries: what this machine allows, and why not the rest.

    python -m ops_ascend.build

The CPU twin needs CMake and a C++17 compiler; the NPU library also needs CANN and torch_npu.
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

from ops_ascend.native import PACKAGE, look, output_folder, sources_digest

Write = Callable[[str], object]


class BuildError(RuntimeError):
    """The libraries could not be built; the message says why."""


class NoCompilerError(BuildError):
    """There is no C++ compiler on this machine."""


def build(write: Write, folder: Path | None = None) -> list[Path]:
    """Build every library that this machine allows.

    Args:
        write: takes the lines that say what was built and why not the rest.
        folder: where the libraries go; None for the place where the loader looks.

    Returns:
        The libraries.

    Raises:
        BuildError: there is no CMake, no compiler, or the compiler found an error.
    """
    look()  # the sources may have changed since they were imported
    folder = folder or output_folder()
    began = time.monotonic()
    cmake = _cmake()
    with _alone(folder):
        tree = folder / "build"
        notes = _configure(cmake, tree)
        jobs = str(os.cpu_count() or 1)
        _run([cmake, "--build", str(tree), "--parallel", jobs], "a source does not compile")
        libraries = [_put(path, folder) for path in sorted((tree / "lib").glob("*.so"))]
    look()
    for note in notes:
        write(f"{note}\n")
    names = ", ".join(path.name for path in libraries)
    write(f"{names} in {folder}, {time.monotonic() - began:.0f} s\n")
    return libraries


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


def _configure(cmake: str, tree: Path) -> list[str]:
    """Configure the build tree; what CMake says about our targets."""
    known = tree / "CMakeCache.txt"
    # A tree of another checkout or of another generator cannot be reused.
    if known.exists() and f"CMAKE_HOME_DIRECTORY:INTERNAL={PACKAGE}\n" not in known.read_text():
        shutil.rmtree(tree)
    command = [cmake, "-S", str(PACKAGE), "-B", str(tree)]
    command += [f"-DVMAMBA2_SOURCES={sources_digest()}", f"-DPython3_EXECUTABLE={sys.executable}"]
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
    parser.parse_args(arguments)
    try:
        build(sys.stdout.write)
    except BuildError as error:
        sys.stdout.write(f"nothing was built: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
