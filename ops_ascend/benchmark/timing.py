"""Interleaved timing: every candidate in turn, round after round, so that all meet the same machine.

A turn is a sample of calls in a row, as in training and in timeit. Where a call is short, one that is not
counted goes ahead: it brings back the caches and the threads that the neighbour before it has used otherwise.

A sample is wall time and the CPU time of the whole process. On a machine that others use too, wall time
counts their work as well. CPU time does not, but adds up the threads, those included that spin while they
wait. A matrix product of fixed size runs in every round as a yardstick: while nobody else computes, its CPU
time is its wall time times the threads.
"""

import gc
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

YARDSTICK = "sgemm"
YARDSTICK_SIZE = 1024
# A sample shorter than this is a loop over calls.
SHORTEST_SAMPLE_S = 20e-3
# A call longer than this needs none ahead of it.
LONG_CALL_S = 0.25
# After this many rounds what is slower than SLOW times the fastest of its group is not run again.
FULL_ROUNDS = 2
SLOW = 2.0
# From here on the yardstick did not have its cores to itself.
BUSY = 1.25


@dataclass(frozen=True)
class Summary:
    """Median and quartiles of samples, in seconds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, samples: list[float]) -> "Summary":
        """Summarise at least one sample."""
        if len(samples) == 1:
            return cls(samples[0], samples[0], samples[0])
        low, median, high = statistics.quantiles(samples, n=4, method="inclusive")
        return cls(median, low, high)


@dataclass
class Samples:
    """Times of one call, in seconds, in the order they were taken."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def add(self, call: Callable[[], Any], number: int) -> None:
        """Take one sample of so many calls in a row."""
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(number):
            call()
        self.cpu.append((time.process_time() - cpu) / number)
        self.wall.append((time.perf_counter() - wall) / number)


def yardstick() -> Callable[[], Any]:
    """The matrix product that runs beside the candidates."""
    left = torch.randn(YARDSTICK_SIZE, YARDSTICK_SIZE)
    out = torch.empty_like(left)
    return lambda: torch.mm(left, left, out=out)


def interleave(
    calls: dict[str, Callable[[], Any]],
    *,
    repeat: int,
    keep: frozenset[str],
    left_s: Callable[[], float],
    warm: bool = False,
) -> dict[str, Samples]:
    """Time calls in turns, after one call of each that is not counted.

    Args:
        calls: by name.
        repeat: rounds.
        keep: names that are run in every round; the others only compete for the smallest time.
        left_s: how many seconds are left; no round is begun that would probably take longer.
        warm: the calls were made before and take long: there is no call ahead, and a sample is one call.

    Returns:
        The samples of each call: at least one, fewer than `repeat` when it was slow or time ran out.
    """
    samples = {name: Samples() for name in calls}
    turns = {name: _Turn(0, 1) if warm else _turn(call) for name, call in calls.items()}
    running = list(calls)
    collecting = gc.isenabled()
    gc.disable()
    try:
        for done in range(repeat):
            started = time.perf_counter()
            # Each round begins with another one, so that none always runs after the same neighbour.
            first = done % len(running)
            for name in running[first:] + running[:first]:
                for _ in range(turns[name].ahead):
                    calls[name]()
                samples[name].add(calls[name], turns[name].counted)
            round_s = time.perf_counter() - started
            gc.collect()
            if done + 1 >= FULL_ROUNDS:
                running = _still_running(running, samples, keep)
            if left_s() < round_s:
                break
    finally:
        if collecting:
            gc.enable()
    return samples


class _Turn(NamedTuple):
    """How often a call is made in its turn: before the sample, and in it."""

    ahead: int
    counted: int


def _turn(call: Callable[[], Any]) -> _Turn:
    once = Samples()
    once.add(call, 1)
    if once.wall[0] < SHORTEST_SAMPLE_S:
        # The first call may have paid for more than itself.
        once.add(call, 1)
    call_s = max(once.wall[-1], 1e-6)
    return _Turn(ahead=int(call_s < LONG_CALL_S), counted=max(1, math.ceil(SHORTEST_SAMPLE_S / call_s)))


def _still_running(running: list[str], samples: dict[str, Samples], keep: frozenset[str]) -> list[str]:
    competing = {name: min(samples[name].wall) for name in running if name not in keep}
    fastest = min(competing.values(), default=math.inf)
    return [name for name in running if name in keep or competing[name] <= SLOW * fastest]


def crowding(samples: Samples, threads: int) -> float:
    """How much longer the yardstick took than its CPU time on so many threads explains; 1 when idle."""
    ratios = [wall * threads / max(cpu, 1e-9) for wall, cpu in zip(samples.wall, samples.cpu, strict=True)]
    return statistics.median(ratios)
