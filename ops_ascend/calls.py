"""Calls and gradients as the backends see them: every argument of an operator, already validated."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


@dataclass(frozen=True)
class Request:
    """What of a call decides which backend can run it.

    Attributes:
        op: the operator's name.
        device_type: of its tensors.
        dtype: of x, B, C and z, or of u.
        headdim: P; 1 in selective_scan.
        dstate: N.
        gradients: whether a backward may follow.
    """

    op: str
    device_type: str
    dtype: torch.dtype
    headdim: int
    dstate: int
    gradients: bool


@dataclass(frozen=True)
class SSDCall:
    """The arguments of ssd_scan; see ops_ascend.ssd_scan for shapes."""

    x: Tensor
    dt: Tensor
    A: Tensor
    B: Tensor
    C: Tensor
    D: Tensor | None
    z: Tensor | None
    dt_bias: Tensor | None
    initial_states: Tensor | None
    seq_idx: Tensor | None
    chunk_size: int
    dt_softplus: bool
    dt_limit: tuple[float, float]

    def states_shape(self) -> tuple[int, ...]:
        """(batch, nheads, headdim, dstate)."""
        batch, _, nheads, headdim = self.x.shape
        return batch, nheads, headdim, self.B.shape[3]


@dataclass(frozen=True)
class CrossCall(SSDCall):
    """The arguments of ssd_cross_scan; initial_states and seq_idx are None."""

    height: int
    width: int
    directions: int


@dataclass(frozen=True)
class SelectiveCall:
    """The arguments of selective_scan; B and C always have their group axis, (B, G, N, L)."""

    u: Tensor
    delta: Tensor
    A: Tensor
    B: Tensor
    C: Tensor
    D: Tensor | None
    z: Tensor | None
    delta_bias: Tensor | None
    delta_softplus: bool

    def states_shape(self) -> tuple[int, ...]:
        """(batch, dim, dstate)."""
        return self.u.shape[0], *self.A.shape


class SSDGradients(NamedTuple):
    """Gradients of an SSDCall; None for a tensor that was not given."""

    x: Tensor
    dt: Tensor
    A: Tensor
    B: Tensor
    C: Tensor
    D: Tensor | None
    z: Tensor | None
    dt_bias: Tensor | None
    initial_states: Tensor | None


class SelectiveGradients(NamedTuple):
    """Gradients of a SelectiveCall; None for a tensor that was not given."""

    u: Tensor
    delta: Tensor
    A: Tensor
    B: Tensor
    C: Tensor
    D: Tensor | None
    z: Tensor | None
    delta_bias: Tensor | None
