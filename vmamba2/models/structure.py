"""The numbers of a hierarchical network: checked, and spelled out stage by stage."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class StagePlan:
    """One stage: its channels, its mixers' groups and chunk size, and each block's drop path."""

    dim: int
    ngroups: int
    chunk_size: int
    drop_paths: tuple[float, ...]


def plan_stages(
    op: str,
    dims: Sequence[int],
    depths: Sequence[int],
    ngroups: int | Sequence[int],
    chunk_sizes: int | Sequence[int],
    drop_path_rate: float,
) -> list[StagePlan]:
    """Check the numbers of all stages together; drop path grows linearly from 0 to its rate."""
    if not len(dims):
        raise ValueError(f"{op}: dims () must name at least one stage")
    for name, sizes in (("dims", dims), ("depths", _per_stage(op, "depths", depths, len(dims)))):
        if min(sizes) < 1:
            raise ValueError(f"{op}: {name} {tuple(sizes)} must all be positive")
    check_rate(op, "drop_path_rate", drop_path_rate)
    blocks = sum(depths)
    rates = [drop_path_rate * block / max(blocks - 1, 1) for block in range(blocks)]
    ends = [sum(depths[: stage + 1]) for stage in range(len(dims))]
    return [
        StagePlan(dim, groups, chunk_size, tuple(rates[end - depth : end]))
        for dim, depth, groups, chunk_size, end in zip(
            dims,
            depths,
            _per_stage(op, "ngroups", ngroups, len(dims)),
            _per_stage(op, "chunk_sizes", chunk_sizes, len(dims)),
            ends,
            strict=True,
        )
    ]


def check_at_least(op: str, lowest: int, **values: int) -> None:
    """Raise ValueError unless every value is at least `lowest`."""
    for name, value in values.items():
        if value < lowest:
            raise ValueError(f"{op}: {name} ({value}) must be at least {lowest}")


def check_rate(op: str, name: str, rate: float) -> None:
    """Raise ValueError unless a dropout rate leaves something."""
    if not 0 <= rate < 1:
        raise ValueError(f"{op}: {name} ({rate}) must be at least 0 and below 1")


def _per_stage(op: str, name: str, values: int | Sequence[int], stages: int) -> tuple[int, ...]:
    per_stage = (values,) * stages if isinstance(values, int) else tuple(values)
    if len(per_stage) != stages:
        raise ValueError(f"{op}: {name} {per_stage} must have one entry per stage, as dims has ({stages})")
    return per_stage
