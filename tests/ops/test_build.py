"""Building the native libraries, and what is said when one is missing, stale or cannot be built."""

import shutil
import subprocess
import sys

import pytest

from ops_ascend import build as build_module
from ops_ascend import native
from ops_ascend.build import BuildError, NoCompilerError
from vmamba2 import cli


@pytest.mark.usefixtures("cpu_libraries", "twin_libraries")
def test_the_command_says_what_was_built_and_why_not_the_rest():
    run = subprocess.run(
        [sys.executable, "-m", "vmamba2.cli", "build-ops"], capture_output=True, text=True, check=True
    )
    lines = run.stdout.splitlines()
    assert lines[0] == "the CPU library is up to date" or lines[0].startswith("the CPU kernels are built for")
    assert lines[1] == "the twin is up to date"
    assert "the NPU library is " in lines[2]


@pytest.mark.usefixtures("cpu_libraries")
def test_the_command_builds_one_kind_alone(capsys):
    assert build_module.main(["--only", "cpu"]) == 0
    assert "twin" not in capsys.readouterr().out


@pytest.fixture
def small_package(tmp_path, monkeypatch):
    """A package whose CPU library is one function."""
    package = tmp_path / "ops_ascend"
    (package / "csrc" / "cpu").mkdir(parents=True)
    shutil.copy(native.PACKAGE / "CMakeLists.txt", package)
    for name in ("call.h", "threads.h", "threads.cpp"):
        shutil.copy(native.PACKAGE / "csrc" / "cpu" / name, package / "csrc" / "cpu")
    (package / "csrc" / "cpu" / "kernel.cpp").write_text("int Kernel() { return 1; }\n")
    monkeypatch.setattr(native, "PACKAGE", package)
    monkeypatch.setattr(build_module, "PACKAGE", package)
    monkeypatch.setattr(native, "_reasons", dict(native._reasons))
    native.look()
    yield package
    monkeypatch.undo()
    native.look()


@pytest.mark.usefixtures("cpu_libraries")
def test_libraries_are_built_again_when_their_sources_changed(small_package):
    folder = small_package / "lib"
    assert native.reasons_against("cpu", "generic") == [
        "the CPU library is not built: run `make ops` or `vmamba2 build-ops`"
    ]
    lines = []
    libraries = build_module.build(lines.append, ("cpu",))
    assert {path.name for path in libraries} == {path.name for path in folder.glob("*.so")}
    assert folder / "libvmamba2_cpu_generic.so" in libraries
    assert lines[0].startswith("the CPU kernels are built for generic")
    assert native.reasons_against("cpu", "generic") == []

    (small_package / "csrc" / "cpu" / "kernel.cpp").write_text("int Kernel() { return 2; }\n")
    native.look()
    assert native.reasons_against("cpu", "generic") == [
        "the CPU library was built from other sources than these: run `make ops` or `vmamba2 build-ops`"
    ]
    build_module.build(lines.append, ("cpu",))
    assert native.reasons_against("cpu", "generic") == []

    (small_package / "csrc" / "cpu" / "kernel.cpp").write_text("int Kernel( { return 2; }\n")
    with pytest.raises(BuildError, match=r"a source does not compile(?s:.*)kernel\.cpp:1:"):
        build_module.build(lines.append, ("cpu",))


@pytest.mark.parametrize(("kind", "variant"), [("cpu", "generic"), ("twin", 2201)])
@pytest.mark.usefixtures("cpu_libraries", "twin_libraries")
def test_libraries_carry_the_digest_of_their_sources(kind, variant, monkeypatch):
    assert native._examine(kind, variant) == []
    path = native.library_path(kind, variant)
    monkeypatch.setattr(native, "library_path", lambda *_: path)
    monkeypatch.setattr(native, "sources_digest", lambda kind: "0" * 32)
    (said,) = native._examine(kind, variant)
    assert said.endswith(" was built from other sources than these: run `make ops` or `vmamba2 build-ops`")


