"""What the AscendC kernels move, and how long that is modelled to take, counted on the CPU twin.

    python -m ops_ascend.modelled
    python -m ops_ascend.modelled --chip 950PR --suite vision --precision half
    python -m ops_ascend.modelled --shape 8 4096 256 64 64 64 --trace trace.json

Bytes and hand-offs are counted; times are modelled from a table of costs per instruction
(csrc/twin/costs.cpp), not measured: these kernels never ran on an NPU. A shape too large for this machine is
counted on a slice, one task for each core, and scaled by its number of tasks.
"""

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ops_ascend import twin
from ops_ascend.calls import SSDCall
from ops_ascend.errors import random_ssd
from ops_ascend.spec import NO_LIMIT

GIB = 2**30
LARGEST_HERE = 2**26  # elements of x that are run as they are
KERNEL_CHUNK = 64


class Shape(NamedTuple):
    """Sizes of one scan, in the order of random_ssd."""

    batch: int
    seqlen: int
    nheads: int
    headdim: int
    ngroups: int
    dstate: int


# The published measurement is mamba-ascendc's, of its own kernels on a 910B3, without a gate.
PUBLISHED = Shape(8, 4096, 256, 64, 64, 64)
PUBLISHED_MS = 31.888
SUITES = {
    "published": [PUBLISHED],
    "vision": [
        Shape(8, 3136, 3, 64, 1, 128),
        Shape(8, 784, 6, 64, 2, 128),
        Shape(8, 196, 12, 64, 4, 128),
        Shape(8, 49, 24, 64, 8, 128),
    ],
}


@dataclass(frozen=True)
class Options:
    """What the call has beside x, dt, A, B and C."""

    gate: bool = True
    initial: bool = True
    skip: bool = False


@dataclass(frozen=True)
class Count:
    """One shape on one chip.

    Attributes:
        bound_bytes: every input read once and every output written once.
        moved_bytes: between global memory and the cores, outside the rings.
        ring_bytes: handed from core to core through global memory within the launch.
        hand_offs: flags between the cube core and its vector cores, both ways, for each chunk of a task.
        cores_ms: the busiest core's modelled time.
        hbm_ms: moved_bytes at the measured copy rate.
        ring_ms: ring_bytes at the measured rate of data that stays in L2.
        scaled: counted on a slice.
    """

    shape: Shape
    bound_bytes: float
    moved_bytes: float
    ring_bytes: float
    hand_offs: float
    cores_ms: float
    hbm_ms: float
    ring_ms: float
    scaled: bool


def ssd_call(shape: Shape, options: Options) -> SSDCall:
    """A call of ssd_scan with random float32 inputs."""
    tensors = random_ssd(shape, torch.float32)
    return SSDCall(
        x=tensors["x"],
        dt=tensors["dt"],
        A=tensors["A"],
        B=tensors["B"],
        C=tensors["C"],
        D=torch.ones(shape.nheads) if options.skip else None,
        z=tensors["z"] if options.gate else None,
        dt_bias=tensors["dt_bias"],
        initial_states=tensors["initial_states"] if options.initial else None,
        seq_idx=None,
        chunk_size=KERNEL_CHUNK,
        dt_softplus=True,
        dt_limit=NO_LIMIT,
    )


def bound_bytes(shape: Shape, options: Options) -> int:
    """Bytes of every float32 input and output of a scan, each once."""
    tokens = shape.batch * shape.seqlen
    states = shape.batch * shape.nheads * shape.headdim * shape.dstate
    elements = (
        (3 if options.gate else 2) * tokens * shape.nheads * shape.headdim
        + 2 * tokens * shape.ngroups * shape.dstate
        + tokens * shape.nheads
        + (2 if options.initial else 1) * states
        + (3 if options.skip else 2) * shape.nheads
    )
    return 4 * elements


