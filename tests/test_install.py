"""The wheel: pure Python, the library alone, no compiler and no device package needed."""

import os
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

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


def test_ins_1_the_installed_wheel_scans_outside_the_checkout(wheel, tmp_path):
    target = tmp_path / "site"
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--target",
        str(target),
        str(wheel),
    ]
    subprocess.run(install, check=True)
    script = (
        "import torch, ops_ascend, pathlib;"
        f"assert pathlib.Path(ops_ascend.__file__).is_relative_to({str(target)!r});"
        "x = torch.randn(1, 9, 2, 4, requires_grad=True);"
        "y, _ = ops_ascend.ssd_scan(x, torch.rand(1, 9, 2), -torch.ones(2), torch.randn(1, 9, 1, 3),"
        " torch.randn(1, 9, 1, 3), chunk_size=4);"
        "y.sum().backward(); assert x.grad.isfinite().all()"
    )
    environment = {**os.environ, "PYTHONPATH": str(target)}
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=environment, check=True)
