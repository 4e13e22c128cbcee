"""What the AscendC kernels move, and how long that is modelled to take, counted on the CPU twin.

    python -m ops_ascend.modelled
    python -m ops_ascend.modelled --chip 950PR --kernel ssd_backward --suite vision --precision half
    python -m ops_ascend.modelled --shape 8 4096 256 64 64 64 --kernel ssd_forward --trace trace.json

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

from ops_ascend import ascendc_call, ascendc_selective, twin
from ops_ascend.ascendc_launch import Launch
from ops_ascend.calls import SelectiveCall, SSDCall
from ops_ascend.errors import random_selective, random_ssd
from ops_ascend.spec import NO_LIMIT

GIB = 2**30
LARGEST_HERE = 2**26  # elements of x that are run as they are
CUBE_CORES = {"910B3": 20, "950PR": 32}
VECTOR_CORES = {"910B3": 40, "950PR": 64}
SSD_KERNELS = ("ssd_forward", "ssd_backward")
SELECTIVE_KERNELS = ("selective_scan", "selective_scan_backward")


class Shape(NamedTuple):
    """Sizes of one SSD scan, in the order of random_ssd."""

    batch: int
    seqlen: int
    nheads: int
    headdim: int
    ngroups: int
    dstate: int


class Window(NamedTuple):
    """Sizes of one selective scan, in the order of random_selective."""

    batch: int
    dim: int
    seqlen: int
    ngroups: int
    dstate: int


# The published measurements are mamba-ascendc's, of its own kernels on a 910B3, without a gate.
PUBLISHED = Shape(8, 4096, 256, 64, 64, 64)
PUBLISHED_MS = {"ssd_forward": 31.888, "ssd_backward": 82.6}
# The Mamba blocks of MambaVision-B at 224 pixels: half of the channels, one window an image in either stage.
# Its images are the batch; the second number is how many such blocks there are.
MAMBA_VISION_B = ((Window(64, 256, 196, 1, 8), 5), (Window(64, 512, 49, 1, 8), 3))
SUITES: dict[str, Sequence[Shape | Window]] = {
    "published": [PUBLISHED],
    "vision": [
        Shape(8, 3136, 3, 64, 1, 128),
        Shape(8, 784, 6, 64, 2, 128),
        Shape(8, 196, 12, 64, 4, 128),
        Shape(8, 49, 24, 64, 8, 128),
    ],
    "mamba_vision": [window for window, _ in MAMBA_VISION_B],
}
# Vector instructions for 64 channels and one state of one token, when a scan goes token by token: decay the
# state, add to it, read it; the backward does the first two again and sums five gradients. Each costs what
# one more instruction was measured to on a 910B3 (KDA, section 11.55).
SEQUENTIAL_INSTRUCTIONS = {"selective_scan": 6, "selective_scan_backward": 18}
INSTRUCTION_NS = 31.7


@dataclass(frozen=True)
class Options:
    """What a call of an SSD scan has beside its required tensors and dt_bias.

    Selective scans are those of MambaVision: D and delta_bias, no gate.
    """

    gate: bool = True
    initial: bool = True
    skip: bool = False


@dataclass(frozen=True)
class Count:
    """One kernel and shape on one chip.

    Attributes:
        bound_bytes: every input read once and every output written once; in a backward also the saved states.
        moved_bytes: between global memory and the cores, outside the rings.
        ring_bytes: handed from core to core through global memory within the launch.
        hand_offs: flags between the cube core and its vector cores, both ways, for each chunk of a group.
        cores_ms: the busiest core's modelled time.
        hbm_ms: moved_bytes at the measured copy rate.
        ring_ms: ring_bytes at the measured rate of data that stays in L2.
        scaled: counted on a slice.
    """

    kernel: str
    shape: Shape | Window
    bound_bytes: float
    moved_bytes: float
    ring_bytes: float
    hand_offs: float
    cores_ms: float
    hbm_ms: float
    ring_ms: float
    scaled: bool


def launch_of(kernel: str, shape: Shape | Window, options: Options) -> Launch:
    """A launch on random float32 tensors, with the settings in force; a forward saves nothing."""
    if isinstance(shape, Window):
        return _selective_launch(kernel, shape)
    call = _ssd_call(shape, options)
    half = twin.half_operands()
    backward = kernel == "ssd_backward"
    every = ascendc_call.SAVED_EVERY if backward else 0
    forward = ascendc_call.prepare_forward(call, half_operands=half, checkpoint_every=every)
    if not backward:
        return forward
    # What is in them moves no byte and costs no time.
    given = [forward.output(name).normal_() for name in ("checkpoints", "y", "final_states")]
    return ascendc_call.prepare_backward(call, *given, half_operands=half, plan=twin.plan)


def _selective_launch(kernel: str, window: Window) -> Launch:
    tensors = random_selective(window, torch.float32)
    del tensors["z"]
    call = SelectiveCall(**tensors, z=None, delta_softplus=True)
    forward = ascendc_selective.prepare_forward(call, save=kernel != "selective_scan")
    if kernel == "selective_scan":
        return forward
    saved = torch.randn(ascendc_selective.saved_elements(call))
    given = [forward.output(name).normal_() for name in ("y", "last_state")]
    return ascendc_selective.prepare_backward(call, saved, *given, plan=twin.plan)


def _ssd_call(shape: Shape, options: Options) -> SSDCall:
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
        chunk_size=ascendc_call.KERNEL_CHUNK,
        dt_softplus=True,
        dt_limit=NO_LIMIT,
    )


def bound_bytes(kernel: str, shape: Shape | Window, options: Options) -> int:
    """Bytes of every float32 input and output, each once; of a backward also the states saved for it."""
    gate, skip = int(options.gate), int(options.skip)
    if isinstance(shape, Window):
        tokens = shape.batch * shape.seqlen
        channels, grouped, steps = tokens * shape.dim, tokens * shape.ngroups * shape.dstate, 0
        states, parameters = shape.batch * shape.dim * shape.dstate, shape.dim * (shape.dstate + 2)
        saved = (shape.seqlen - 1) // ascendc_selective.SAVED_EVERY * states
        forward, backward = (3, 1), (5, 1)  # of channels, states
    else:
        tokens = shape.batch * shape.seqlen
        channels, steps = tokens * shape.nheads * shape.headdim, tokens * shape.nheads
        grouped = tokens * shape.ngroups * shape.dstate
        states, parameters = (
            shape.batch * shape.nheads * shape.headdim * shape.dstate,
            shape.nheads * (2 + skip),
        )
        chunks = -(-shape.seqlen // ascendc_call.KERNEL_CHUNK)
        saved = -(-chunks // ascendc_call.SAVED_EVERY) * states
        forward, backward = (2 + gate, 1 + int(options.initial)), (3 + 2 * gate, 2)
    if kernel.endswith("backward"):
        per_channel, per_state = backward
        elements = 4 * grouped + 2 * steps + 2 * parameters + saved
    else:
        per_channel, per_state = forward
        elements = 2 * grouped + steps + parameters
    return 4 * (elements + per_channel * channels + per_state * states)


def slice_of(shape: Shape, cores: int) -> Shape:
    """One sequence with as many of the groups as there are cores: the same tasks, fewer of them."""
    groups = min(shape.ngroups, cores)
    return shape._replace(batch=1, nheads=shape.nheads // shape.ngroups * groups, ngroups=groups)


def count(kernel: str, shape: Shape | Window, options: Options, cores: int) -> tuple[Count, str | None]:
    """Run a shape, or a slice of it, on the twin with the settings in force.

    Args:
        kernel: one of SSD_KERNELS for a Shape, of SELECTIVE_KERNELS for a Window.
        shape: of the scan.
        options: of the call.
        cores: cube cores of the chip.

    Returns:
        The count, and the Chrome trace of one block.
    """
    scaled = isinstance(shape, Shape) and math.prod(shape[:4]) > LARGEST_HERE
    run = slice_of(shape, cores) if isinstance(shape, Shape) and scaled else shape
    launch = launch_of(kernel, run, options)
    result = twin.run(launch, trace=True)
    times, waves, group_chunks = 1.0, 1.0, math.inf
    if isinstance(shape, Shape) and isinstance(run, Shape):
        plan = twin.tiling(kernel, launch.fields)
        group_chunks = run.batch * run.ngroups * plan["parts"] * plan["nchunks"]
        times = shape.batch * shape.ngroups / (run.batch * run.ngroups)
        waves = math.ceil(plan["tasks"] * times / cores) / math.ceil(plan["tasks"] / cores)
    launches = [part for part in (result.report.get("first_report"), result.report) if part]

    def total(*keys: str) -> float:
        parts: list[Any] = list(launches)
        for key in keys:
            parts = [part[key] for part in parts]
        return float(sum(parts))

    row = Count(
        kernel=kernel,
        shape=shape,
        bound_bytes=bound_bytes(kernel, shape, options),
        moved_bytes=times * (total("gm_bytes", "compulsory") + total("gm_bytes", "other")),
        ring_bytes=times * total("gm_bytes", "ring"),
        hand_offs=(total("hand_offs", "AIC") + total("hand_offs", "AIV0")) / group_chunks,
        cores_ms=waves * total("timeline", "cores_us") / 1e3,
        hbm_ms=times * total("timeline", "hbm_us") / 1e3,
        ring_ms=times * total("timeline", "ring_us") / 1e3,
        scaled=times > 1,
    )
    return row, result.trace


def sequential_ms(kernel: str, window: Window, cores: int) -> float:
    """How long the same scan would take token by token, with 64 channels of one state an instruction."""
    steps = window.batch * window.seqlen * -(-window.dim // 64) * window.dstate
    return steps * SEQUENTIAL_INSTRUCTIONS[kernel] * INSTRUCTION_NS / 1e6 / cores


def _row(row: Count, chip: str) -> str:
    sizes = " ".join(str(size) for size in row.shape)
    other = ""
    if isinstance(row.shape, Window):
        other = f"{sequential_ms(row.kernel, row.shape, VECTOR_CORES[chip]):.3f}"
    elif row.shape == PUBLISHED:
        other = f"{PUBLISHED_MS[row.kernel]:.3f}"
    how = "  slice" if row.scaled else ""
    return (
        f"{row.kernel:24}{sizes:24}{row.bound_bytes / GIB:9.3f}{row.moved_bytes / GIB:9.3f}"
        f"{row.moved_bytes / row.bound_bytes:8.3f}{row.ring_bytes / GIB:9.3f}{row.hand_offs:10.2f}"
        f"{row.cores_ms:10.3f}{row.hbm_ms:9.3f}{row.ring_ms:9.3f}{other:>11}{how}\n"
    )


_HEADER = (
    f"{'kernel':24}{'B L H P G N / B D L G N':24}{'bound':>9}{'moved':>9}{'ratio':>8}{'rings':>9}"
    f"{'hand-offs':>10}{'cores':>10}{'HBM':>9}{'L2':>9}{'other':>11}\n"
    f"{'':24}{'':24}{'GiB':>9}{'GiB':>9}{'':>8}{'GiB':>9}{'per chunk':>10}"
    f"{'ms':>10}{'ms':>9}{'ms':>9}{'ms':>11}\n"
)


def _per_image(rows: Sequence[Count], chip: str) -> list[str]:
    """Lines on MambaVision-B, where both of its windows were counted."""
    lines = []
    for kernel in SELECTIVE_KERNELS:
        counted = {row.shape: row for row in rows if row.kernel == kernel}
        if not all(window in counted for window, _ in MAMBA_VISION_B):
            continue
        ours = [max(counted[w].cores_ms, counted[w].hbm_ms) / w.batch * n for w, n in MAMBA_VISION_B]
        slow = [sequential_ms(kernel, w, VECTOR_CORES[chip]) / w.batch * n for w, n in MAMBA_VISION_B]
        lines.append(
            f"MambaVision-B, all Mamba blocks, {kernel}: {1e3 * sum(ours):.1f} us an image, "
            f"token by token {1e3 * sum(slow):.1f} us\n"
        )
    return lines


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m ops_ascend.modelled", description=__doc__.split("\n")[0])
    parser.add_argument("--chip", choices=sorted(CUBE_CORES), default="910B3")
    parser.add_argument("--kernel", choices=[*SSD_KERNELS, *SELECTIVE_KERNELS, "all"], default="all")
    parser.add_argument("--suite", choices=[*SUITES, "all"], default="all")
    parser.add_argument(
        "--shape",
        type=int,
        nargs="+",
        help="instead of a suite: B L H P G N, or B D L G N of a selective scan",
    )
    parser.add_argument("--precision", choices=twin.PRECISIONS, default="accurate")
    parser.add_argument("--no-gate", action="store_true", help="without z")
    parser.add_argument("--no-initial", action="store_true", help="without initial_states")
    parser.add_argument("--trace", type=Path, help="write the last row's timeline for chrome://tracing")
    return parser


def _chosen(given: argparse.Namespace) -> list[tuple[str, Shape | Window]]:
    """Kernels and shapes that the command line asks for."""
    shapes = [s for name, suite in SUITES.items() if given.suite in (name, "all") for s in suite]
    if given.shape:
        if len(given.shape) not in (5, 6):
            raise ValueError(f"modelled: shape ({given.shape}) must have 5 or 6 sizes")
        shapes = [Shape(*given.shape) if len(given.shape) == 6 else Window(*given.shape)]
    return [
        (kernel, shape)
        for shape in shapes
        for kernel in (SELECTIVE_KERNELS if isinstance(shape, Window) else SSD_KERNELS)
        if given.kernel in (kernel, "all")
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; exit code 1, and the sentence, when the twin has a finding or refuses a shape."""
    given = _parser().parse_args(argv)
    options = Options(gate=not given.no_gate, initial=not given.no_initial)
    write = sys.stdout.write
    write(f"kernels on the twin of a {given.chip}, float32 tensors, {given.precision} operands\n")
    write("all times are modelled; 'other' is mamba-ascendc's own measurement, without a gate, of an SSD\n")
    write("scan, and a modelled scan token by token beside a selective scan\n")
    write(_HEADER)
    rows: list[Count] = []
    trace: str | None = None
    try:
        with twin.settings(chip=given.chip, precision=given.precision):
            for kernel, shape in _chosen(given):
                row, trace = count(kernel, shape, options, CUBE_CORES[given.chip])
                rows.append(row)
                write(_row(row, given.chip))
    except (twin.TwinError, NotImplementedError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    write("".join(_per_image(rows, given.chip)))
    if given.trace is not None and trace is not None:
        given.trace.write_text(trace)
    return 0


if __name__ == "__main__":
    sys.exit(main())
