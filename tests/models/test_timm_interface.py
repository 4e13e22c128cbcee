"""What timm and its users expect of a model."""

import copy
import inspect
import io

import pytest
import timm
import torch
from timm.data import resolve_model_data_config
from timm.models import group_parameters
from timm.optim import create_optimizer_v2, param_groups_layer_decay
from torch import nn

from vmamba2.models import VMamba2, count_parameters

SIZES = ["vmamba2_base", "vmamba2_micro", "vmamba2_nano", "vmamba2_small", "vmamba2_tiny"]


def test_all_sizes_are_listed():
    assert sorted(timm.list_models("vmamba2*")) == SIZES


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("vmamba2_nano", 0.1e6, 1e6),
        ("vmamba2_micro", 7_940_788, 7_940_788),
        ("vmamba2_tiny", 38_698_268, 38_698_268),
        ("vmamba2_small", 50e6, 60e6),
        ("vmamba2_base", 90e6, 100e6),
    ],
)
def test_parameter_counts(name, low, high):
    assert low <= count_parameters(timm.create_model(name, device="meta")) <= high


def test_mv_4_pooled_features_without_a_classifier(make_small, image):
    model = make_small(num_classes=0).eval()
    assert isinstance(model.get_classifier(), nn.Identity)
    features = model(image)
    assert features.shape == (2, model.num_features) == (2, model.head_hidden_size)
    torch.testing.assert_close(features, model.forward_features(image).mean((1, 2)))


def test_forward_is_features_then_head(make_small, image):
    model = make_small().eval()
    grid = model.forward_features(image)
    assert grid.shape == (2, 4, 6, model.num_features)
    pooled = model.forward_head(grid, pre_logits=True)
    assert pooled.shape == (2, model.head_hidden_size)
    torch.testing.assert_close(model.get_classifier()(pooled), model(image), rtol=0, atol=0)


def test_reset_classifier_changes_the_head_only(make_small, image):
    model = make_small().eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.reset_classifier(3, "max")
    assert model.num_classes == 3
    assert model(image).shape == (2, 3)
    assert not model.get_classifier().training
    after = model.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], before[name]) for name in before if not name.startswith("head"))
    model.reset_classifier(0)
    torch.testing.assert_close(model(image), model.forward_features(image).amax((1, 2)))
    model.reset_classifier(5, "")
    assert model(image).shape == (2, 4, 6, 5)


def test_reset_classifier_keeps_dtype(make_small):
    model = make_small().bfloat16()
    model.reset_classifier(3)
    assert model.get_classifier().weight.dtype == torch.bfloat16


@pytest.mark.parametrize(("in_chans", "patch_size"), [(1, 4), (5, 2)])
def test_in_chans_and_patch_size(make_small, in_chans, patch_size):
    model = make_small(in_chans=in_chans, patch_size=patch_size)
    assert model(torch.randn(1, in_chans, 16, 16)).shape == (1, 7)
    assert [info["reduction"] for info in model.feature_info] == [patch_size, 2 * patch_size]


def test_features_only_gives_nchw_maps(make_small, image):
    backbone = make_small(features_only=True)
    assert backbone.feature_info.channels() == [16, 32]
    assert backbone.feature_info.reduction() == [4, 8]
    assert [tuple(grid.shape) for grid in backbone(image)] == [(2, 16, 8, 12), (2, 32, 4, 6)]


def test_features_only_works_with_every_size():
    for name in SIZES:
        backbone = timm.create_model(name, features_only=True, device="meta")
        channels = backbone.feature_info.channels()
        assert channels == [info["num_chs"] for info in timm.create_model(name, device="meta").feature_info]


@pytest.mark.parametrize("out_indices", [(0,), (1,), (-1,), (0, 1), 1])
def test_tr_15_features_only_has_no_parameter_without_a_gradient(make_small, image, out_indices):
    backbone = make_small(features_only=True, out_indices=out_indices)
    sum(grid.sum() for grid in backbone(image)).backward()
    assert [name for name, parameter in backbone.named_parameters() if parameter.grad is None] == []


