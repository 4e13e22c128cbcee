"""The token mixer: its calls of the operator, its precision, and inits that nothing undoes."""

import math

import pytest
import timm
import torch
import torch.nn.functional as F
from timm.models import named_apply
from timm.models.vision_transformer import get_init_weights_vit
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from vmamba2.layers import GridMixer

RECURRENCE = ("A_log", "dt_bias", "D")


class Operators(TorchDispatchMode):
    """Records the operators that run, outermost ones only."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func._overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def mixer(**overrides):
    torch.manual_seed(0)
    return GridMixer(32, **{"headdim": 16, "dstate": 8, "ngroups": 2, "chunk_size": 16, **overrides})


def recurrence(module):
    """The three parameters of every mixer, by name."""
    return {name: p for name, p in module.named_parameters() if name.rsplit(".", 1)[-1] in RECURRENCE}


def assert_fresh(module):
    """All mixers have the values of an initialisation, in float32."""
    parameters = recurrence(module)
    assert parameters
    for name, parameter in parameters.items():
        assert parameter.dtype == torch.float32, name
        value = parameter.detach().double()
        if name.endswith("A_log"):
            assert 1 - 1e-5 <= value.exp().min() <= value.exp().max() <= 16 + 1e-4, name
        elif name.endswith("dt_bias"):
            step = F.softplus(value)
            assert 1e-3 * (1 - 1e-4) <= step.min() <= step.max() <= 0.1 * (1 + 1e-4), name
        else:
            assert torch.equal(value, torch.ones_like(value)), name


def test_inits_have_the_right_distribution():
    module = GridMixer(4096, headdim=8, dstate=4, device="cpu")
    assert_fresh(module)
    rates = module.A_log.detach().exp().sort().values
    steps = F.softplus(module.dt_bias.detach()).log().sort().values
    for values, low, high in ((rates, 1, 16), (steps, math.log(1e-3), math.log(0.1))):
        uniform = torch.linspace(low, high, len(values))
        # Kolmogorov-Smirnov at 1,024 draws: 0.06 is passed once in a thousand times.
        assert (values - uniform).abs().max() / (high - low) < 0.06


@pytest.mark.parametrize("mode", ["", "jax", "moco", "reset"])
def test_inits_survive_timms_init_passes(make_small, mode):
    model = make_small()
    named_apply(get_init_weights_vit(mode), model)
    assert_fresh(model)


def test_inits_survive_reset_classifier_and_apply(make_small):
    model = make_small()
    before = {name: parameter.clone() for name, parameter in recurrence(model).items()}

    def init(module):
        if isinstance(module, nn.Linear | nn.Conv2d):
            nn.init.trunc_normal_(module.weight, std=0.02)
        if getattr(module, "bias", None) is not None:
            nn.init.zeros_(module.bias)

    model.apply(init)
    model.reset_classifier(3)
    for name, parameter in recurrence(model).items():
        assert torch.equal(parameter, before[name]), name


@pytest.mark.parametrize("build_on_meta", ["context", "argument"])
def test_inits_survive_the_meta_device(make_small, build_on_meta):
    if build_on_meta == "context":
        with torch.device("meta"):
            model = make_small()
    else:
        model = make_small(device="meta")
    assert all(parameter.is_meta for parameter in model.parameters())
    model.to_empty(device="cpu")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(math.nan)
    model.init_weights()
    assert_fresh(model)
    assert all(parameter.isfinite().all() for parameter in model.parameters())
    assert model.head.bias.abs().max() == 0
    assert model(torch.randn(1, 3, 16, 16)).isfinite().all()


def test_fresh_models_differ_only_by_seed(make_small):
    first, second = make_small().state_dict(), make_small().state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    other = timm.create_model("vmamba2_nano")
    assert not torch.equal(
        other.stages[1][0].mixer.A_log, timm.create_model("vmamba2_nano").stages[1][0].mixer.A_log
    )


@pytest.mark.parametrize(
    "narrow", [nn.Module.half, nn.Module.bfloat16, lambda m: m.to("cpu", torch.bfloat16)]
)
def test_recurrence_parameters_stay_float32_in_a_narrow_model(make_small, narrow):
    model = make_small()
    before = {name: parameter.detach().clone() for name, parameter in recurrence(model).items()}
    narrow(model)
    assert model.head.weight.dtype in (torch.float16, torch.bfloat16)
    assert model.stages[0][0].mixer.in_proj.weight.dtype == model.head.weight.dtype
    for name, parameter in recurrence(model).items():
        assert parameter.dtype == torch.float32, name
        assert torch.equal(parameter, before[name]), name
    assert all(recurrence(model)[name].dtype == torch.float32 for name in before)


def test_gradients_keep_the_dtype_of_their_parameters_when_the_model_is_narrowed(make_small, image):
    model = make_small()
    model(image).sum().backward()
    model.bfloat16()
    assert all(parameter.grad.dtype == parameter.dtype for parameter in model.parameters())


def test_a_model_made_in_bfloat16_keeps_its_recurrence_in_float32(make_small):
    model = make_small(dtype=torch.bfloat16)
    assert_fresh(model)
    narrow = {name: p.dtype for name, p in model.named_parameters() if name not in recurrence(model)}
    assert set(narrow.values()) == {torch.bfloat16}
    torch.set_default_dtype(torch.bfloat16)
    assert_fresh(make_small())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_precisions_agree_with_float32(make_small, image, dtype):
    model = make_small().eval()
    expected = model(image)
    logits = model.to(dtype)(image.to(dtype))
    assert logits.dtype == dtype
    error = (logits.float() - expected).norm() / expected.norm()
    assert error < (0.05 if dtype == torch.bfloat16 else 1e-4)


def test_autocast_trains_and_agrees_with_float32(make_small, image):
    model = make_small()
    expected = model(image)
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(image)
    assert logits.dtype == torch.bfloat16
    assert (logits.float() - expected).norm() / expected.norm() < 0.05
    logits.float().square().sum().backward()
    assert all(p.grad.isfinite().all() and p.grad.dtype == torch.float32 for p in model.parameters())


@pytest.mark.parametrize("directions", [1, 2, 4])
def test_one_operator_call_per_mixer(make_small, image, directions):
    model = make_small(directions=directions)
    mixers = sum(isinstance(module, GridMixer) for module in model.modules())
    with Operators() as seen:
        loss = model(image).sum()
    assert seen.names.count("ssd_cross_scan") == mixers == 3
    with Operators() as seen:
        loss.backward()
    assert seen.names.count("ssd_cross_scan_backward") == mixers


@pytest.mark.parametrize("directions", [1, 2, 4])
def test_the_mixer_neither_copies_nor_pads(directions):
    module = mixer(directions=directions)
    grid = torch.randn(2, 5, 7, 32)
    with Operators() as seen, torch.no_grad():
        module(grid)
    copies = {"clone", "copy", "copy_", "_to_copy", "constant_pad_nd", "cat", "stack", "flip", "index_select"}
    assert copies.isdisjoint(seen.names), seen.names


def test_the_operator_gets_views_of_the_projections():
    module = mixer()
    seen = {}

    class Arguments(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            if func._overloadpacket.__name__ == "ssd_cross_scan":
                seen["x"], seen["dt"], _, seen["B"], seen["C"], _, seen["z"] = args[:7]
            return out

    with Arguments(), torch.no_grad():
        module(torch.randn(2, 5, 7, 32))
    storages = {name: tensor.untyped_storage().data_ptr() for name, tensor in seen.items()}
    assert storages["x"] == storages["B"] == storages["C"]
    assert storages["z"] == storages["dt"]
    assert seen["x"].shape == seen["z"].shape == (2, 35, 4, 16)
    assert seen["B"].shape == (2, 35, 2, 8)


def reached(directions):
    """Which output tokens depend on which input tokens, beyond the convolution's neighbours."""
    module = mixer(directions=directions).double()
    with torch.no_grad():
        module.dwconv.weight.zero_()
        module.dwconv.weight[:, :, 1, 1] = 1.0
    grid = torch.randn(1, 3, 4, 32, dtype=torch.float64, requires_grad=True)
    rows = []
    for token in module(grid).flatten(1, 2)[0]:
        (gradient,) = torch.autograd.grad(token.sum(), grid, retain_graph=True)
        rows.append(gradient.flatten(1, 2)[0].abs().sum(-1) > 0)
    return torch.stack(rows)


def test_one_direction_is_causal_along_the_rows():
    assert torch.equal(reached(1), torch.ones(12, 12, dtype=torch.bool).tril())


@pytest.mark.parametrize("directions", [2, 4])
def test_more_directions_reach_every_token(directions):
    assert reached(directions).all()


@pytest.mark.parametrize("directions", [1, 2, 4])
def test_in_1_backends_agree(make_small, image, directions):
    logits = [
        make_small(directions=directions, scan_backend=backend).eval()(image)
        for backend in ("auto", "chunked", "reference")
    ]
    torch.testing.assert_close(logits[0], logits[2], rtol=0, atol=1e-4)
    torch.testing.assert_close(logits[1], logits[2], rtol=0, atol=1e-4)


def test_chunk_size_changes_nothing_but_speed(make_small, image):
    logits = [make_small(chunk_sizes=chunk_size).eval()(image) for chunk_size in (7, 16, 1000)]
    torch.testing.assert_close(logits[0], logits[1], rtol=0, atol=1e-5)
    torch.testing.assert_close(logits[2], logits[1], rtol=0, atol=1e-5)
