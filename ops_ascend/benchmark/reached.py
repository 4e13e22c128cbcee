"""How near a backend comes to what the machine can do."""

from dataclasses import asdict, dataclass
from typing import Any

from ops_ascend.benchmark.arithmetic import amount
from ops_ascend.benchmark.measure import CaseResult, Measured
from ops_ascend.benchmark.roofline import Roofline
from ops_ascend.benchmark.timing import YARDSTICK_SIZE


@dataclass(frozen=True)
class Reached:
    """The rates of one work, from arithmetic.py's counts.

    Attributes:
        gflop_per_s: operations of matrix products a second of wall time; 0 for a selective scan.
        sgemm_share: of the matrix product timed between the same calls, by wall time.
        sgemm_share_cpu: the same by CPU time, which other processes do not blur.
        gexp_per_s: exponentials a second of wall time; 0 for an SSD scan.
        exp_share_cpu: of PyTorch's exp, by CPU time.
        gbyte_per_s: bytes that have to be moved, a second of wall time.
        copy_share: of the bandwidth of a large copy, by wall time.
    """

    gflop_per_s: float
    sgemm_share: float
    sgemm_share_cpu: float
    gexp_per_s: float
    exp_share_cpu: float
    gbyte_per_s: float
    copy_share: float

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def reached(result: CaseResult, measured: Measured, which: str, roofline: Roofline) -> Reached:
    """The rates of one candidate, whose work was timed."""
    need, timed, beside = amount(result.case, which), measured.times[which], result.yardstick[which]
    wall, cpu = timed.wall.median, timed.cpu.median
    product = 2 * YARDSTICK_SIZE**3
    return Reached(
        gflop_per_s=need.flops / wall / 1e9,
        sgemm_share=need.flops / wall / (product / beside.wall.median),
        sgemm_share_cpu=need.flops / cpu / (product / beside.cpu.median),
        gexp_per_s=need.exps / wall / 1e9,
        exp_share_cpu=need.exps / cpu / roofline.exp.per_cpu_s,
        gbyte_per_s=need.moved_bytes / wall / 1e9,
        copy_share=need.moved_bytes / wall / roofline.copy.per_wall_s,
    )