def test_forward_intermediates(make_small, image):
    model = make_small().eval()
    last, grids = model.forward_intermediates(image, norm=True)
    torch.testing.assert_close(last, model.forward_features(image), rtol=0, atol=0)
    torch.testing.assert_close(grids[-1], last.permute(0, 3, 1, 2), rtol=0, atol=0)
    later = []
    model.downsamples[0].register_forward_hook(lambda *_: later.append(1))
    (first,) = model.forward_intermediates(
        image, indices=[0], stop_early=True, intermediates_only=True, output_fmt="NHWC"
    )
    assert not later, "stop_early went on"
    torch.testing.assert_close(first, grids[0].permute(0, 2, 3, 1), rtol=0, atol=0)
    with pytest.raises(ValueError, match=r"stage indices \(\[2\]\) must pick some of the 2 stages"):
        model.forward_intermediates(image, indices=[2])
    with pytest.raises(ValueError, match=r"output_fmt \('NLC'\) must be 'NCHW' or 'NHWC'"):
        model.forward_intermediates(image, output_fmt="NLC")


@pytest.mark.parametrize(("height", "width"), [(1, 1), (3, 70), (32, 32), (33, 47), (57, 64)])
def test_any_input_size(make_small, height, width):
    model = make_small(patch_size=4, features_only=True)
    first, second = model(torch.randn(1, 3, height, width))
    assert first.shape[2:] == (-(-height // 4), -(-width // 4))
    assert second.shape[2:] == (-(-height // 8), -(-width // 8))
    assert second.isfinite().all()


def test_a_side_that_the_patch_does_not_divide_is_filled_with_zeros(make_small):
    model = make_small().eval()
    image = torch.randn(1, 3, 30, 45)
    filled = torch.zeros(1, 3, 32, 48)
    filled[:, :, :30, :45] = image
    torch.testing.assert_close(model(image), model(filled), rtol=0, atol=0)


def test_the_last_pixel_counts(make_small):
    model = make_small().eval()
    image = torch.randn(1, 3, 33, 33, requires_grad=True)
    model(image).sum().backward()
    assert image.grad[0, :, 32, 32].abs().sum() > 0


def test_drop_path_grows_linearly(make_small):
    model = make_small(depths=(2, 3), drop_path_rate=0.2)
    rates = [getattr(block.drop_path, "drop_prob", 0.0) for stage in model.stages for block in stage]
    assert rates == pytest.approx([0, 0.05, 0.1, 0.15, 0.2])
    assert isinstance(make_small(drop_path_rate=0.0).stages[1][1].drop_path, nn.Identity)


def test_drop_rate_acts_before_the_head_in_training_only(make_small, image):
    model = make_small(drop_rate=0.5)
    assert not torch.equal(model(image), model(image))
    model.eval()
    assert torch.equal(model(image), model(image))


def test_grad_checkpointing_gives_the_same_gradients(make_small, image):
    model = make_small()
    model(image).square().sum().backward()
    plain = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    model.zero_grad()
    model.set_grad_checkpointing()
    calls = []
    model.stages[1][0].mixer.in_proj.register_forward_hook(lambda *_: calls.append(1))
    model(image).square().sum().backward()
    assert len(calls) == 2, "the block was not computed again"
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, plain[name], msg=name)


@pytest.mark.parametrize("coarse", [False, True])
def test_group_matcher_orders_parameters_by_depth(make_small, coarse):
    model = make_small()
    layer = group_parameters(model, model.group_matcher(coarse=coarse), reverse=True)
    assert layer.keys() == {name for name, _ in model.named_parameters()}
    in_order = ["patch_embed.weight", "stages.0.0.mixer.A_log", "stages.1.0.ffn.net.0.weight", "head.bias"]
    depths = [layer[name] for name in in_order]
    assert depths == sorted(set(depths))
    assert layer["downsamples.0.conv.weight"] == layer["stages.0.0.norm1.weight"]
    second, third = layer["stages.1.0.norm1.weight"], layer["stages.1.1.norm1.weight"]
    assert (second == third) if coarse else (second < third)
    assert layer["final_norm.weight"] in (third, layer["head.weight"])


def test_layer_decay_scales_the_learning_rate_by_depth(make_small):
    model = make_small()
    groups = param_groups_layer_decay(model, weight_decay=0.05, layer_decay=0.5)
    scale = {id(parameter): group["lr_scale"] for group in groups for parameter in group["params"]}
    assert scale[id(model.head.weight)] == 1.0
    assert scale[id(model.stages[1][1].norm1.weight)] == 0.5
    assert scale[id(model.stages[0][0].norm1.weight)] == 0.125
    assert scale[id(model.patch_embed.weight)] == 0.0625


def test_timms_optimizer_factory_takes_the_model(make_small):
    model = make_small()
    optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.05)
    undecayed = {
        id(p) for group in optimizer.param_groups if group["weight_decay"] == 0 for p in group["params"]
    }
    assert id(model.stages[0][0].mixer.D) in undecayed
    assert id(model.stages[0][0].mixer.in_proj.weight) not in undecayed


@pytest.mark.parametrize("name", SIZES)
def test_pretrained_cfg(name):
    model = timm.create_model(name, device="meta")
    cfg = model.pretrained_cfg
    assert cfg["architecture"] == name
    assert isinstance(model.get_submodule(cfg["first_conv"]), nn.Conv2d)
    assert isinstance(model.get_submodule(cfg["classifier"]), nn.Linear)
    data = resolve_model_data_config(model)
    assert data["input_size"] == ((3, 32, 32) if name == "vmamba2_nano" else (3, 224, 224))
    assert {"crop_pct", "interpolation", "mean", "std"} <= data.keys()


def test_there_are_no_pretrained_weights_yet(make_small):
    with pytest.raises(RuntimeError, match="No pretrained weights exist"):
        make_small(pretrained=True)


def test_every_structural_number_is_an_argument():
    structure = {"patch_size", "dims", "depths", "ngroups", "chunk_sizes", "expand", "headdim", "dstate"}
    rest = {
        "directions",
        "mlp_ratio",
        "drop_rate",
        "drop_path_rate",
        "scan_backend",
        "in_chans",
        "num_classes",
    }
    parameters = inspect.signature(VMamba2.__init__).parameters
    assert structure | rest <= parameters.keys()
    assert all(parameter.kind is not parameter.VAR_KEYWORD for parameter in parameters.values())


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"directions": 3}, r"directions \(3\) must be 1, 2 or 4"),
        ({"headdim": 24}, r"expand \* d_model \(32\) must be divisible by headdim \(24\)"),
        ({"ngroups": (1, 3)}, r"nheads \(4\) must be divisible by ngroups \(3\)"),
        (
            {"dims": (16, 32, 64), "depths": (1, 1, 1)},
            r"ngroups \(1, 2\) must have one entry per stage, as dims has \(3\)",
        ),
        ({"depths": (1,)}, r"depths \(1,\) must have one entry per stage, as dims has \(2\)"),
        ({"depths": (1, 0)}, r"depths \(1, 0\) must all be positive"),
        ({"dims": (), "depths": ()}, r"dims \(\) must name at least one stage"),
        ({"dstate": 0}, r"dstate \(0\) must be positive"),
        ({"chunk_sizes": 0}, r"chunk_size \(0\) must be positive"),
        ({"expand": 0}, r"expand \(0\) must be positive"),
        ({"patch_size": 0}, r"patch_size \(0\) must be at least 1"),
        ({"in_chans": 0}, r"in_chans \(0\) must be at least 1"),
        ({"num_classes": -1}, r"num_classes \(-1\) must be at least 0"),
        ({"mlp_ratio": 0}, r"mlp_ratio \(0\) must be positive"),
        ({"drop_rate": 1.0}, r"drop_rate \(1.0\) must be at least 0 and below 1"),
        ({"drop_path_rate": -0.1}, r"drop_path_rate \(-0.1\) must be at least 0 and below 1"),
        ({"global_pool": "catavgmax"}, r"global_pool \('catavgmax'\) must be 'avg', 'max' or ''"),
        ({"scan_backend": "chunkd"}, r"scan_backend \('chunkd'\) must be one of auto, .*chunked"),
    ],
)
def test_bad_arguments_are_named(make_small, overrides, message):
    arguments = {"ngroups": 1, "chunk_sizes": 16, **overrides} if overrides.get("dims") == () else overrides
    with pytest.raises(ValueError, match=message) as error:
        make_small(**arguments)
    assert "\n" not in str(error.value)


def test_an_unknown_argument_is_an_error(make_small):
    with pytest.raises(TypeError, match="unexpected keyword argument 'dpths'"):
        make_small(dpths=(1, 1))


@pytest.mark.parametrize("shape", [(2, 1, 32, 32), (3, 32, 32), (2, 3, 0, 32), (2, 32, 32, 3)])
def test_a_wrong_image_batch_is_named(make_small, shape):
    model = make_small()
    with pytest.raises(
        ValueError, match=r"the image batch \(.*\) must have shape \(batch, 3, height, width\)"
    ):
        model(torch.zeros(shape))


def test_an_empty_batch(make_small):
    assert make_small()(torch.zeros(0, 3, 32, 32)).shape == (0, 7)


def test_the_model_can_be_copied_and_saved_whole(make_small, image):
    model = make_small().eval()
    expected = model(image)
    assert torch.equal(copy.deepcopy(model)(image), expected)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    assert torch.equal(torch.load(file, weights_only=False)(image), expected)
