"""load_weights: what it reads, what it adapts, and what it refuses."""

import argparse
import os
import subprocess
import sys
from collections import OrderedDict
from dataclasses import dataclass

import pytest
import timm
import torch
from safetensors.torch import save_file
from timm.models import adapt_input_conv

from vmamba2.models import load_weights


@dataclass
class NotAWeight:
    """Something that weights_only refuses to unpickle."""

    number: int = 1


@pytest.fixture
def trained(make_small):
    """A network whose every tensor differs from a fresh one's."""
    model = make_small()
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return model


def assert_same(model, state):
    assert model.state_dict().keys() == state.keys()
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, state[name]), name


def save(state, folder, kind):
    path = (
        folder
        / {"state dict": "a.pth", "lightning": "a.ckpt", "timm": "a.pt", "safetensors": "a.safetensors"}[kind]
    )
    if kind == "safetensors":
        save_file({name: tensor.contiguous() for name, tensor in state.items()}, path)
    elif kind == "lightning":
        wrapped = OrderedDict((f"model.{name}", tensor) for name, tensor in state.items())
        wrapped["val_accuracy.total"] = torch.zeros(())
        torch.save({"epoch": 3, "state_dict": wrapped, "hyper_parameters": {"lr": 1e-3}}, path)
    elif kind == "timm":
        torch.save({"state_dict": state, "args": argparse.Namespace(lr=1e-3)}, path)
    else:
        torch.save(state, path)
    return path


@pytest.mark.parametrize("kind", ["state dict", "lightning", "timm", "safetensors"])
@pytest.mark.parametrize("as_text", [True, False])
def test_ck_5_every_loaded_tensor_is_bit_equal_to_the_file(trained, make_small, tmp_path, kind, as_text):
    path = save(trained.state_dict(), tmp_path, kind)
    model = make_small()
    report = load_weights(model, str(path) if as_text else path)
    assert_same(model, trained.state_dict())
    assert len(report.loaded) == len(trained.state_dict())
    assert not report.adapted
    assert not report.fresh
    assert report.unexpected == (("val_accuracy.total",) if kind == "lightning" else ())
    assert str(report).startswith(f"loaded {len(report.loaded)} tensors as they are")


def test_golden_networks_load(golden, golden_state):
    for case in ("micro", "tiny"):
        model = timm.create_model(f"vmamba2_{case}")
        report = load_weights(model, golden_state(case), min_fraction=1.0)
        assert_same(model, golden_state(case))
        assert len(report.loaded) == len(golden[case]["keys"])


@pytest.mark.parametrize(
    "prefix", ["module.", "model.", "backbone.", "_orig_mod.", "model._orig_mod.module."]
)
def test_ck_2_prefixes_are_removed(trained, make_small, prefix):
    model = make_small()
    load_weights(model, {prefix + name: tensor for name, tensor in trained.state_dict().items()})
    assert_same(model, trained.state_dict())


def test_a_compiled_block_and_a_wrapped_target(trained, make_small):
    state = {
        name.replace("stages.1.", "stages.1._orig_mod."): tensor
        for name, tensor in trained.state_dict().items()
    }
    model = make_small()
    load_weights(model, state, min_fraction=1.0)
    assert_same(model, trained.state_dict())
    wrapped = torch.nn.Sequential(OrderedDict(model=make_small()))
    load_weights(wrapped, state, min_fraction=1.0)
    assert_same(wrapped.model, trained.state_dict())


def test_features_only_backbone_loads_a_classifiers_file(trained, make_small, image):
    backbone = make_small(features_only=True)
    report = load_weights(backbone, trained.state_dict())
    assert {"head.weight", "head.bias", "final_norm.weight"} <= set(report.unexpected)
    expected = trained.eval().forward_intermediates(image, intermediates_only=True)
    for grid, wanted in zip(backbone.eval()(image), expected, strict=True):
        assert torch.equal(grid, wanted)


def test_two_networks_in_one_file(trained, make_small):
    state = trained.state_dict()
    both = {f"model.{name}": tensor for name, tensor in state.items()}
    both |= {f"module.{name}": tensor for name, tensor in state.items()}
    with pytest.raises(ValueError, match=r"must hold one network, not both model\..* and module\..*"):
        load_weights(make_small(), both)


