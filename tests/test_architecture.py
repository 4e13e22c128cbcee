"""The rules of the tree: who imports whom, what stands at the top, how long a file may get."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LAYERS = {
    "train.py": {"data", "vmamba2", "ops_ascend"},
    "data": {"data"},
    "vmamba2": {"vmamba2", "ops_ascend"},
    "ops_ascend": {"ops_ascend"},
}
OUR_PACKAGES = {"data", "vmamba2", "ops_ascend", "train", "tests"}


def sources(top):
    path = ROOT / top
    return [path] if path.is_file() else sorted(path.rglob("*.py"))


def imported_packages(path):
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
    return found


@pytest.mark.parametrize("top", LAYERS)
def test_imports_go_one_way(top):
    for path in sources(top):
        ours = imported_packages(path) & OUR_PACKAGES
        assert ours <= LAYERS[top], f"{path.relative_to(ROOT)} imports {sorted(ours - LAYERS[top])}"


def test_operators_need_torch_alone():
    allowed = {*sys.stdlib_module_names, "torch", "ops_ascend"}
    for path in sources("ops_ascend"):
        # wheel.py runs while a wheel is built, and never again.
        own = {"setuptools"} if path.name == "wheel.py" else set()
        assert imported_packages(path) <= allowed | own, path.relative_to(ROOT)


def tracked():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [Path(line) for line in listed.splitlines()]


def test_the_top_level_is_as_designed():
    top = {path.parts[0] for path in tracked() if not path.parts[0].startswith(".")}
    assert top == {
        "pyproject.toml", "configs", "vmamba2", "ops_ascend", "data", "train.py", "tests", "README.md",
        "Makefile", "LICENSE",
    }  # fmt: skip


def test_files_stay_short():
    sources = [path for path in tracked() if path.suffix in (".py", ".h", ".cpp", ".asc")]
    limits = dict.fromkeys(sources, 400) | {Path("train.py"): 80}
    for path, limit in limits.items():
        lines = (ROOT / path).read_text(encoding="utf-8").count("\n")
        assert lines < limit, f"{path} has {lines} lines"


def test_code_reads_no_environment_variable():
    for top in LAYERS:
        for path in sources(top):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
                assert name not in ("environ", "getenv"), path.relative_to(ROOT)
