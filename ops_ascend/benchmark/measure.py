"""One case from its inputs to its figures: check, time, and weigh every candidate."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from ops_ascend.benchmark import accuracy, memory, timing
from ops_ascend.benchmark.candidates import (
    FORWARD_BACKWARD,
    WORKS,
    Candidate,
    Selection,
    output_gradient,
    work,
)
from ops_ascend.benchmark.cases import Case, GridShape
from ops_ascend.benchmark.timing import YARDSTICK, Samples, Summary
from ops_ascend.errors import TensorError, Tensors

# Only from this length on is a quadratic backward worth predicting.
PREDICTED_FROM = 512


class Budget:
    """Seconds that a program may take, counted from here."""

    def __init__(self, seconds: float | None) -> None:
        self._end = math.inf if seconds is None else time.perf_counter() + seconds

    def left_s(self) -> float:
        """What is left of it; infinite without a limit."""
        return self._end - time.perf_counter()


@dataclass(frozen=True)
class Timed:
    """One work of one candidate, in seconds."""

    wall: Summary
    cpu: Summary
    samples: int

    @classmethod
    def of(cls, samples: Samples) -> "Timed":
        """Summarise."""
        return cls(Summary.of(samples.wall), Summary.of(samples.cpu), len(samples.wall))


@dataclass
class Measured:
    """What is known of one candidate on one case; a work that was not measured is missing."""

    candidate: Candidate
    error: TensorError
    times: dict[str, Timed] = field(default_factory=dict)
    peaks: dict[str, int] = field(default_factory=dict)


@dataclass
class CaseResult:
    """One case.

    Attributes:
        case: the shape.
        exact: the backend whose float64 result the errors refer to.
        measured: the candidates that compute it.
        notes: a sentence for everything that was left out, and why.
        yardstick: the matrix product timed among them, by work.
        crowding: how much longer it took than its CPU time explains, the worse of the works.
    """

    case: Case
    exact: str
    measured: list[Measured] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    yardstick: dict[str, Timed] = field(default_factory=dict)
    crowding: float = 1.0


@dataclass(frozen=True)
class Settings:
    """How a case is measured.

    Attributes:
        selection: the candidates.
        repeat: rounds of timing.
        threads: of PyTorch.
        memory: whether to measure peaks.
        call_limit_s: a call that would take longer is left out.
    """

    selection: Selection
    repeat: int
    threads: int
    memory: bool = True
    call_limit_s: float = 20.0


def measure_case(case: Case, settings: Settings, budget: Budget) -> CaseResult:
    """Measure a case; what the budget does not allow is left out with a note."""
    result = CaseResult(case, accuracy.exact_backend(case))
    if budget.left_s() <= 0:
        result.notes.append("skipped: the budget is spent")
        return result
    tensors, dy = case.tensors(), output_gradient(case)
    _check(result, settings, budget, tensors, dy)
    for which in WORKS:
        _time(result, which, settings, budget, tensors, dy)
    del tensors, dy
    if settings.memory:
        _weigh(result, settings, budget)
    return result


def _check(result: CaseResult, settings: Settings, budget: Budget, tensors: Tensors, dy: Tensor) -> None:
    case, notes = result.case, result.notes
    exact = accuracy.exact_results(case, tensors, dy)
    skipped = []
    for candidate in settings.selection.candidates(case):
        limit = min(settings.call_limit_s, budget.left_s())
        if limit <= 0:
            skipped.append(candidate.name)
            continue
        expected = predicted_s(candidate, case)
        if expected > limit:
            notes.append(
                f"{candidate.name} skipped: a forward and backward would take about {expected:.0f} s "
                f"(limit {limit:.0f} s)"
            )
            continue
        error = accuracy.worst_error(candidate, tensors, dy, exact)
        if accuracy.is_wrong(error):
            notes.append(f"{candidate.name} is WRONG: {error.name} has an error of {error.relative_rms:.1e}")
            continue
        result.measured.append(Measured(candidate, error))
    notes += _budget_notes("", skipped)


def _budget_notes(what: str, skipped: list[str]) -> list[str]:
    names = ", ".join(dict.fromkeys(skipped))
    return [f"{what}{names} skipped: the budget is spent"] if skipped else []


def predicted_s(candidate: Candidate, case: Case) -> float:
    """Seconds of a forward and backward, from two shorter ones; 0 when it is linear in the length."""
    shape = case.shape
    if candidate.backward_growth == 1 or isinstance(shape, GridShape) or shape.seqlen < PREDICTED_FROM:
        return 0.0
    short = shape.seqlen // 8
    once, twice = (
        _call_s(candidate, replace(case, shape=shape._replace(seqlen=n))) for n in (short, 2 * short)
    )
    # t(L) = a L + b L^2 through both.
    quadratic = max(0.0, (twice - 2 * once) / 2)
    linear = twice / 2 - 2 * quadratic
    return 8 * linear + 64 * quadratic


def _call_s(candidate: Candidate, case: Case) -> float:
    call = work(candidate, FORWARD_BACKWARD, case.tensors(), output_gradient(case))
    call()
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def _time(
    result: CaseResult, which: str, settings: Settings, budget: Budget, tensors: Tensors, dy: Tensor
) -> None:
    chosen = {m.candidate.name: m for m in result.measured if which in m.candidate.works}
    if not chosen:
        return
    if budget.left_s() <= 0:
        result.notes.append(f"{which} skipped: the budget is spent")
        return
    calls: dict[str, Callable[[], object]] = {
        name: work(m.candidate, which, tensors, dy) for name, m in chosen.items()
    }
    calls[YARDSTICK] = timing.yardstick()
    always = {name for name, m in chosen.items() if m.candidate.kind in ("backend", "compiled")}
    samples = timing.interleave(
        calls, repeat=settings.repeat, keep=frozenset({*always, YARDSTICK}), left_s=budget.left_s
    )
    for name, measured in chosen.items():
        measured.times[which] = Timed.of(samples[name])
    result.yardstick[which] = Timed.of(samples[YARDSTICK])
    result.crowding = max(result.crowding, timing.crowding(samples[YARDSTICK], torch.get_num_threads()))
    rounds = len(samples[YARDSTICK].wall)
    if rounds < settings.repeat:
        result.notes.append(f"{which}: {rounds} of {settings.repeat} rounds fit into the budget")


def _weigh(result: CaseResult, settings: Settings, budget: Budget) -> None:
    skipped = []
    for measured in result.measured:
        candidate = measured.candidate
        if candidate.kind == "compiled":
            continue
        for which in candidate.works:
            if budget.left_s() <= 0:
                skipped.append(candidate.name)
                continue
            try:
                measured.peaks[which] = memory.peak_bytes(
                    result.case, settings.selection, candidate.name, which, settings.threads
                )
            except memory.NotMeasuredError as error:
                result.notes.append(f"memory of {candidate.name} {which} not measured: {error}")
    result.notes += _budget_notes("memory of ", skipped)
