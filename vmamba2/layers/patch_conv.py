"""Non-overlapping patches of an image or a grid, of any size."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class PatchConv2d(nn.Conv2d):
    """Project every patch x patch square to one token: a convolution whose stride is its kernel.

    A side that is not a multiple of the patch is filled up with zeros at the right or the bottom, so that
    no pixel is dropped and every image has at least one token: `ceil(side / patch)` tokens per side.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        patch: int,
        *,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_channels, out_channels, patch, stride=patch, device=device, dtype=dtype)

    def forward(self, image: Tensor) -> Tensor:
        """Turn (B, C, height, width) into tokens (B, ceil(height / patch), ceil(width / patch), channels)."""
        patch = self.stride[0]
        bottom, right = -image.shape[2] % patch, -image.shape[3] % patch
        if bottom or right:
            image = F.pad(image, (0, right, 0, bottom))
        # Tokens are contiguous from here on; a no-op where the convolution kept the channels last.
        return super().forward(image).permute(0, 2, 3, 1).contiguous()
