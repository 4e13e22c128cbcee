"""How fast this machine is at what scans are made of, measured with PyTorch in the same process."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch

from ops_ascend.benchmark.timing import YARDSTICK_SIZE, Samples, Summary, yardstick

SMALL = 64
LARGE_ELEMENTS = 2**25
# 256 KiB: stays in the second-level cache.
EXP_ELEMENTS = 2**16
ROUNDS = 5


@dataclass(frozen=True)
class Rate:
    """Units of work a second, of wall time and of CPU time."""

    per_wall_s: float
    per_cpu_s: float

    @classmethod
    def of(cls, work: float, samples: Samples) -> "Rate":
        """The rate of so much work a sample."""
        return cls(work / Summary.of(samples.wall).median, work / Summary.of(samples.cpu).median)


@dataclass(frozen=True)
class Roofline:
    """What the machine reaches.

    Attributes:
        sgemm: operations of a float32 matrix product of YARDSTICK_SIZE.
        small_sgemm: operations of 64 products of (64, 64) and (64, 64).
        add: bytes of an addition that reads two arrays and writes one, all larger than caches.
        copy: bytes of a copy, read and written.
        exp: exponentials of an array in the second-level cache.
    """

    sgemm: Rate
    small_sgemm: Rate
    add: Rate
    copy: Rate
    exp: Rate

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def measure(large_elements: int = LARGE_ELEMENTS, rounds: int = ROUNDS) -> Roofline:
    """Measure with the threads that PyTorch has.

    Args:
        large_elements: of each of the three arrays behind the bandwidths.
        rounds: samples of each.
    """
    small = torch.randn(SMALL, SMALL, SMALL)
    product = torch.empty_like(small)
    large = [torch.ones(large_elements) for _ in range(3)]
    cached = torch.randn(EXP_ELEMENTS)
    power = torch.empty_like(cached)
    large_bytes = 4 * large_elements
    calls: dict[str, tuple[Callable[[], Any], float, int]] = {
        "sgemm": (yardstick(), 2 * YARDSTICK_SIZE**3, 1),
        "small_sgemm": (lambda: torch.bmm(small, small, out=product), 2 * SMALL**4, 20),
        "add": (lambda: torch.add(large[0], large[1], out=large[2]), 3 * large_bytes, 1),
        "copy": (lambda: large[2].copy_(large[0]), 2 * large_bytes, 1),
        "exp": (lambda: torch.exp(cached, out=power), EXP_ELEMENTS, 50),
    }
    samples = {name: Samples() for name in calls}
    for call, _, _ in calls.values():
        call()
    for _ in range(rounds):
        for name, (call, _, number) in calls.items():
            samples[name].add(call, number)
    return Roofline(**{name: Rate.of(work, samples[name]) for name, (_, work, _) in calls.items()})
