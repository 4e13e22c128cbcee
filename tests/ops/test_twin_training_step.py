"""One training step on the twin is one of the reference: loss, every gradient, weights after the step."""

import copy

import pytest
import timm
import torch
import torch.nn.functional as F
from timm.optim import create_optimizer_v2
from torch import nn

import vmamba2  # noqa: F401  registers the models
from ops_ascend import selective_scan, twin
from ops_ascend.errors import tensor_error

# Relative RMS through a whole network; the second one is what float16 operands may cost.
LIMITS = {"accurate": 1e-4, "half": 2e-3}


def one_step(model, images, labels):
    """Loss, gradients, and weights after a step of the optimizer that the recipes use."""
    optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.05)
    loss = F.cross_entropy(model(images), labels)
    loss.backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
    optimizer.step()
    weights = {name: p.detach().clone() for name, p in model.named_parameters()}
    return loss.detach(), gradients, weights


def assert_same_step(model, with_backend, images, labels, chip, precision):
    """Compare the twin with the reference.

    Args:
        model: to train; every run gets a copy.
        with_backend: sets the backend of the scans of a model.
    """
    runs = {}
    for backend in ("reference", "twin"):
        own = with_backend(copy.deepcopy(model), backend)
        with twin.settings(chip=chip, seed=1, precision=precision):
            runs[backend] = one_step(own, images, labels)
    (exact_loss, *exact), (loss, *have) = runs["reference"], runs["twin"]
    assert abs(loss - exact_loss) <= LIMITS[precision] * exact_loss
    for kind, measured, wanted in zip(("gradient", "weight"), have, exact, strict=True):
        for name, value in measured.items():
            # What is zero but for rounding, as the gradient of a bias before a normalisation, has no digits.
            row = tensor_error(name, value, wanted[name])
            assert row.relative_rms <= LIMITS[precision] or row.max_abs <= 1e-7, (kind, row)


@pytest.mark.parametrize(("precision", "seed"), [("accurate", 3), ("half", 3), ("half", 4), ("half", 5)])
def test_of_the_smallest_vision_mamba2(precision, seed, chip):
    torch.manual_seed(seed)
    model = timm.create_model("vmamba2_nano", num_classes=10)

    def with_backend(own, backend):
        scans = [module for module in own.modules() if hasattr(module, "scan_backend")]
        assert len(scans) == 3
        for module in scans:
            module.scan_backend = backend
        return own

    images, labels = torch.randn(2, 3, 32, 32), torch.tensor([3, 7])
    assert_same_step(model, with_backend, images, labels, chip, precision)


class MambaVisionMixer(nn.Module):
    """MambaVision's mixer: half of the channels are scanned, the other half only convolved."""

    def __init__(self, dim, dstate=8, rank=4):
        super().__init__()
        half = dim // 2
        self.sizes = (rank, dstate, dstate)
        self.in_proj = nn.Linear(dim, dim, bias=False)
        self.conv_x = nn.Conv1d(half, half, 3, padding="same", groups=half, bias=False)
        self.conv_z = nn.Conv1d(half, half, 3, padding="same", groups=half, bias=False)
        self.x_proj = nn.Linear(half, sum(self.sizes), bias=False)
        self.dt_proj = nn.Linear(rank, half)
        self.A_log = nn.Parameter(torch.log(torch.arange(1.0, dstate + 1).repeat(half, 1)))
        self.D = nn.Parameter(torch.ones(half))
        self.out_proj = nn.Linear(dim, dim, bias=False)
        self.backend = "auto"

    def forward(self, tokens):
        x, z = self.in_proj(tokens).mT.chunk(2, dim=1)
        x, z = F.silu(self.conv_x(x)), F.silu(self.conv_z(z))
        delta, B, C = self.x_proj(x.mT).split(self.sizes, dim=-1)
        y, _ = selective_scan(
            x,
            F.linear(delta, self.dt_proj.weight).mT,
            -torch.exp(self.A_log),
            B.mT.contiguous(),
            C.mT.contiguous(),
            D=self.D,
            delta_bias=self.dt_proj.bias,
            delta_softplus=True,
            backend=self.backend,
        )
        return self.out_proj(torch.cat([y, z], dim=1).mT)


class NarrowMambaVision(nn.Module):
    def __init__(self, dim=48, depth=2):
        super().__init__()
        self.patches = nn.Conv2d(3, dim, 4, 4)
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(depth))
        self.mixers = nn.ModuleList(MambaVisionMixer(dim) for _ in range(depth))
        self.head = nn.Linear(dim, 10)

    def forward(self, images):
        tokens = self.patches(images).flatten(2).mT
        for norm, mixer in zip(self.norms, self.mixers, strict=True):
            tokens = tokens + mixer(norm(tokens))
        return self.head(tokens.mean(1))


def test_of_a_narrow_mamba_vision(chip):
    torch.manual_seed(4)

    def with_backend(own, backend):
        for mixer in own.mixers:
            mixer.backend = backend
        return own

    images, labels = torch.randn(2, 3, 28, 28), torch.tensor([3, 7])
    assert_same_step(NarrowMambaVision(), with_backend, images, labels, chip, "accurate")
