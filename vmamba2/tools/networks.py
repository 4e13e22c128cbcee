"""Networks with another operator in the place of ours: what a training step is compared with."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import timm
from torch import Tensor, nn

import ops_ascend
from ops_ascend.benchmark.cases import unknown
from ops_ascend.benchmark.ssd_peers import each_direction, einsum
from ops_ascend.spec import NO_LIMIT

Operator = Callable[..., Tensor]


@dataclass(frozen=True)
class Bars:
    """How many times the best peer's time and peak memory have to be those of the compiled backend."""

    time: float
    memory: float


@dataclass(frozen=True)
class Family:
    """Models whose mixers call one operator.

    Attributes:
        prefix: how their names begin.
        operator: its name in ops_ascend.
        peers: functions of the operator's signature, by name: the operator as people use it today.
    """

    prefix: str
    operator: str
    peers: dict[str, Operator]


def _once_per_direction(chunk_size: int | None) -> Operator:
    """ssd_cross_scan as one einsum scan for each direction, gate and skip in each, gradients by autograd.

    Args:
        chunk_size: of the scans; None for the caller's own.
    """

    def ssd_cross_scan(
        *tensors: Tensor,
        height: int,
        width: int,
        directions: int,
        chunk_size: int,
        dt_softplus: bool,
        dt_limit: tuple[float, float] = NO_LIMIT,
        backend: str = "auto",
        **optional: Tensor | None,
    ) -> Tensor:
        assert dt_softplus, "the peers always apply softplus"
        assert dt_limit == NO_LIMIT, "the peers have no limit on steps"
        scan = each_direction(partial(einsum, chunk_size=chosen or chunk_size))
        return scan(*tensors, height=height, width=width, directions=directions, **optional)

    chosen = chunk_size
    return ssd_cross_scan


FAMILIES = (
    Family(
        "vmamba2_",
        "ssd_cross_scan",
        {"einsum": _once_per_direction(None), "einsum_64": _once_per_direction(64)},
    ),
)
# By model, pixels of a side, batch.
BARS = {("vmamba2_tiny", 224, 4): Bars(time=4, memory=4)}


def family_of(model: str) -> Family:
    """The family that a model belongs to.

    Raises:
        ValueError: there is no such model, or no peer for its operator.
    """
    known = [name for family in FAMILIES for name in timm.list_models(f"{family.prefix}*")]
    if model not in known:
        raise ValueError(unknown("model", model, known))
    return next(family for family in FAMILIES if model.startswith(family.prefix))


@contextmanager
def operator_replaced(name: str, function: Operator) -> Iterator[None]:
    """Let every mixer call another function in the place of an operator of ops_ascend."""
    original = getattr(ops_ascend, name)
    setattr(ops_ascend, name, function)
    try:
        yield
    finally:
        setattr(ops_ascend, name, original)


@contextmanager
def scanning_with(model: nn.Module, backend: str) -> Iterator[None]:
    """Let every mixer of a model use another backend."""
    mixers: list[Any] = [module for module in model.modules() if hasattr(module, "scan_backend")]
    before = [mixer.scan_backend for mixer in mixers]
    try:
        for mixer in mixers:
            mixer.scan_backend = backend
        yield
    finally:
        for mixer, name in zip(mixers, before, strict=True):
            mixer.scan_backend = name


@contextmanager
def variant(model: nn.Module, family: Family, name: str) -> Iterator[None]:
    """Let a model scan with the peer of a name, or the backend."""
    with ExitStack() as stack:
        if name in family.peers:
            stack.enter_context(operator_replaced(family.operator, family.peers[name]))
        else:
            stack.enter_context(scanning_with(model, name))
        yield