def slice_of(shape: Shape, cores: int) -> Shape:
    """One sequence with as many of the groups as there are cores: the same tasks, fewer of them."""
    groups = min(shape.ngroups, cores)
    return shape._replace(batch=1, nheads=shape.nheads // shape.ngroups * groups, ngroups=groups)


def count(shape: Shape, options: Options, cores: int) -> tuple[Count, str | None]:
    """Run a shape, or a slice of it, on the twin with the settings in force.

    Args:
        shape: of the scan.
        options: of the call.
        cores: cube cores of the chip.

    Returns:
        The count, and the Chrome trace of one block.
    """
    scaled = math.prod(shape[:4]) > LARGEST_HERE
    run = slice_of(shape, cores) if scaled else shape
    call = ssd_call(run, options)
    result = twin.ssd_forward(call, trace=True)
    tasks = twin.ssd_forward_tiling(call)["tasks"]
    times, waves = 1.0, 1.0
    if scaled:
        times = shape.batch * shape.ngroups / (run.batch * run.ngroups)
        waves = math.ceil(tasks * times / cores) / math.ceil(tasks / cores)
    launches = [part for part in (result.report.get("first_report"), result.report) if part]
    return _scaled_count(shape, options, launches, times, waves), result.trace


def _scaled_count(
    shape: Shape, options: Options, launches: list[dict[str, Any]], times: float, waves: float
) -> Count:
    def total(*keys: str) -> float:
        parts: list[Any] = list(launches)
        for key in keys:
            parts = [part[key] for part in parts]
        return float(sum(parts))

    steps = launches[-1]["hand_offs"]["AIC"] / 2
    return Count(
        shape=shape,
        bound_bytes=bound_bytes(shape, options),
        moved_bytes=times * (total("gm_bytes", "compulsory") + total("gm_bytes", "other")),
        ring_bytes=times * total("gm_bytes", "ring"),
        hand_offs=(total("hand_offs", "AIC") + total("hand_offs", "AIV0")) / steps,
        cores_ms=waves * total("timeline", "cores_us") / 1e3,
        hbm_ms=times * total("timeline", "hbm_us") / 1e3,
        ring_ms=times * total("timeline", "ring_us") / 1e3,
        scaled=times > 1,
    )


def _row(row: Count) -> str:
    shape = " ".join(str(size) for size in row.shape)
    published = f"{PUBLISHED_MS:.3f}" if row.shape == PUBLISHED else ""
    how = "  slice" if row.scaled else ""
    return (
        f"{shape:26}{row.bound_bytes / GIB:9.3f}{row.moved_bytes / GIB:9.3f}"
        f"{row.moved_bytes / row.bound_bytes:8.3f}{row.ring_bytes / GIB:9.3f}{row.hand_offs:10.2f}"
        f"{row.cores_ms:10.3f}{row.hbm_ms:9.3f}{row.ring_ms:9.3f}{published:>11}{how}"
    )


_HEADER = (
    f"{'B L H P G N':26}{'bound':>9}{'moved':>9}{'ratio':>8}{'rings':>9}{'hand-offs':>10}"
    f"{'cores':>10}{'HBM':>9}{'L2':>9}{'published':>11}\n"
    f"{'':26}{'GiB':>9}{'GiB':>9}{'':>8}{'GiB':>9}{'per chunk':>10}"
    f"{'ms':>10}{'ms':>9}{'ms':>9}{'ms':>11}"
)
CORES = {"910B3": 20, "950PR": 32}


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; exit code 1, and the sentence, when the twin has a finding or refuses a shape."""
    parser = argparse.ArgumentParser(prog="python -m ops_ascend.modelled", description=__doc__.split("\n")[0])
    parser.add_argument("--chip", choices=sorted(CORES), default="910B3")
    parser.add_argument("--suite", choices=[*SUITES, "all"], default="all")
    parser.add_argument("--shape", type=int, nargs=6, metavar=tuple("BLHPGN"), help="instead of a suite")
    parser.add_argument("--precision", choices=twin.PRECISIONS, default="accurate")
    parser.add_argument("--no-gate", action="store_true", help="without z")
    parser.add_argument("--no-initial", action="store_true", help="without initial_states")
    parser.add_argument("--trace", type=Path, help="write the last shape's timeline for chrome://tracing")
    given = parser.parse_args(argv)
    shapes = [s for name, suite in SUITES.items() if given.suite in (name, "all") for s in suite]
    if given.shape:
        shapes = [Shape(*given.shape)]
    options = Options(gate=not given.no_gate, initial=not given.no_initial)
    write = sys.stdout.write
    write(f"ssd_forward on the twin of a {given.chip}, float32 tensors, {given.precision} operands\n")
    write("all times are modelled; 'published' is mamba-ascendc's own measurement, without a gate\n")
    write(f"{_HEADER}\n")
    trace: str | None = None
    with twin.settings(chip=given.chip, precision=given.precision):
        for shape in shapes:
            try:
                row, trace = count(shape, options, CORES[given.chip])
            except (twin.TwinError, NotImplementedError, ValueError) as error:
                sys.stderr.write(f"{error}\n")
                return 1
            write(f"{_row(row)}\n")
    if given.trace is not None and trace is not None:
        given.trace.write_text(trace)
    return 0


if __name__ == "__main__":
    sys.exit(main())
