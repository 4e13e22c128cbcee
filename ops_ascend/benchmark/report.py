"""The figures as tables for people."""

from collections.abc import Iterable, Iterator
from typing import Any

from ops_ascend.benchmark import timing
from ops_ascend.benchmark.candidates import FORWARD, FORWARD_BACKWARD
from ops_ascend.benchmark.measure import CaseResult, Measured
from ops_ascend.benchmark.reached import reached
from ops_ascend.benchmark.roofline import Rate, Roofline
from ops_ascend.benchmark.verdicts import COMPILED, MEMORY, Verdict

_MARKS = {"published": " ", "strengthened": "+", "compiled": " ", "backend": "*"}
_LEGEND = (
    "Times in ms: median (quartiles) of wall time, then median CPU time of all threads. MiB: peak memory of\n"
    "one call beyond its inputs. Error: the largest relative RMS of y and the gradients against float64.\n"
    "* a backend, + a peer that is stronger than what is published\n"
)


def opening(machine: dict[str, Any], roofline: Roofline, left_out: dict[str, list[str]]) -> Iterator[str]:
    """The machine, what it reaches, and which peers of other packages are left out, by operator."""
    yield (
        f"{machine['processor']}, {machine['capability']}, {machine['threads']} threads of "
        f"{machine['cores']} cores; torch {machine['torch']}, Python {machine['python']}; "
        f"commit {machine['commit'] or 'unknown'}; {machine['date']}\n"
    )
    yield (
        f"sgemm {_giga(roofline.sgemm)} GFLOP/s at 1024^3, {_giga(roofline.small_sgemm)} in batches of 64^3; "
        f"memory {_giga(roofline.add)} GB/s adding, {_giga(roofline.copy)} copying; "
        f"exp {_giga(roofline.exp)} G/s (wall time / each CPU second)\n"
    )
    load, threads = machine["load"], machine["threads"]
    if load is not None and load + threads > machine["cores"] + 0.5:
        yield f"WARNING: the load is {load}: others use this machine, and wall times count their work too.\n"
    for op, reasons in left_out.items():
        yield from (f"{op} without {reason}\n" for reason in reasons)
    yield _LEGEND


def _giga(rate: Rate) -> str:
    return f"{rate.per_wall_s / 1e9:.4g} / {rate.per_cpu_s / 1e9:.4g}"


def of_case(result: CaseResult, verdicts: Iterable[Verdict], roofline: Roofline) -> Iterator[str]:
    """One case: its candidates, how near the backends come to the machine, its ratios."""
    yield f"\n{result.case.name}: {result.case.op}, {result.case.sizes()}\n"
    if result.measured:
        yield (
            f"  {'':34}{'forward':>26}{'CPU':>9}{'forward+backward':>28}{'CPU':>9}"
            f"{'MiB forward':>13}{'MiB both':>10}{'error':>9}\n"
        )
    for measured in sorted(result.measured, key=_order):
        yield _row(measured)
    for measured in result.measured:
        if measured.candidate.kind == "backend":
            yield from _rates(result, measured, roofline)
    for verdict in verdicts:
        yield f"  {sentence(verdict)}\n"
    for note in result.notes:
        yield f"  note: {note}\n"
    if result.crowding > timing.BUSY:
        yield (
            f"  WARNING: busy machine, the matrix product took {result.crowding:.1f} times what its CPU time "
            "explains; trust the ratios of CPU time\n"
        )


def _order(measured: Measured) -> tuple[bool, float]:
    timed = measured.times.get(FORWARD_BACKWARD)
    return measured.candidate.kind != "backend", timed.wall.median if timed else 0.0


def _row(measured: Measured) -> str:
    cells = f"  {_MARKS[measured.candidate.kind]} {measured.candidate.name:32}"
    for which, width in ((FORWARD, 26), (FORWARD_BACKWARD, 28)):
        if which in measured.times:
            wall, cpu = measured.times[which].wall, measured.times[which].cpu
            text = f"{_ms(wall.median)} ({_ms(wall.low)}-{_ms(wall.high)})"
            cells += f"{text:>{width}}{_ms(cpu.median):>9}"
        else:
            cells += f"{'-':>{width}}{'-':>9}"
    for which, width in ((FORWARD, 13), (FORWARD_BACKWARD, 10)):
        peak = measured.peaks.get(which)
        text = "-" if peak is None else f"{peak / 2**20:.1f}"
        cells += f"{text:>{width}}"
    return f"{cells}{measured.error.relative_rms:>9.1e}\n"


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g}" if seconds < 0.9995 else f"{1e3 * seconds:.0f}"


def _rates(result: CaseResult, measured: Measured, roofline: Roofline) -> Iterator[str]:
    for which in (FORWARD, FORWARD_BACKWARD):
        if which not in measured.times:
            continue
        rates = reached(result, measured, which, roofline)
        if rates.gflop_per_s:
            speed = (
                f"{rates.gflop_per_s:.3g} GFLOP/s, {rates.sgemm_share:.0%} of sgemm "
                f"({rates.sgemm_share_cpu:.0%} by CPU time)"
            )
        else:
            speed = f"{rates.gexp_per_s:.3g} Gexp/s, {rates.exp_share_cpu:.0%} of exp alone by CPU time"
        yield (
            f"  {measured.candidate.name} {which}: {speed}; "
            f"{rates.gbyte_per_s:.3g} GB/s, {rates.copy_share:.0%} of copy\n"
        )


def sentence(verdict: Verdict) -> str:
    """One verdict in words."""
    needs = "needs" if verdict.quantity == MEMORY else "takes"
    text = f"{verdict.quantity}: {verdict.peer} {needs} {verdict.ratio:.1f} x as much"
    if verdict.cpu_ratio is not None:
        text += f" (CPU time {verdict.cpu_ratio:.1f} x)"
    if verdict.published_peer not in (None, verdict.peer):
        text += f", of published forms {verdict.published_peer} {verdict.published_ratio:.1f} x"
    if verdict.bar is not None:
        text += f"; wanted {verdict.bar:g} x: {'pass' if verdict.passed else 'FAIL'}"
    return text


def summary(backend: str, verdicts: Iterable[Verdict]) -> Iterator[str]:
    """One line for each case, and how many bars were reached."""
    by_case: dict[str, dict[str, Verdict]] = {}
    for verdict in verdicts:
        by_case.setdefault(verdict.case, {})[verdict.quantity] = verdict
    if not by_case:
        return
    quantities = (FORWARD, FORWARD_BACKWARD, MEMORY, COMPILED)
    yield f"\n{backend} against the best peer (as published; CPU time; bar)\n"
    yield f"  {'':14}" + "".join(f"{quantity:>34}" for quantity in quantities) + "\n"
    for case, found in by_case.items():
        yield f"  {case:14}" + "".join(f"{_cell(found.get(q)):>34}" for q in quantities) + "\n"
    judged = [v for found in by_case.values() for v in found.values() if v.bar is not None]
    if judged:
        yield f"  {sum(bool(v.passed) for v in judged)} of {len(judged)} bars reached\n"


def _cell(verdict: Verdict | None) -> str:
    if verdict is None:
        return "-"
    inside = []
    if verdict.published_ratio is not None:
        inside.append(f"{verdict.published_ratio:.1f}")
    if verdict.cpu_ratio is not None:
        inside.append(f"{verdict.cpu_ratio:.1f}")
    if verdict.bar is not None:
        inside.append(f"{verdict.bar:g} {'pass' if verdict.passed else 'FAIL'}")
    return f"{verdict.ratio:.1f}" + (f" ({'; '.join(inside)})" if inside else "")
