"""The program: choose cases, measure them one by one, write as it goes."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import torch

from ops_ascend.backend import BACKENDS, backends
from ops_ascend.benchmark import machine, records, report, roofline
from ops_ascend.benchmark.candidates import PEER_CHUNKS, Selection
from ops_ascend.benchmark.cases import CASES, SUITES, Case, choose, unknown
from ops_ascend.benchmark.installed_peers import INSTALLED, usable
from ops_ascend.benchmark.measure import Budget, Settings, measure_case
from ops_ascend.benchmark.verdicts import Verdict, verdicts

PEERS = "peers"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m ops_ascend.benchmark",
        description="Time, memory and accuracy of the scan operators beside what people use.",
    )
    add = parser.add_argument
    add("--backend", default="cpu", help="the backend that is judged (default: cpu)")
    add("--against", default=PEERS, help="comma-separated: peers, or names of other backends")
    add("--case", nargs="+", default=[], metavar="NAME", help="cases to run; all without --case and --suite")
    add("--suite", nargs="+", default=[], metavar="NAME", help=f"of {', '.join(SUITES)}")
    add("--repeat", type=int, default=7, help="rounds of timing (default: 7)")
    add("--threads", type=int, default=2, help="of PyTorch (default: 2)")
    add(
        "--compile",
        action="store_true",
        help="also torch.compile of the einsum form; a minute for each shape",
    )
    add("--peer-chunks", type=int, nargs="+", default=list(PEER_CHUNKS), metavar="SIZE",
        help="chunk sizes that peers try beside the case's own")  # fmt: skip
    add("--no-memory", action="store_true", help="leave out peak memory")
    add("--call-limit-s", type=float, default=20.0, help="leave out peers whose call takes longer")
    add("--budget-s", type=float, help="leave out what does not fit into so many seconds, and say so")
    add("--json", type=Path, metavar="FILE", help="also write every figure as JSON lines")
    add("--list", action="store_true", help="list cases, suites and installed peers; run nothing")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark of the command line.

    Returns:
        0 when everything was measured or skipped as told, whatever the ratios; 1 when the judged backend
        cannot run here or computes something wrong; 2 for a name that there is none of.
    """
    options = _parser().parse_args(arguments)
    if options.list:
        sys.stdout.writelines(listing())
        return 0
    try:
        chosen = choose(options.case, options.suite)
        selection = _selection(options)
    except ValueError as error:
        sys.stderr.write(f"benchmark: {error}\n")
        return 2
    for name in (selection.backend, *selection.others):
        if name != "auto" and (reasons := backends()[name]):
            sys.stderr.write(f"benchmark: backend {name!r} cannot run here: {'; '.join(reasons)}\n")
            return 1
    settings = Settings(
        selection,
        repeat=options.repeat,
        threads=options.threads,
        memory=not options.no_memory,
        call_limit_s=options.call_limit_s,
    )
    torch.set_num_threads(options.threads)
    return _run(chosen, settings, Budget(options.budget_s), options.json)


def _selection(options: argparse.Namespace) -> Selection:
    against = [name for name in options.against.split(",") if name]
    for name in (options.backend, *(other for other in against if other != PEERS)):
        known = ["auto", *BACKENDS]
        if name not in known:
            raise ValueError(unknown("backend", name, known))
    for name, value in (("repeat", options.repeat), ("threads", options.threads)):
        if value < 1:
            raise ValueError(f"{name} ({value}) must be positive")
    return Selection(
        options.backend,
        others=tuple(name for name in against if name != PEERS),
        peers=PEERS in against,
        compiled=options.compile,
        peer_chunks=tuple(options.peer_chunks),
    )


def _run(chosen: list[Case], settings: Settings, budget: Budget, json_file: Path | None) -> int:
    backend, status = settings.selection.backend, 0
    found: list[Verdict] = []
    with ExitStack() as stack:
        file = stack.enter_context(json_file.open("w", encoding="utf-8")) if json_file else None
        here, line = machine.describe(), roofline.measure()
        ops = dict.fromkeys(case.op for case in chosen)
        left_out = {op: settings.selection.left_out(op) for op in ops}
        sys.stdout.writelines(report.opening(here, line, left_out))
        if file:
            records.write(records.opening(here, line, left_out), file)
        for case in chosen:
            sys.stdout.flush()
            result = measure_case(case, settings, budget)
            own = verdicts(result, backend)
            found += own
            sys.stdout.writelines(report.of_case(result, own, line))
            if file:
                records.write(records.of_case(result, own, line), file)
            if any(note.startswith(f"{backend} is WRONG") for note in result.notes):
                status = 1
        sys.stdout.writelines(report.summary(backend, found))
    return status


def listing() -> Iterator[str]:
    """The cases, their suites and bars, and which installed peers can take part."""
    for case in CASES.values():
        yield f"{case.name:14}{case.suite:11}{case.op:16}{case.sizes()}\n"
        if case.bars:
            bars = ", ".join(f"{k} {v:g} x" for k, v in vars(case.bars).items() if v is not None)
            yield f"{'':14}{'':11}{'wanted':16}{bars}\n"
    yield "\nPeers of other packages:\n"
    for op in dict.fromkeys(peer.op for peer in INSTALLED):
        able, left_out = usable(op)
        yield from (f"  {op:16}{peer.name}: can run\n" for peer, _ in able)
        yield from (f"  {op:16}{reason}\n" for reason in left_out)
