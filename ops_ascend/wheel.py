"""Commands of setuptools that bring the compiled CPU kernels along where they can be built.

A wheel with libraries is for its platform; one without is pure Python, and one line says why. An editable
install builds them beside the sources. This runs where pip builds, with setuptools and without torch.
"""

import shutil
import sys
import tempfile
import types
from pathlib import Path

from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

PACKAGE = Path(__file__).resolve().parent
if "ops_ascend" not in sys.modules:
    # The package's own __init__ imports torch; its modules for building do not.
    bare = types.ModuleType("ops_ascend")
    bare.__path__ = [str(PACKAGE)]
    sys.modules["ops_ascend"] = bare

from ops_ascend import native  # noqa: E402 - needs the bare package
from ops_ascend.build import BuildError, build  # noqa: E402


def build_cpu_libraries(folder: Path) -> list[Path]:
    """Build the CPU libraries into a folder; none, and one line that says why, where that is not possible."""
    # Not beside the sources: the CMake of a build environment is gone afterwards.
    with tempfile.TemporaryDirectory() as tree:
        try:
            return build(sys.stdout.write, ("cpu",), folder, Path(tree))
        except BuildError as error:
            sys.stdout.write(f"vmamba2: built without the compiled CPU kernels: {error}\n")
            return []


class BuildModules(build_py):
    """Copies the modules, and builds the libraries beside the copies, or beside the modules themselves."""

    libraries: list[Path] | None = None

    def build_libraries(self) -> list[Path]:
        """Build the libraries that go into a wheel, once."""
        if self.libraries is None:
            target = Path(self.build_lib) / "ops_ascend" / "lib"
            # What an earlier build left there may belong to other sources.
            shutil.rmtree(target, ignore_errors=True)
            with tempfile.TemporaryDirectory() as folder:
                built = build_cpu_libraries(Path(folder))
                target.mkdir(parents=True, exist_ok=True)
                self.libraries = [Path(shutil.copy(library, target)) for library in built]
        return self.libraries

    def run(self) -> None:
        """Copy and build."""
        super().run()
        if not self.editable_mode:
            self.build_libraries()
        elif native.reasons_against("cpu", "generic"):
            build_cpu_libraries(native.output_folder("cpu"))

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """Every file of a wheel."""
        return [*super().get_outputs(include_bytecode), *map(str, self.libraries or ())]


class BuildWheel(bdist_wheel):
    """Names the platform of a wheel that brings libraries."""

    def run(self) -> None:
        """Build the libraries first: whether there are any decides what kind of wheel it is."""
        if self.get_finalized_command("build_py").build_libraries():
            self.root_is_pure = False
            self.distribution.has_ext_modules = lambda: True
        super().run()

    def get_tag(self) -> tuple[str, str, str]:
        """Any Python 3, for the libraries know no Python."""
        python, abi, platform = super().get_tag()
        return (python, abi, platform) if self.root_is_pure else ("py3", "none", platform)
