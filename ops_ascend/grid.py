"""The orders in which a grid of tokens is scanned."""

from functools import lru_cache

import torch
from torch import Tensor


@lru_cache(maxsize=64)
def grid_orders(height: int, width: int, directions: int, device: torch.device) -> Tensor:
    """Token indices of each direction, (directions, height * width), int64.

    Direction 0 goes along the rows, 1 backward along the rows, 2 along the columns, 3 backward along the
    columns. `tokens[:, orders[d]]` are the tokens in the order in which direction d reads them.
    """
    # Cached tables outlive the caller's mode, and an inference tensor could not be saved for backward.
    with torch.inference_mode(False):
        rows = torch.arange(height * width, device=device)
        columns = rows.view(height, width).t().reshape(-1)
        orders = [rows, rows.flip(0), columns, columns.flip(0)]
        return torch.stack(orders[:directions])


@lru_cache(maxsize=64)
def grid_positions(height: int, width: int, directions: int, device: torch.device) -> Tensor:
    """The inverse of grid_orders: where each direction reads a token, (directions, height * width)."""
    with torch.inference_mode(False):
        return grid_orders(height, width, directions, device).argsort(dim=1)


def reorder(tokens: Tensor, orders: Tensor) -> Tensor:
    """Copy tokens (B, L, ...) into every order, (B * directions, L, ...)."""
    directions, seqlen = orders.shape
    gathered = tokens.index_select(1, orders.reshape(-1))
    return gathered.unflatten(1, (directions, seqlen)).flatten(0, 1)


def repeat(tokens: Tensor, directions: int) -> Tensor:
    """Repeat tokens (B, L, ...) that all directions share, (B * directions, L, ...)."""
    return tokens.unsqueeze(1).expand(-1, directions, *tokens.shape[1:]).flatten(0, 1)


def sum_directions(scanned: Tensor, positions: Tensor) -> Tensor:
    """Bring (B * directions, L, ...) back to the grid and add the directions up, (B, L, ...)."""
    directions = positions.shape[0]
    stacked = scanned.unflatten(0, (-1, directions))
    total = stacked[:, 0].index_select(1, positions[0])
    for direction in range(1, directions):
        total += stacked[:, direction].index_select(1, positions[direction])
    return total
