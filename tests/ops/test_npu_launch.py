"""The NPU launch: a host compiler type-checks it, with stand-ins for what only CANN and torch_npu have."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from torch.utils.cpp_extension import include_paths

from ops_ascend.native import CHIPS, PACKAGE

SOURCES = sorted((PACKAGE / "csrc" / "npu").glob("*.asc"))
STREAM = """
namespace c10_npu {
struct Stream { void* stream(bool) const { return nullptr; } };
inline Stream getCurrentNPUStream() { return {}; }
}
"""
QUEUE = """
#include <functional>
#include <string>
namespace at_npu::native {
struct OpCommand {
  static void RunOpApiV2(const std::string&, const std::function<int()>& launch) { launch(); }
};
}
"""


def test_every_kernel_has_a_launch():
    assert {path.stem for path in SOURCES} >= {"ssd_forward", "ssd_backward", "selective_scan"}


@pytest.mark.slow
@pytest.mark.parametrize("arch", CHIPS.values())
@pytest.mark.parametrize("source", SOURCES, ids=[path.stem for path in SOURCES])
def test_the_launch_type_checks(source, arch, tmp_path):
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler was found")
    for header, text in {"core/npu/NPUStream.h": STREAM, "framework/OpCommand.h": QUEUE}.items():
        path = tmp_path / "torch_npu" / "csrc" / header
        path.parent.mkdir(parents=True)
        path.write_text(text)
    plain_calls, launches = re.subn(r"<<<.*?>>>", "", source.read_text(encoding="utf-8"))
    assert launches > 0
    plain = tmp_path / "launch.cpp"
    plain.write_text(plain_calls)
    ours = [PACKAGE / "csrc" / folder for folder in ("", "kernels", "tiling", "twin/ascendc")]
    includes = [f"-I{folder}" for folder in (*ours, tmp_path, *map(Path, include_paths()))]
    # PyTorch's own headers decide: C++20 is wanted from 2.12 on.
    modern = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 12)
    options = [f"-std=c++{20 if modern else 17}", f"-D__NPU_ARCH__={arch}", f"-DVMAMBA2_ARCH={arch}"]
    command = [compiler, "-fsyntax-only", *options, *includes, str(plain)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
