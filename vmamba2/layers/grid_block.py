"""The block of a network whose tokens are mixed over a grid."""

from typing import Any

import torch
from timm.layers import DropPath
from torch import Tensor, nn

from vmamba2.layers.depthwise_conv import DepthwiseConv2d
from vmamba2.layers.grid_mixer import GridMixer
from vmamba2.layers.mlp import MLP


class GridBlock(nn.Module):
    """Position, tokens, position, channels: four residual branches.

    Args:
        dim: channels of the grid.
        mixer: mixes the tokens.
        mlp_ratio: hidden channels of the MLP / dim.
        drop_path: probability that an image skips the mixer, and the MLP, in training.
        device: where the parameters are made.
        dtype: of the parameters.
    """

    def __init__(
        self,
        dim: int,
        mixer: GridMixer,
        *,
        mlp_ratio: float,
        drop_path: float,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self.cpe1 = DepthwiseConv2d(dim, **factory)
        self.norm1 = nn.LayerNorm(dim, **factory)
        self.mixer = mixer
        self.cpe2 = DepthwiseConv2d(dim, **factory)
        self.norm2 = nn.LayerNorm(dim, **factory)
        self.ffn = MLP(dim, int(dim * mlp_ratio), **factory)
        self.drop_path = DropPath(drop_path) if drop_path > 0 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Transform a grid (B, height, width, dim)."""
        x = x + self.cpe1(x)
        x = x + self.drop_path(self.mixer(self.norm1(x)))
        x = x + self.cpe2(x)
        return x + self.drop_path(self.ffn(self.norm2(x)))
