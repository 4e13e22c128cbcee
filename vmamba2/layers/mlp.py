"""The channel mixer of a block."""

import torch
from torch import Tensor, nn


class MLP(nn.Module):
    """Two linear layers with GELU between them, over the last dimension."""

    def __init__(
        self,
        d_model: int,
        hidden: int,
        *,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(d_model, hidden, device=device, dtype=dtype),
            nn.GELU(),
            nn.Linear(hidden, d_model, device=device, dtype=dtype),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Transform (..., d_model)."""
        return self.net(x)
