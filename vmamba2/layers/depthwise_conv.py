"""A depthwise convolution over a grid of tokens."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class DepthwiseConv2d(nn.Conv2d):
    """Mix each channel with its 3x3 neighbours; the grid keeps its size.

    Added to the residual stream it tells tokens where they are, borders included, at any image size.
    """

    def __init__(
        self, channels: int, *, device: torch.device | None = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__(channels, channels, 3, padding=1, groups=channels, device=device, dtype=dtype)

    def forward(self, grid: Tensor) -> Tensor:
        """Convolve (B, height, width, C); strided views are read as they are."""
        # Channels last in, channels last out: both permutes are views.
        y = F.conv2d(grid.permute(0, 3, 1, 2), self.weight, self.bias, padding=1, groups=self.groups)
        return y.permute(0, 2, 3, 1)
