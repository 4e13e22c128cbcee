"""The wheel: Python and C++ sources, the library alone; no compiler and no device package needed."""

import os
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from ops_ascend import native

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in listed.splitlines():
        if name.startswith("tests/") or not (ROOT / name).exists():
            continue
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes((ROOT / name).read_bytes())
    no_compiler = {**os.environ, "CC": "false", "CXX": "false"}
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "."]
    subprocess.run([*command, "--wheel-dir", str(folder)], cwd=source, env=no_compiler, check=True)
    (built,) = folder.glob("*.whl")
    return built


def test_ins_1_the_wheel_is_pure_python(wheel):
    assert wheel.name.endswith("-py3-none-any.whl")


def test_the_wheel_is_the_library_and_nothing_else(wheel):
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"vmamba2", "ops_ascend"}


def test_the_wheel_brings_the_native_sources_and_nothing_compiled(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {"ops_ascend/CMakeLists.txt", "ops_ascend/README.md"} <= set(names)
    assert {Path(name).suffix for name in names if "/csrc/" in name} <= {".h", ".cpp", ".asc", ".md"}
    assert not [name for name in names if Path(name).suffix in (".so", ".o", ".a", ".dylib", ".pyd")]


def test_ins_1_no_device_package_is_required(wheel):
    archive = zipfile.ZipFile(wheel)
    (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    required = Parser().parsestr(archive.read(metadata).decode()).get_all("Requires-Dist")
    always = {line.split(";")[0].strip() for line in required if "extra ==" not in line}
    names = {line.split(">")[0].split("<")[0].split("=")[0].strip() for line in always}
    assert {"torch", "lightning", "timm", "hydra-core", "einops", "torchmetrics", "wandb"} <= names
    assert not names & {"torch-npu", "torch_npu", "triton", "triton-ascend", "mamba-ssm", "causal-conv1d"}
    extras = {line for line in required if "extra ==" in line}
    assert any("torch-npu" in line for line in extras)
    assert any("triton" in line for line in extras)


@pytest.fixture(scope="module")
def site(wheel, tmp_path_factory):
    """The wheel, installed into a folder of its own."""
    target = tmp_path_factory.mktemp("site")
    options = ["--quiet", "--no-deps", "--target", str(target)]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(wheel)], check=True)
    return target


def run_outside_the_checkout(site, script):
    environment = {**os.environ, "PYTHONPATH": str(site)}
    subprocess.run([sys.executable, "-c", script], cwd=site, env=environment, check=True)


def test_ins_1_the_installed_wheel_scans_outside_the_checkout(site):
    script = (
        "import torch, ops_ascend, pathlib;"
        f"assert pathlib.Path(ops_ascend.__file__).is_relative_to({str(site)!r});"
        "x = torch.randn(1, 9, 2, 4, requires_grad=True);"
        "y, _ = ops_ascend.ssd_scan(x, torch.rand(1, 9, 2), -torch.ones(2), torch.randn(1, 9, 1, 3),"
        " torch.randn(1, 9, 1, 3), chunk_size=4);"
        "y.sum().backward(); assert x.grad.isfinite().all()"
    )
    run_outside_the_checkout(site, script)


def test_the_installed_wheel_says_how_to_build_and_has_every_source_for_it(site):
    script = (
        "import ops_ascend; from ops_ascend import native;"
        f"assert native.sources_digest() == {native.sources_digest()!r};"
        "assert 'vmamba2 build-ops' in ops_ascend.backends()['twin'][0]"
    )
    run_outside_the_checkout(site, script)


def test_the_command_is_installed(site):
    commands = [path.name for path in (site / "bin").iterdir()]
    assert commands == ["vmamba2"]