@pytest.mark.parametrize(("folder", "kinds"), [("cpu", {"cpu"}), ("twin", {"twin", "npu"})])
def test_the_digest_changes_with_the_sources_of_its_kind(folder, kinds, tmp_path, monkeypatch):
    (tmp_path / "csrc" / folder).mkdir(parents=True)
    (tmp_path / "CMakeLists.txt").write_text("project(x)")
    source = tmp_path / "csrc" / folder / "core.h"
    monkeypatch.setattr(native, "PACKAGE", tmp_path)

    def digests():
        return {kind: native.sources_digest.__wrapped__(kind) for kind in native.KINDS}

    source.write_text("int a;")
    runs = [digests()]
    source.write_text("int b;")
    runs.append(digests())
    source.rename(source.with_name("other.h"))
    runs.append(digests())
    for kind in native.KINDS:
        assert len({run[kind] for run in runs}) == (3 if kind in kinds else 1), kind


def test_a_library_that_was_never_built_is_named_with_the_cure(tmp_path, monkeypatch):
    monkeypatch.setattr(native, "_folders", lambda kind: (tmp_path / "lib", tmp_path / "cache"))
    assert native._examine("cpu", "avx2") == [
        "the CPU library is not built: run `make ops` or `vmamba2 build-ops`"
    ]
    assert native._examine("twin", 3510) == ["the twin is not built: run `make ops` or `vmamba2 build-ops`"]
    assert native._examine("npu", 3510) == [
        "the native library is not built: run `vmamba2 build-ops` where CANN is installed"
    ]


def test_without_cmake_the_sentence_says_how_to_get_it(monkeypatch, capsys):
    monkeypatch.setattr(build_module.shutil, "which", lambda *_, **__: None)
    assert build_module.main(["--only", "npu"]) == 1
    said = capsys.readouterr().out
    assert (
        said == "nothing was built: cmake was not found: install it, for example with `pip install cmake`\n"
    )


def failing(text):
    return [sys.executable, "-c", f"import sys; print({text!r}); sys.exit(1)"]


def test_without_a_compiler_the_sentence_says_so():
    with pytest.raises(NoCompilerError, match=r"no C\+\+ compiler was found: install g\+\+ or clang\+\+"):
        build_module._run(failing("No CMAKE_CXX_COMPILER could be found."), "it failed")


def test_a_compiler_that_does_not_work_is_none():
    with pytest.raises(NoCompilerError, match=r"the C\+\+ compiler cannot compile a simple program"):
        build_module._run(failing("is not able to compile a simple test program."), "it failed")


def test_what_a_compiler_says_is_passed_on():
    with pytest.raises(BuildError, match=r"it failed(?s:.*)error: expected"):
        build_module._run(failing("core.h:3: error: expected ';'"), "it failed")


def test_a_tree_of_another_checkout_is_not_reused(tmp_path, monkeypatch):
    cache = tmp_path / "CMakeCache.txt"
    cache.write_text("CMAKE_HOME_DIRECTORY:INTERNAL=/elsewhere\n")
    monkeypatch.setattr(build_module, "_run", lambda command, failure: "-- vmamba2: all is well\n")
    assert build_module._configure("cmake", tmp_path, "cpu", ()) == ["all is well"]
    assert not cache.exists()


def test_the_command_line_names_a_near_miss(capsys):
    assert cli.main(["build-op"]) == 2
    assert capsys.readouterr().err == "vmamba2: unknown command 'build-op'; did you mean 'build-ops'?\n"
    assert cli.main(["nothing"]) == 2
    assert (
        capsys.readouterr().err
        == "vmamba2: unknown command 'nothing'; it must be one of benchmark, build-ops, support\n"
    )


def test_the_command_line_lists_its_commands(capsys):
    assert cli.main([]) == 0
    assert capsys.readouterr().out.startswith("usage: vmamba2 COMMAND")
