"""The golden Vision-Mamba2 networks: keys, parameter counts, logits and gradients."""

import numpy as np
import pytest
import timm
import torch
from torch import nn

CASES = ("smoke", "micro", "tiny")


def build(golden, case):
    arguments = {key: value for key, value in golden[case]["config"].items() if key != "image_size"}
    return timm.create_model("vmamba2_tiny", **arguments).eval()


@pytest.fixture(scope="module")
def networks(golden, golden_state):
    """The golden networks with their weights, built once."""
    models = {case: build(golden, case) for case in CASES}
    for case, model in models.items():
        model.load_state_dict(golden_state(case))
    return models


def random_images(batch, height, width):
    return torch.tensor(np.random.RandomState(0).standard_normal((batch, 3, height, width))).float()


@pytest.mark.parametrize("case", CASES)
def test_keys_shapes_and_parameter_count(golden, networks, case):
    model = networks[case]
    shapes = {name: list(tensor.shape) for name, tensor in model.state_dict().items()}
    assert shapes == golden[case]["keys"]
    assert sum(parameter.numel() for parameter in model.parameters()) == golden[case]["params"]


@pytest.mark.parametrize("case", ["micro", "tiny"])
def test_registered_model_has_the_golden_structure(golden, case):
    model = timm.create_model(f"vmamba2_{case}", device="meta")
    shapes = {name: list(tensor.shape) for name, tensor in model.state_dict().items()}
    assert shapes == golden[case]["keys"]

    config = golden[case]["config"]
    for stage, blocks in enumerate(model.stages):
        scan = (config["directions"], config["chunk_sizes"][stage], config["ngroups"][stage])
        assert {(b.mixer.directions, b.mixer.chunk_size, b.mixer.ngroups) for b in blocks} == {scan}


def test_every_norm_has_the_golden_epsilon(networks):
    # Logits alone are too coarse to tell 1e-5 from timm's usual 1e-6 in each of them.
    norms = [module for module in networks["tiny"].modules() if isinstance(module, nn.LayerNorm)]
    assert len(norms) == 3 * 12 + 3 + 1
    assert {norm.eps for norm in norms} == {1e-5}


@pytest.mark.parametrize(
    ("case", "height", "width"),
    [
        ("smoke", 64, 64),
        ("smoke", 64, 96),
        ("micro", 128, 128),
        ("micro", 64, 96),
        ("tiny", 64, 64),
        ("tiny", 64, 96),
    ],
)
def test_logits(golden, networks, case, height, width):
    expected = torch.tensor(golden[case][f"eval_{height}x{width}"])
    with torch.no_grad():
        logits = networks[case](random_images(len(expected), height, width))
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("case", ["smoke", "tiny"])
def test_gradients(golden, networks, case):
    model = networks[case]
    model.zero_grad()
    logits = model(random_images(2, 64, 64))
    weights = torch.tensor(np.random.RandomState(1).standard_normal(tuple(logits.shape))).float()
    (logits * weights).sum().backward()
    expected = golden[case]["grad_64x64"]
    assert expected.keys() == {name for name, _ in model.named_parameters()}
    for name, parameter in model.named_parameters():
        # Summed in float64: a float32 norm of ten million entries is off by more than the gradient.
        gradient = parameter.grad.double()
        assert gradient.norm().item() == pytest.approx(expected[name]["norm"], rel=1e-4), name
        first = torch.tensor(expected[name]["first4"], dtype=torch.float64)
        typical = expected[name]["norm"] / gradient.numel() ** 0.5
        torch.testing.assert_close(gradient.flatten()[:4], first, rtol=1e-3, atol=1e-4 * typical, msg=name)
