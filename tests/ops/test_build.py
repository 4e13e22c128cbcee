"""Building the native libraries, and what is said when one is missing, stale or cannot be built."""

import subprocess
import sys

import pytest

from ops_ascend import build as build_module
from ops_ascend import native
from ops_ascend.build import BuildError, NoCompilerError
from vmamba2 import cli


@pytest.mark.usefixtures("twin_libraries")
def test_the_command_says_what_was_built_and_why_not_the_rest():
    run = subprocess.run(
        [sys.executable, "-m", "vmamba2.cli", "build-ops"], capture_output=True, text=True, check=True
    )
    lines = run.stdout.splitlines()
    assert lines[0] == "the CPU twin is built for 910B3 and 950PR"
    assert "the NPU library is " in lines[1]
    assert lines[2].startswith("libvmamba2_twin_2201.so, libvmamba2_twin_3510.so in ")


@pytest.mark.usefixtures("twin_libraries")
def test_libraries_carry_the_digest_of_their_sources(monkeypatch):
    assert native._examine("twin", 2201) == []
    monkeypatch.setattr(native, "sources_digest", lambda: "0" * 32)
    assert native._examine("twin", 2201) == [
        "the twin was built from other sources than these: run `make ops` or `vmamba2 build-ops`"
    ]


def test_the_digest_changes_with_any_source(tmp_path, monkeypatch):
    (tmp_path / "csrc" / "twin").mkdir(parents=True)
    (tmp_path / "CMakeLists.txt").write_text("project(x)")
    source = tmp_path / "csrc" / "twin" / "core.h"
    monkeypatch.setattr(native, "PACKAGE", tmp_path)
    digests = set()
    for text in ("int a;", "int b;"):
        source.write_text(text)
        digests.add(native.sources_digest.__wrapped__())
    source.rename(source.with_name("other.h"))
    digests.add(native.sources_digest.__wrapped__())
    assert len(digests) == 3


def test_a_library_that_was_never_built_is_named_with_the_cure(tmp_path, monkeypatch):
    monkeypatch.setattr(native, "_folders", lambda: (tmp_path / "lib", tmp_path / "cache"))
    assert native._examine("twin", 3510) == ["the twin is not built: run `make ops` or `vmamba2 build-ops`"]
    assert native._examine("npu", 3510) == [
        "the native library is not built: run `vmamba2 build-ops` where CANN is installed"
    ]


def test_without_cmake_the_sentence_says_how_to_get_it(monkeypatch, capsys):
    monkeypatch.setattr(build_module.shutil, "which", lambda *_, **__: None)
    assert build_module.main([]) == 1
    said = capsys.readouterr().out
    assert (
        said == "nothing was built: cmake was not found: install it, for example with `pip install cmake`\n"
    )


def failing(text):
    return [sys.executable, "-c", f"import sys; print({text!r}); sys.exit(1)"]


def test_without_a_compiler_the_sentence_says_so():
    with pytest.raises(NoCompilerError, match=r"no C\+\+ compiler was found: install g\+\+ or clang\+\+"):
        build_module._run(failing("No CMAKE_CXX_COMPILER could be found."), "it failed")


def test_what_a_compiler_says_is_passed_on():
    with pytest.raises(BuildError, match=r"it failed(?s:.*)error: expected"):
        build_module._run(failing("core.h:3: error: expected ';'"), "it failed")


def test_a_tree_of_another_checkout_is_not_reused(tmp_path, monkeypatch):
    cache = tmp_path / "CMakeCache.txt"
    cache.write_text("CMAKE_HOME_DIRECTORY:INTERNAL=/elsewhere\n")
    monkeypatch.setattr(build_module, "_run", lambda command, failure: "-- vmamba2: all is well\n")
    assert build_module._configure("cmake", tmp_path) == ["all is well"]
    assert not cache.exists()


def test_the_command_line_names_a_near_miss(capsys):
    assert cli.main(["build-op"]) == 2
    assert capsys.readouterr().err == "vmamba2: unknown command 'build-op'; did you mean 'build-ops'?\n"
    assert cli.main(["nothing"]) == 2
    assert (
        capsys.readouterr().err
        == "vmamba2: unknown command 'nothing'; it must be one of build-ops, support\n"
    )


def test_the_command_line_lists_its_commands(capsys):
    assert cli.main([]) == 0
    assert capsys.readouterr().out.startswith("usage: vmamba2 COMMAND")
