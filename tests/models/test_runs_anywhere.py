"""Import, compile and export, with PyTorch and timm alone."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]

WITHOUT_CUDA_PACKAGES = """
import sys

blocked = ("mamba_ssm", "causal_conv1d", "triton")
# None makes both an import and a search fail, as if the package were not installed.
sys.modules.update(dict.fromkeys(blocked))
import timm, torch, vmamba2
model = timm.create_model("vmamba2_nano", num_classes=10)
logits = model(torch.randn(2, 3, 32, 32))
logits.square().sum().backward()
assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
assert not any(sys.modules[name] for name in blocked)
print(tuple(logits.shape))
"""


def test_in_1_trains_on_a_cpu_without_mamba_ssm_causal_conv1d_and_triton():
    command = [sys.executable, "-c", WITHOUT_CUDA_PACKAGES]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert result.stdout == "(2, 10)\n", result.stderr


@pytest.mark.parametrize("directions", [1, 4])
def test_compiles_without_graph_breaks(make_small, image, directions):
    torch.compiler.reset()
    model = make_small(directions=directions, drop_path_rate=0.1).eval()
    model(image).square().sum().backward()
    expected = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    model.zero_grad()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    logits = compiled(image)
    torch.testing.assert_close(logits, model(image))
    logits.square().sum().backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name], msg=name)


def test_compiles_for_training_with_checkpointing(make_small, image):
    torch.compiler.reset()
    model = make_small(drop_path_rate=0.5, drop_rate=0.1)
    model.set_grad_checkpointing()
    logits = torch.compile(model, fullgraph=True, backend="aot_eager")(image)
    logits.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_exports_with_a_dynamic_batch(make_small, image):
    model = make_small().eval()
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(model, (image,), dynamic_shapes=({0: batch},), strict=True)
    targets = [node.target for node in program.graph.nodes if node.op == "call_function"]
    assert targets.count(torch.ops.vmamba2.ssd_cross_scan.default) == 3
    for size in (1, 5):
        images = torch.randn(size, 3, 32, 48)
        torch.testing.assert_close(program.module()(images), model(images))
