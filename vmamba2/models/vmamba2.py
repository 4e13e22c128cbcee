"""Vision-Mamba2: a hierarchical network whose tokens are mixed by Mamba-2 scans over the grid.

    image -> patch_embed -> stage -> downsample -> stage ... -> final_norm -> mean over tokens -> head
    block:  x += cpe1(x);  x += mixer(norm1(x));  x += cpe2(x);  x += ffn(norm2(x))

Grids are (B, height, width, C) inside; feature maps for other networks are (B, C, height, width).
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from timm.data.constants import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from timm.models import (
    build_model_with_cfg,
    checkpoint,
    generate_default_cfgs,
    register_model,
)
from torch import Tensor, nn

from vmamba2.layers import Downsample, GridBlock, GridMixer, PatchConv2d
from vmamba2.models.structure import StagePlan, check_at_least, check_rate, plan_stages

GLOBAL_POOLS = ("avg", "max", "")


class VMamba2(nn.Module):
    """Vision-Mamba2; takes images of any height and width.

    A side that a convolution's stride does not divide is filled up with zeros at the right or the bottom:
    stage i has ceil(side / reduction) tokens per side.

    Args:
        in_chans: channels of the image.
        num_classes: outputs of the head; 0 returns the pooled features.
        global_pool: "avg", "max", or "" for a head on every token.
        patch_size: pixels per side of a token of the first stage.
        dims: channels of each stage.
        depths: blocks of each stage.
        ngroups: groups of the mixers, one number or one per stage.
        chunk_sizes: chunk size of the scans, one number or one per stage.
        expand: d_inner / dim of the mixers.
        headdim: channels per head of the mixers.
        dstate: state per channel of the mixers.
        directions: 1, 2 or 4 scan orders over the grid.
        mlp_ratio: hidden channels of the MLP / dim.
        drop_rate: dropout before the head.
        drop_path_rate: stochastic depth of the last block; grows linearly from 0 at the first.
        scan_backend: a name of `ops_ascend.backends()`, or "auto".
        device: where the parameters are made.
        dtype: of every parameter but A_log, dt_bias and D, which are float32.
    """

    output_fmt = "NHWC"

    def __init__(
        self,
        *,
        in_chans: int = 3,
        num_classes: int = 1000,
        global_pool: str = "avg",
        patch_size: int = 4,
        dims: Sequence[int] = (96, 192, 384, 768),
        depths: Sequence[int] = (2, 2, 6, 2),
        ngroups: int | Sequence[int] = (1, 2, 4, 8),
        chunk_sizes: int | Sequence[int] = (128, 128, 128, 64),
        expand: int = 2,
        headdim: int = 64,
        dstate: int = 128,
        directions: int = 4,
        mlp_ratio: float = 4.0,
        drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
        scan_backend: str = "auto",
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        plans = plan_stages("VMamba2", dims, depths, ngroups, chunk_sizes, drop_path_rate)
        _check_numbers(in_chans, patch_size, num_classes, mlp_ratio, drop_rate)
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        make_mixer = partial(
            GridMixer,
            expand=expand,
            headdim=headdim,
            dstate=dstate,
            directions=directions,
            scan_backend=scan_backend,
            **factory,
        )
        self.in_chans, self.num_classes = in_chans, num_classes
        self.global_pool = _checked_pool(global_pool)
        self.num_features = self.head_hidden_size = dims[-1]
        self.grad_checkpointing = False
        self.feature_info = _feature_info(dims, patch_size)

        self.patch_embed = PatchConv2d(in_chans, dims[0], patch_size, **factory)
        self.stages = nn.ModuleList(_make_stage(plan, make_mixer, mlp_ratio, factory) for plan in plans)
        self.downsamples = nn.ModuleList(Downsample(*sides, **factory) for sides in pairwise(dims))
        self.final_norm: nn.Module = nn.LayerNorm(dims[-1], **factory)
        self.head_drop = nn.Dropout(drop_rate)
        self.head = _make_head(self.num_features, num_classes, **factory)
        self.init_weights()

    def init_weights(self) -> None:
        """Give every parameter its initial value; call it after `to_empty` of a model made on meta."""
        for module in self.modules():
            reset = getattr(module, "reset_parameters", None)
            if reset is not None:
                reset()
        _init_head(self.head)

    def no_weight_decay(self) -> set[str]:
        """Names of the parameters that an optimizer should not shrink: A_log, D, dt_bias of every mixer."""
        return {
            f"{name}.{parameter}"
            for name, module in self.named_modules()
            if isinstance(module, GridMixer)
            for parameter in ("A_log", "D", "dt_bias")
        }

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """Patterns that order parameters by depth, per block or (coarse) per stage, for layer decay."""
        # timm joins a group that ends in 99999 to the one before it.
        with_previous = (99999,)
        blocks = (r"^(?:stages|downsamples)\.(\d+)", None) if coarse else (r"^stages\.(\d+)\.(\d+)", None)
        return {
            "stem": r"^patch_embed",
            "blocks": [blocks, (r"^downsamples\.(\d+)", with_previous), (r"^final_norm", with_previous)],
        }

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Keep only each block's input for backward and compute the rest again."""
        self.grad_checkpointing = enable

    def get_classifier(self) -> nn.Module:
        """The last layer; nn.Identity when num_classes is 0."""
        return self.head

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """Replace the head by a fresh one; 0 classes leave the pooled features."""
        check_at_least("VMamba2", 0, num_classes=num_classes)
        if global_pool is not None:
            self.global_pool = _checked_pool(global_pool)
        self.num_classes = num_classes
        like = self.patch_embed.weight
        head = _make_head(self.num_features, num_classes, device=like.device, dtype=like.dtype)
        self.head = head.train(self.training)

    def forward_features(self, x: Tensor) -> Tensor:
        """Compute the normalised last grid, (B, height, width, num_features)."""
        x = self._embed(x)
        for stage in range(len(self.stages)):
            x = self._run_stage(stage, x)
        return self.final_norm(x)

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """Pool a grid and classify it; `pre_logits` stops before the classifier."""
        if self.global_pool == "avg":
            x = x.mean(dim=(1, 2))
        elif self.global_pool == "max":
            x = x.amax(dim=(1, 2))
        x = self.head_drop(x)
        return x if pre_logits else self.head(x)

    def forward(self, x: Tensor) -> Tensor:
        """Classify images (B, in_chans, height, width)."""
        return self.forward_head(self.forward_features(x))

    def forward_intermediates(
        self,
        x: Tensor,
        indices: int | Sequence[int] | None = None,
        norm: bool = False,
        stop_early: bool = False,
        output_fmt: str = "NCHW",
        intermediates_only: bool = False,
    ) -> list[Tensor] | tuple[Tensor, list[Tensor]]:
        """Collect the grids at the end of stages.

        Args:
            x: images (B, in_chans, height, width).
            indices: the stages; a number n means the last n, None all.
            norm: apply final_norm to the last stage's grid.
            stop_early: leave out stages after the last index.
            output_fmt: "NCHW" or "NHWC".
            intermediates_only: return the list alone, not (last grid, list).
        """
        if output_fmt not in ("NCHW", "NHWC"):
            raise ValueError(f"forward_intermediates: output_fmt ({output_fmt!r}) must be 'NCHW' or 'NHWC'")
        last = len(self.stages) - 1
        take = self._take_stages(indices)
        deepest = max(take)
        intermediates = []
        x = self._embed(x)
        for stage in range((deepest if stop_early else last) + 1):
            x = self._run_stage(stage, x)
            if stage in take:
                grid = self.final_norm(x) if norm and stage == last else x
                intermediates.append(grid.permute(0, 3, 1, 2) if output_fmt == "NCHW" else grid)
        if intermediates_only:
            return intermediates
        return (self.final_norm(x) if stage == last else x), intermediates

    def prune_intermediate_layers(
        self, indices: int | Sequence[int] = 1, prune_norm: bool = False, prune_head: bool = True
    ) -> list[int]:
        """Drop what the stages at `indices` do not need, so that no parameter goes without a gradient."""
        take = self._take_stages(indices)
        deepest = max(take)
        shortened = deepest < len(self.stages) - 1
        self.stages = self.stages[: deepest + 1]
        self.downsamples = self.downsamples[:deepest]
        self.num_features = self.head_hidden_size = self.feature_info[deepest]["num_chs"]
        if prune_norm or shortened:
            self.final_norm = nn.Identity()
        if prune_head or shortened:
            self.reset_classifier(0, "")
        return take

    def _take_stages(self, indices: int | Sequence[int] | None) -> list[int]:
        stages = len(self.stages)
        if indices is None:
            return list(range(stages))
        chosen = range(-indices, 0) if isinstance(indices, int) else indices
        if not len(chosen) or min(chosen) < -stages or max(chosen) >= stages:
            raise ValueError(f"VMamba2: stage indices ({indices}) must pick some of the {stages} stages")
        return [index % stages for index in chosen]

    def _embed(self, x: Tensor) -> Tensor:
        if x.dim() != 4 or x.shape[1] != self.in_chans or 0 in x.shape[2:]:
            wanted = f"(batch, {self.in_chans}, height, width)"
            raise ValueError(f"VMamba2: the image batch {tuple(x.shape)} must have shape {wanted}")
        return self.patch_embed(x)

    def _run_stage(self, stage: int, x: Tensor) -> Tensor:
        if stage:
            x = self.downsamples[stage - 1](x)
        for block in self.stages[stage].children():
            x = checkpoint(block, x) if self.grad_checkpointing and torch.is_grad_enabled() else block(x)
        return x