def test_another_class_count_leaves_the_head_fresh(trained, make_small):
    model = make_small(num_classes=3)
    head = {name: tensor.clone() for name, tensor in model.state_dict().items() if name.startswith("head")}
    report = load_weights(model, trained.state_dict())
    assert report.fresh == {
        "head.weight": "7 classes in the source, 3 in the model",
        "head.bias": "7 classes in the source, 3 in the model",
    }
    assert "kept fresh head.weight: 7 classes in the source, 3 in the model" in str(report)
    assert_same(model, {**trained.state_dict(), **head})


def test_a_file_without_a_head(trained, make_small):
    backbone = {name: tensor for name, tensor in trained.state_dict().items() if not name.startswith("head")}
    report = load_weights(make_small(), backbone)
    assert report.fresh == {"head.weight": "not in the source", "head.bias": "not in the source"}


def test_a_head_is_loaded_whole_or_not_at_all(trained, make_small):
    state = dict(trained.state_dict())
    state["head.weight"] = torch.zeros(7, 99)
    model = make_small()
    bias = model.head.bias.clone()
    report = load_weights(model, state)
    assert torch.equal(model.head.bias, bias)
    assert report.fresh["head.bias"] == "the rest of the classifier does not fit"


def test_a_model_without_a_head_ignores_the_files(trained, make_small):
    report = load_weights(make_small(num_classes=0), trained.state_dict(), min_fraction=1.0)
    assert set(report.unexpected) == {"head.weight", "head.bias"}


@pytest.mark.parametrize(("source", "target"), [(3, 1), (3, 4), (3, 6), (1, 3), (4, 2), (4, 1)])
def test_input_channels_are_adapted_by_timms_rule(make_small, source, target):
    weights = make_small(in_chans=source).state_dict()
    model = make_small(in_chans=target)
    report = load_weights(model, weights, min_fraction=1.0)
    weight = weights["patch_embed.weight"]
    if source == 3:
        assert torch.equal(model.patch_embed.weight, adapt_input_conv(target, weight))
    elif target == 1:
        torch.testing.assert_close(model.patch_embed.weight, weight.sum(1, keepdim=True))
    else:
        repeated = torch.cat([weight, weight, weight], dim=1)[:, :target]
        torch.testing.assert_close(model.patch_embed.weight, repeated * source / target)
    change = f"{source} input channels in the source, {target} in the model"
    assert report.adapted == {"patch_embed.weight": change}
    assert f"adapted patch_embed.weight: {change}" in str(report)


def test_a_half_precision_file_is_widened_exactly(trained, make_small):
    state = {name: tensor.half() for name, tensor in trained.state_dict().items()}
    model = make_small()
    load_weights(model, state)
    assert_same(model, {name: tensor.float() for name, tensor in state.items()})


REFUSED = "must be at least 90% of both"


def refuse(model, state, *reasons, **options):
    """Loading must fail with these reasons and must leave the model as it was."""
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(ValueError, match=REFUSED) as error:
        load_weights(model, state, **options)
    assert "\n" not in str(error.value)
    for reason in reasons:
        assert reason in str(error.value)
    assert_same(model, before)


def test_ck_3_a_bidirectional_file_is_refused_with_counts(trained, make_small):
    state = dict(trained.state_dict())
    backward = ("A_b_log", "D_b", "conv1d_b.weight", "conv1d_b.bias", "x_proj_b.weight", "dt_proj_b.weight")
    for mixer in ("stages.0.0.mixer", "stages.1.0.mixer", "stages.1.1.mixer"):
        state |= {f"{mixer}.{name}": torch.zeros(4) for name in backward}
    refuse(
        make_small(),
        state,
        "(71 of 71 in the model, of 89 in the state dict)",
        "scans in both directions with two sets of weights (stages.0.0.mixer.A_b_log",
    )


def test_another_size_is_refused(make_small):
    state = make_small(dims=(32, 64)).state_dict()
    refuse(
        make_small(),
        state,
        "another size or setting of the model",
        "(patch_embed.weight is (32, 3, 4, 4) in the source, (16, 3, 4, 4) in the model)",
    )


