"""The figures as JSON lines: one machine, one roofline, then every measurement, verdict and note."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any, TextIO

from ops_ascend.benchmark.arithmetic import amount
from ops_ascend.benchmark.measure import CaseResult, Measured, Timed
from ops_ascend.benchmark.reached import reached
from ops_ascend.benchmark.roofline import Roofline
from ops_ascend.benchmark.verdicts import Verdict

Record = dict[str, Any]


def write(records: Iterable[Record], file: TextIO) -> None:
    """Write one line each, and let a reader see them at once."""
    for record in records:
        file.write(json.dumps(record) + "\n")
    file.flush()


def opening(machine: Record, roofline: Roofline, left_out: dict[str, list[str]]) -> Iterator[Record]:
    """What the figures were measured on, and which peers of other packages are left out, by operator."""
    yield {"kind": "machine", **machine}
    yield {"kind": "roofline", **roofline.as_dict()}
    yield from ({"kind": "left out", "op": op, "peers": reasons} for op, reasons in left_out.items())


def of_case(result: CaseResult, verdicts: Iterable[Verdict], roofline: Roofline) -> Iterator[Record]:
    """Everything about one case."""
    case = result.case
    yield {
        "kind": "case",
        "case": case.name,
        "op": case.op,
        "suite": case.suite,
        "shape": case.shape._asdict(),
        "exact": result.exact,
        "crowding": round(result.crowding, 3),
        "yardstick": {which: _times(timed) for which, timed in result.yardstick.items()},
    }
    for measured in result.measured:
        for which in measured.candidate.works:
            yield _measurement(result, measured, which, roofline)
    for verdict in verdicts:
        yield {"kind": "verdict", **asdict(verdict), "passed": verdict.passed}
    for note in result.notes:
        yield {"kind": "note", "case": case.name, "text": note}


def _measurement(result: CaseResult, measured: Measured, which: str, roofline: Roofline) -> Record:
    record: Record = {
        "kind": "measurement",
        "case": result.case.name,
        "candidate": measured.candidate.name,
        "candidate_kind": measured.candidate.kind,
        "work": which,
        "error": measured.error.relative_rms,
        "error_of": measured.error.name,
        "extra_bytes": measured.peaks.get(which),
    }
    if which in measured.times:
        record |= _times(measured.times[which])
        if measured.candidate.kind == "backend":
            record |= {"needs": amount(result.case, which)._asdict()}
            record |= {"reached": reached(result, measured, which, roofline).as_dict()}
    return record


def _times(timed: Timed) -> Record:
    return {"samples": timed.samples, "wall_s": asdict(timed.wall), "cpu_s": asdict(timed.cpu)}