def _make_head(num_features: int, num_classes: int, **factory: Any) -> nn.Module:
    head = nn.Linear(num_features, num_classes, **factory) if num_classes else nn.Identity()
    _init_head(head)
    return head


def _init_head(head: nn.Module) -> None:
    if isinstance(head, nn.Linear):
        # All classes start out about equally likely.
        nn.init.trunc_normal_(head.weight, std=0.02)
        nn.init.zeros_(head.bias)


def _make_stage(
    plan: StagePlan, make_mixer: Callable[..., GridMixer], mlp_ratio: float, factory: dict[str, Any]
) -> nn.Sequential:
    blocks = []
    for drop_path in plan.drop_paths:
        mixer = make_mixer(plan.dim, ngroups=plan.ngroups, chunk_size=plan.chunk_size)
        blocks.append(GridBlock(plan.dim, mixer, mlp_ratio=mlp_ratio, drop_path=drop_path, **factory))
    return nn.Sequential(*blocks)


def _feature_info(dims: Sequence[int], patch_size: int) -> list[dict[str, Any]]:
    """What timm wants to know of the map at the end of each stage."""
    return [
        {"num_chs": dim, "reduction": patch_size * 2**stage, "module": f"stages.{stage}"}
        for stage, dim in enumerate(dims)
    ]


