"""Ratios between the judged backend and its peers, and whether they reach the bars."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ops_ascend.benchmark.candidates import FORWARD, FORWARD_BACKWARD
from ops_ascend.benchmark.cases import Case
from ops_ascend.benchmark.measure import CaseResult, Measured

PEERS = ("published", "strengthened")
MEMORY, COMPILED = "memory", "against compiled"
# The high-water mark is kept in steps of about a hundred KiB for each thread: a peer's peak below the first
# of these says nothing, and the backend's own counts as the second at least.
TELLING_BYTES, COARSE_BYTES = 4 * 2**20, 2**19


@dataclass(frozen=True)
class Verdict:
    """How many times better the backend is than the best peer in one respect.

    Attributes:
        case: the case's name.
        quantity: FORWARD, FORWARD_BACKWARD, MEMORY or COMPILED.
        ratio: against the best peer of all; above 1 the backend is better.
        peer: that peer.
        cpu_ratio: the same in CPU time, against the peer that needs the least of it.
        published_ratio: against the best peer in a published form.
        published_peer: that one.
        bar: what the ratio has to reach, if anything was set.
    """

    case: str
    quantity: str
    ratio: float
    peer: str
    cpu_ratio: float | None = None
    published_ratio: float | None = None
    published_peer: str | None = None
    bar: float | None = None

    @property
    def passed(self) -> bool | None:
        """Whether the ratio against the best peer of all reaches the bar; None without a bar."""
        return None if self.bar is None else self.ratio >= self.bar


def verdicts(result: CaseResult, backend: str) -> list[Verdict]:
    """All that can be said of a case; a quantity that was not measured on both sides is left out."""
    return list(_verdicts(result, backend))


def _verdicts(result: CaseResult, backend: str) -> Iterator[Verdict]:
    judged = next((m for m in result.measured if m.candidate.name == backend), None)
    if judged is None:
        return
    for quantity, bar in _bars(result.case).items():
        kinds = ("compiled",) if quantity == COMPILED else PEERS
        which = FORWARD if quantity == FORWARD else FORWARD_BACKWARD
        cost = _peak if quantity == MEMORY else _wall
        own = cost(judged, which)
        best = _best(result, kinds, which, cost)
        if own is None or best is None or (quantity == MEMORY and best[1] < TELLING_BYTES):
            continue
        published = None if quantity == COMPILED else _best(result, ("published",), which, cost)
        yield Verdict(
            result.case.name,
            quantity,
            _ratio(best[1], own),
            best[0],
            cpu_ratio=None if quantity == MEMORY else _cpu_ratio(result, judged, kinds, which),
            published_ratio=published and _ratio(published[1], own),
            published_peer=published and published[0],
            bar=bar,
        )


def _bars(case: Case) -> dict[str, float | None]:
    bars = case.bars
    if bars is None:
        return dict.fromkeys((FORWARD, FORWARD_BACKWARD, MEMORY, COMPILED))
    return {
        FORWARD: bars.forward,
        FORWARD_BACKWARD: bars.forward_backward,
        MEMORY: bars.memory,
        COMPILED: bars.compiled,
    }


def _cpu_ratio(result: CaseResult, judged: Measured, kinds: tuple[str, ...], which: str) -> float | None:
    own, best = _cpu(judged, which), _best(result, kinds, which, _cpu)
    return None if own is None or best is None else _ratio(best[1], own)


def _best(
    result: CaseResult,
    kinds: tuple[str, ...],
    which: str,
    cost: Callable[[Measured, str], float | None],
) -> tuple[str, float] | None:
    costs = {m.candidate.name: cost(m, which) for m in result.measured if m.candidate.kind in kinds}
    known = {name: value for name, value in costs.items() if value is not None}
    return min(known.items(), key=lambda item: item[1]) if known else None


def _ratio(theirs: float, own: float) -> float:
    assert own > 0
    return theirs / own


def _wall(measured: Measured, which: str) -> float | None:
    return measured.times[which].wall.median if which in measured.times else None


def _cpu(measured: Measured, which: str) -> float | None:
    return measured.times[which].cpu.median if which in measured.times else None


def _peak(measured: Measured, which: str) -> float | None:
    peak = measured.peaks.get(which)
    return None if peak is None else max(peak, COARSE_BYTES)