def test_another_depth_is_refused_either_way(make_small):
    shallow, deep = make_small(depths=(1, 1)), make_small(depths=(1, 3))
    refuse(deep, shallow.state_dict(), "the source has fewer layers (it lacks stages.1.1.cpe1.weight")
    refuse(shallow, deep.state_dict(), "the source has more layers (the model lacks stages.1.1.cpe1.weight")


def test_an_unknown_prefix_is_named(trained, make_small):
    state = {f"encoder.{name}": tensor for name, tensor in trained.state_dict().items()}
    refuse(make_small(), state, "an unknown prefix (the names in the source start with 'encoder.')")


def test_ck_9_another_architecture_is_refused(make_small):
    state = {"cls_token": torch.zeros(1), "layers.0.mixer.A_log": torch.zeros(2, 2)}
    refuse(make_small(), state, "another architecture (the source has cls_token, layers.0.mixer.A_log)")


def test_min_fraction_zero_loads_what_fits(make_small):
    shallow, deep = make_small(depths=(1, 1)), make_small(depths=(1, 3))
    refuse(deep, shallow.state_dict(), "; min_fraction=0 would load the 50 that fit")
    report = load_weights(deep, shallow.state_dict(), min_fraction=0)
    assert len(report.loaded) == len(shallow.state_dict())
    assert set(report.fresh.values()) == {"not in the source"}
    assert "kept fresh 38 more" in str(report)


@pytest.mark.parametrize("min_fraction", [-0.1, 1.5])
def test_a_bad_min_fraction(make_small, min_fraction):
    with pytest.raises(ValueError, match=r"min_fraction \(.*\) must be between 0 and 1"):
        load_weights(make_small(), {}, min_fraction=min_fraction)


@pytest.mark.parametrize("name", ["no/such/file.ckpt", "."])
def test_ck_6_a_missing_file(make_small, name):
    with pytest.raises(
        FileNotFoundError, match=r"source \(.*\) must be an existing file or hf-hub:owner/name"
    ):
        load_weights(make_small(), name)


@pytest.mark.parametrize("name", ["a.ckpt", "a.safetensors"])
@pytest.mark.parametrize("content", [b"", b"not a checkpoint", b"PK\x03\x04 cut short"])
def test_a_broken_file(make_small, tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"must be a whole checkpoint") as error:
        load_weights(make_small(), path)
    assert "\n" not in str(error.value)
    assert str(path) in str(error.value)


def test_nothing_but_weights_is_unpickled(trained, make_small, tmp_path):
    path = tmp_path / "a.pt"
    torch.save({"state_dict": trained.state_dict(), "extra": NotAWeight()}, path)
    with pytest.raises(ValueError, match=r"holds nothing but weights and plain values"):
        load_weights(make_small(), path)


@pytest.mark.parametrize("content", [{}, {"state_dict": {"epoch": 3}}, [torch.zeros(2)]])
def test_a_file_without_named_tensors(make_small, tmp_path, content):
    path = tmp_path / "a.pt"
    torch.save(content, path)
    with pytest.raises(ValueError, match=r"must hold named tensors, alone or as 'state_dict'"):
        load_weights(make_small(), path)


def test_a_source_of_the_wrong_kind(make_small):
    with pytest.raises(TypeError, match=r"source \(int\) must be a path, a hub name or a state dict"):
        load_weights(make_small(), 3)


def test_a_model_on_the_meta_device(trained, make_small):
    with pytest.raises(ValueError, match=r"the model \(.* on meta\) must be on a real device"):
        load_weights(make_small(device="meta"), trained.state_dict())


def test_the_hub_offline(tmp_path):
    script = """
import timm, vmamba2
from vmamba2.models import load_weights
try:
    load_weights(timm.create_model("vmamba2_nano"), "hf-hub:owner/name")
except ConnectionError as error:
    assert str(error).startswith("load_weights: source (hf-hub:owner/name) must name a model"), error
    assert "\\n" not in str(error), error
    print("refused")
"""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    result = subprocess.run(
        [sys.executable, "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.stdout == "refused\n", result.stderr


def test_a_malformed_hub_name(make_small):
    with pytest.raises(ConnectionError, match=r"source \(hf-hub:a/b/c\) must name a model"):
        load_weights(make_small(), "hf-hub:a/b/c")
