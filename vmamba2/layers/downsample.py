"""From one stage of a hierarchical network to the next."""

import torch
from torch import Tensor, nn

from vmamba2.layers.patch_conv import PatchConv2d


class Downsample(nn.Module):
    """Halve both sides of a grid, rounded up, and change its channels."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.conv = PatchConv2d(in_channels, out_channels, 2, device=device, dtype=dtype)
        self.norm = nn.LayerNorm(out_channels, device=device, dtype=dtype)

    def forward(self, grid: Tensor) -> Tensor:
        """Turn (B, height, width, C) into (B, ceil(height / 2), ceil(width / 2), C')."""
        return self.norm(self.conv(grid.permute(0, 3, 1, 2)))