def _check_numbers(
    in_chans: int, patch_size: int, num_classes: int, mlp_ratio: float, drop_rate: float
) -> None:
    check_at_least("VMamba2", 1, in_chans=in_chans, patch_size=patch_size)
    check_at_least("VMamba2", 0, num_classes=num_classes)
    check_rate("VMamba2", "drop_rate", drop_rate)
    if mlp_ratio <= 0:
        raise ValueError(f"VMamba2: mlp_ratio ({mlp_ratio}) must be positive")


def _checked_pool(global_pool: str) -> str:
    if global_pool not in GLOBAL_POOLS:
        raise ValueError(f"VMamba2: global_pool ({global_pool!r}) must be 'avg', 'max' or ''")
    return global_pool


def _cfg(**overrides: Any) -> dict[str, Any]:
    return {
        "input_size": (3, 224, 224),
        "crop_pct": 0.9,
        "interpolation": "bicubic",
        "mean": IMAGENET_DEFAULT_MEAN,
        "std": IMAGENET_DEFAULT_STD,
        "num_classes": 1000,
        "first_conv": "patch_embed",
        "classifier": "head",
        **overrides,
    }


default_cfgs = generate_default_cfgs(
    {
        "vmamba2_nano": _cfg(input_size=(3, 32, 32), crop_pct=1.0),
        "vmamba2_micro": _cfg(),
        "vmamba2_tiny": _cfg(),
        "vmamba2_small": _cfg(),
        "vmamba2_base": _cfg(),
    }
)


def _create(variant: str, pretrained: bool, sizes: dict[str, Any], kwargs: dict[str, Any]) -> nn.Module:
    arguments = {**sizes, **kwargs}
    out_indices = arguments.pop("out_indices", tuple(range(len(arguments["dims"]))))
    return build_model_with_cfg(
        VMamba2,
        variant,
        pretrained,
        feature_cfg={"out_indices": out_indices, "feature_cls": "getter"},
        **arguments,
    )


@register_model
def vmamba2_nano(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """For small images and for trying things out on a CPU."""
    sizes = {
        "dims": (32, 64, 128),
        "depths": (1, 1, 1),
        "ngroups": 1,
        "chunk_sizes": 32,
        "headdim": 32,
        "dstate": 16,
        "mlp_ratio": 2.0,
    }
    return _create("vmamba2_nano", pretrained, sizes, kwargs)


@register_model
def vmamba2_micro(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """The smallest network with tiny's layout."""
    sizes = {"dims": (64, 128, 256, 512), "depths": (1, 1, 2, 1), "ngroups": (1, 1, 2, 4)}
    return _create("vmamba2_micro", pretrained, sizes, kwargs)


@register_model
def vmamba2_tiny(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """The defaults of VMamba2."""
    sizes = {"dims": (96, 192, 384, 768), "depths": (2, 2, 6, 2)}
    return _create("vmamba2_tiny", pretrained, sizes, kwargs)


@register_model
def vmamba2_small(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """Tiny with a deeper third stage."""
    sizes = {"dims": (96, 192, 384, 768), "depths": (2, 2, 13, 2)}
    return _create("vmamba2_small", pretrained, sizes, kwargs)


@register_model
def vmamba2_base(pretrained: bool = False, **kwargs: Any) -> nn.Module:
    """Wider by a third, with a deeper third stage."""
    sizes = {"dims": (128, 256, 512, 1024), "depths": (2, 2, 12, 2)}
    return _create("vmamba2_base", pretrained, sizes, kwargs)
