"""The wheel: the library alone, with compiled CPU kernels where there is a compiler; no device package."""

import os
import shutil
import subprocess
import sys
import zipfile
from email.parser import Parser
from functools import cache
from pathlib import Path

import pytest

from ops_ascend import native

ROOT = Path(__file__).parents[1]
WITHOUT, WITH = "without a compiler", "with a compiler"


def build_wheel(folder, environment):
    """The wheel of the tracked files, and what pip says."""
    source = folder / "source"
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in listed.splitlines():
        if name.startswith("tests/") or not (ROOT / name).exists():
            continue
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes((ROOT / name).read_bytes())
    command = [sys.executable, "-m", "pip", "wheel", "--verbose", "--no-deps", "--no-build-isolation", "."]
    done = subprocess.run(
        [*command, "--wheel-dir", str(folder)],
        cwd=source, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True,
    )  # fmt: skip
    (built,) = folder.glob("*.whl")
    return built, done.stdout


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """Builds a wheel once: by "without a compiler" or "with a compiler", the wheel and what pip says."""

    @cache
    def build(which):
        compilers = {} if which == WITH else {"CC": "false", "CXX": "false"}
        return build_wheel(tmp_path_factory.mktemp("wheel"), os.environ | compilers)

    return build


# Compiling the kernels takes a minute or two.
COMPILED = pytest.param(WITH, marks=pytest.mark.slow)


@pytest.fixture(params=[WITHOUT, COMPILED])
def wheel(request, wheels):
    if request.param == WITH and not any(map(shutil.which, ("c++", "g++", "clang++"))):
        pytest.skip("there is no C++ compiler")
    return wheels(request.param)[0]


with_a_compiler = pytest.mark.parametrize("wheel", [COMPILED], indirect=True)
without_a_compiler = pytest.mark.parametrize("wheel", [WITHOUT], indirect=True)


def libraries(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    return {name for name in names if Path(name).suffix in (".so", ".o", ".a", ".dylib", ".pyd")}


@without_a_compiler
def test_ins_1_without_a_compiler_the_wheel_is_pure_python_and_one_line_says_so(wheel, wheels):
    assert wheel.name.endswith("-py3-none-any.whl")
    assert libraries(wheel) == set()
    said = [line.strip() for line in wheels(WITHOUT)[1].splitlines() if line.strip().startswith("vmamba2: ")]
    assert said == [
        "vmamba2: built without the compiled CPU kernels: the C++ compiler cannot compile a simple program: "
        "install g++ or clang++"
    ]


@with_a_compiler
def test_with_a_compiler_the_wheel_is_for_its_platform_and_brings_the_cpu_kernels_alone(wheel):
    python, abi, platform = wheel.stem.split("-")[2:]
    assert (python, abi) == ("py3", "none")
    assert platform.startswith("linux")
    found = libraries(wheel)
    assert "ops_ascend/lib/libvmamba2_cpu_generic.so" in found
    assert found <= {f"ops_ascend/lib/libvmamba2_cpu_{name}.so" for name in native.INSTRUCTIONS}
    text = zipfile.ZipFile(wheel).read("vmamba2-0.1.0.dist-info/WHEEL").decode()
    assert "Root-Is-Purelib: false" in text


def test_the_wheel_is_the_library_and_nothing_else(wheel):
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"vmamba2", "ops_ascend"}


def test_the_wheel_brings_the_native_sources(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {"ops_ascend/CMakeLists.txt", "ops_ascend/README.md", "ops_ascend/csrc/cpu/call.h"} <= set(names)
    assert {Path(name).suffix for name in names if "/csrc/" in name} <= {".h", ".cpp", ".asc", ".md"}
    assert {name for name in names if "/lib/" in name} == libraries(wheel)


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


@pytest.fixture
def site(wheel):
    """The wheel, installed into a folder of its own."""
    target = wheel.parent / "site"
    if not target.exists():
        options = ["--quiet", "--no-deps", "--target", str(target)]
        subprocess.run([sys.executable, "-m", "pip", "install", *options, str(wheel)], check=True)
    return target


def run_outside_the_checkout(site, script):
    environment = {**os.environ, "PYTHONPATH": str(site), "HOME": str(site)}
    command = [sys.executable, "-c", script]
    return subprocess.run(command, cwd=site, env=environment, capture_output=True, text=True, check=True)


SCAN = (
    "import logging, pathlib, torch, ops_ascend;"
    "logging.basicConfig(level=logging.INFO);"
    "x = torch.randn(1, 9, 2, 4, requires_grad=True);"
    "calls = [ops_ascend.ssd_scan(x, torch.rand(1, 9, 2), -torch.ones(2), torch.randn(1, 9, 1, 3),"
    " torch.randn(1, 9, 1, 3), chunk_size=4)[0] for _ in range(3)];"
    "sum(y.sum() for y in calls).backward(); assert x.grad.isfinite().all();"
    "print(ops_ascend.__file__)"
)


@with_a_compiler
def test_the_installed_wheel_scans_outside_the_checkout_with_compiled_kernels(site):
    done = run_outside_the_checkout(site, SCAN)
    assert Path(done.stdout.strip()).is_relative_to(site)
    assert done.stderr.count("ssd_scan on cpu runs with backend cpu\n") == 1


@without_a_compiler
def test_ins_1_the_installed_wheel_scans_outside_the_checkout_without_them_and_says_why(site):
    done = run_outside_the_checkout(site, SCAN)
    assert Path(done.stdout.strip()).is_relative_to(site)
    reason = "the CPU library is not built: run `make ops` or `vmamba2 build-ops`"
    assert done.stderr.count(f"ssd_scan on cpu runs with backend chunked; not cpu: {reason}\n") == 1


def test_the_installed_wheel_says_how_to_build_and_has_every_source_for_it(site):
    digests = {kind: native.sources_digest(kind) for kind in native.KINDS}
    script = (
        "import ops_ascend; from ops_ascend import native;"
        f"assert {{kind: native.sources_digest(kind) for kind in native.KINDS}} == {digests!r};"
        "assert 'vmamba2 build-ops' in ops_ascend.backends()['twin'][0]"
    )
    run_outside_the_checkout(site, script)


def test_the_command_is_installed(site):
    commands = [path.name for path in (site / "bin").iterdir()]
    assert commands == ["vmamba2"]
