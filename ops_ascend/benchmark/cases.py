"""The named shapes, their inputs, and the ratios that they have to reach."""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from ops_ascend.errors import Tensors, random_selective, random_ssd


class SSDShape(NamedTuple):
    """Sizes of one ssd_scan."""

    batch: int
    seqlen: int
    nheads: int
    headdim: int
    dstate: int
    chunk_size: int
    ngroups: int


class GridShape(NamedTuple):
    """Sizes of one ssd_cross_scan in four directions."""

    batch: int
    height: int
    width: int
    nheads: int
    headdim: int
    dstate: int
    chunk_size: int
    ngroups: int

    @property
    def seqlen(self) -> int:
        """Tokens of the grid."""
        return self.height * self.width


class SelectiveShape(NamedTuple):
    """Sizes of one selective_scan."""

    batch: int
    dim: int
    seqlen: int
    dstate: int


@dataclass(frozen=True)
class Bars:
    """How many times better than the best peer a compiled CPU backend has to be.

    Attributes:
        forward: the fastest peer's time over its own.
        forward_backward: the same of forward and backward.
        memory: the leanest peer's peak memory beyond the inputs over its own, forward and backward.
        compiled: the time of the einsum form under torch.compile over its own, forward and backward.
    """

    forward: float
    forward_backward: float
    memory: float
    compiled: float | None = None


DIRECTIONS = 4
_OPS = {SSDShape: "ssd_scan", GridShape: "ssd_cross_scan", SelectiveShape: "selective_scan"}


@dataclass(frozen=True)
class Case:
    """One named shape.

    Attributes:
        name: as the command line spells it.
        shape: its sizes.
        suite: the group of cases that it belongs to.
        bars: what it has to reach, if anything was set.
    """

    name: str
    shape: SSDShape | GridShape | SelectiveShape
    suite: str
    bars: Bars | None = None

    @property
    def op(self) -> str:
        """The operator's name."""
        return _OPS[type(self.shape)]

    def tensors(self, dtype: torch.dtype = torch.float32) -> Tensors:
        """Random inputs in the range of a fresh network, the same at every call.

        A sequence has a skip and no gate, as in the published measurements of scans; a grid has both, as in
        the mixer of Vision-Mamba2.
        """
        shape = self.shape
        if isinstance(shape, SelectiveShape):
            tensors = random_selective((shape.batch, shape.dim, shape.seqlen, 1, shape.dstate), dtype)
            del tensors["z"]
            return tensors | {name: tensors[name].squeeze(1) for name in ("B", "C")}
        sizes = (shape.batch, shape.seqlen, shape.nheads, shape.headdim, shape.ngroups, shape.dstate)
        tensors = random_ssd(sizes, dtype)
        del tensors["initial_states"]
        if isinstance(shape, SSDShape):
            del tensors["z"]
            tensors["D"] = tensors["D"][:, 0].contiguous()
        return tensors

    def options(self) -> dict[str, Any]:
        """What the operator and its peers are told beside tensors and the chunk size."""
        if isinstance(self.shape, GridShape):
            return {"height": self.shape.height, "width": self.shape.width, "directions": DIRECTIONS}
        return {}

    def sizes(self) -> str:
        """The sizes with their names, for people."""
        return ", ".join(f"{name} {size}" for name, size in self.shape._asdict().items())


_VISION = Bars(forward=7, forward_backward=6, memory=5, compiled=3)
_WINDOW = Bars(forward=12, forward_backward=15, memory=5)
_LONG = Bars(forward=25, forward_backward=35, memory=5)
CASES: dict[str, Case] = {
    case.name: case
    for case in (
        # batch, seqlen, nheads, headdim, dstate, chunk_size, ngroups
        Case("one_token", SSDShape(1, 1, 2, 64, 64, 64, 1), "small"),
        Case("tiny", SSDShape(1, 128, 2, 64, 64, 64, 1), "small"),
        Case("small", SSDShape(2, 512, 8, 64, 64, 64, 1), "small"),
        # The stages of Vision-Mamba2 tiny at 224 pixels: two images, four directions in the batch.
        Case("v3136", SSDShape(8, 3136, 3, 64, 128, 128, 1), "vision", _VISION),
        Case("v784", SSDShape(8, 784, 6, 64, 128, 128, 2), "vision", _VISION),
        Case("v196", SSDShape(8, 196, 12, 64, 128, 128, 4), "vision", _VISION),
        Case("v49", SSDShape(8, 49, 24, 64, 128, 64, 8), "vision", _VISION),
        # The same stages as the model calls them, directions left to the operator.
        Case("cross_tiny", GridShape(1, 4, 6, 2, 16, 16, 16, 1), "small"),
        Case("cross_56x56", GridShape(2, 56, 56, 3, 64, 128, 128, 1), "cross"),
        Case("cross_28x28", GridShape(2, 28, 28, 6, 64, 128, 128, 2), "cross"),
        Case("cross_14x14", GridShape(2, 14, 14, 12, 64, 128, 128, 4), "cross"),
        Case("cross_7x7", GridShape(2, 7, 7, 24, 64, 128, 64, 8), "cross"),
        # batch, dim, seqlen, dstate: windows of MambaVision, and one long sequence.
        Case("s6_one_token", SelectiveShape(1, 64, 1, 8), "small"),
        Case("s6_tiny", SelectiveShape(1, 64, 32, 8), "small"),
        Case("s6_320x196", SelectiveShape(8, 320, 196, 8), "selective", _WINDOW),
        Case("s6_512x196", SelectiveShape(8, 512, 196, 8), "selective", _WINDOW),
        Case("s6_1024x49", SelectiveShape(8, 1024, 49, 8), "selective", _WINDOW),
        Case("s6_384x3136", SelectiveShape(1, 384, 3136, 16), "selective", _LONG),
    )
}
SUITES = tuple(dict.fromkeys(case.suite for case in CASES.values()))


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """The sentence about a name that there is none of, with the nearest that there is."""
    known = list(known)
    near = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"it must be one of {', '.join(known)}"
    return f"unknown {kind} {name!r}; {hint}"


def choose(names: Iterable[str], suites: Iterable[str]) -> list[Case]:
    """The cases of these names and suites, all of them when neither is given.

    Raises:
        ValueError: there is no case or suite of a name.
    """
    names, suites = list(names), list(suites)
    for kind, given, known in (("case", names, CASES), ("suite", suites, SUITES)):
        for name in given:
            if name not in known:
                raise ValueError(unknown(kind, name, known))
    if not names and not suites:
        return list(CASES.values())
    return [case for case in CASES.values() if case.name in names or case.suite in suites]
