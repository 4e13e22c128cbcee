"""The benchmark: what it runs, counts and concludes."""

import dataclasses
import json
import math

import pytest
import torch

from ops_ascend.benchmark import accuracy, measure, memory, timing
from ops_ascend.benchmark import command_line as program
from ops_ascend.benchmark.arithmetic import amount
from ops_ascend.benchmark.candidates import FORWARD, FORWARD_BACKWARD, Candidate, Selection, output_gradient
from ops_ascend.benchmark.cases import CASES, SUITES, Bars, Case, GridShape, SelectiveShape, SSDShape, choose
from ops_ascend.benchmark.measure import Budget, CaseResult, Measured, Settings, Timed, measure_case
from ops_ascend.benchmark.report import sentence, summary
from ops_ascend.benchmark.roofline import Rate, Roofline
from ops_ascend.benchmark.timing import Samples, Summary
from ops_ascend.benchmark.verdicts import COMPILED, MEMORY, verdicts
from ops_ascend.errors import TensorError

NO_ERROR = TensorError("y", 0.0, 0.0, 1.0)
TINY = ["tiny", "cross_tiny", "s6_tiny"]


@pytest.fixture
def quick_roofline(monkeypatch):
    """Rates that nobody measured: the machine's own take seconds."""
    rate = Rate(1e11, 1e11)
    monkeypatch.setattr(program.roofline, "measure", lambda: Roofline(rate, rate, rate, rate, rate))


def run(capsys, *arguments):
    status = program.main(["--threads", "1", "--repeat", "2", *arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.mark.usefixtures("quick_roofline")
def test_the_program_measures_and_writes_every_figure(capsys, tmp_path):
    file = tmp_path / "figures.jsonl"
    arguments = ["--backend", "chunked", "--no-memory", "--case", *TINY, "--json", str(file)]
    status, out, _ = run(capsys, *arguments)
    assert status == 0
    records = [json.loads(line) for line in file.read_text().splitlines()]
    kinds = {record["kind"] for record in records}
    assert kinds == {"machine", "roofline", "left out", "case", "measurement", "verdict"}
    assert records[0]["torch"] == torch.__version__
    assert records[0]["threads"] == 1
    for name in TINY:
        assert f"\n{name}: " in out
        own = [r for r in records if r["kind"] == "measurement" and r["case"] == name]
        works = {r["work"] for r in own if r["candidate"] == "chunked"}
        assert works == {FORWARD, FORWARD_BACKWARD}
        assert all(r["wall_s"]["median"] > 0 and r["error"] <= 1e-5 for r in own)
        assert {r["quantity"] for r in records if r["kind"] == "verdict" and r["case"] == name} == works
    assert "chunked against the best peer" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--case", "v31366"], "benchmark: unknown case 'v31366'; did you mean 'v3136'?"),
        (["--suite", "visoin"], "benchmark: unknown suite 'visoin'; did you mean 'vision'?"),
        (["--backend", "chunkt"], "benchmark: unknown backend 'chunkt'; did you mean 'chunked'?"),
        (["--against", "refrence"], "benchmark: unknown backend 'refrence'; did you mean 'reference'?"),
        (["--repeat", "0"], "benchmark: repeat (0) must be positive"),
    ],
)
def test_a_mistake_is_named(capsys, arguments, message):
    status, out, err = run(capsys, *arguments)
    assert (status, out, err) == (2, "", f"{message}\n")


def test_a_backend_that_cannot_run_is_refused(capsys):
    status, _, err = run(capsys, "--backend", "ascendc")
    assert status == 1
    assert err.startswith("benchmark: backend 'ascendc' cannot run here: ")


def test_list_names_every_case(capsys):
    assert program.main(["--list"]) == 0
    out = capsys.readouterr().out
    assert all(f"{name:14}" in out for name in CASES)


def test_cases_can_be_chosen_by_name_and_suite():
    assert [case.name for case in choose([], [])] == list(CASES)
    assert {case.name for case in choose(["tiny"], ["vision"])} == {"tiny", "v3136", "v784", "v196", "v49"}
    assert set(SUITES) == {"small", "vision", "cross", "selective"}


@pytest.mark.usefixtures("quick_roofline")
def test_what_the_budget_leaves_out_is_said(capsys):
    status, out, _ = run(capsys, "--backend", "chunked", "--case", "tiny", "--budget-s", "0")
    assert status == 0
    assert "tiny: ssd_scan" in out
    assert "note: skipped: the budget is spent" in out


def test_a_round_that_does_not_fit_is_not_begun(monkeypatch):
    settings = Settings(Selection("chunked", peers=False), repeat=50, threads=1, memory=False)
    budget = Budget(None)
    monkeypatch.setattr(budget, "left_s", lambda: 1e-9)
    result = measure_case(CASES["one_token"], settings, budget)
    assert [timed.samples for timed in result.measured[0].times.values()] == [1, 1]
    assert f"{FORWARD}: 1 of 50 rounds fit into the budget" in result.notes


def test_a_peer_that_would_take_too_long_is_not_called(monkeypatch):
    monkeypatch.setattr(measure, "predicted_s", lambda candidate, case: 90.0 * candidate.backward_growth)
    settings = Settings(Selection("chunked"), repeat=1, threads=1, memory=False, call_limit_s=100.0)
    result = measure_case(CASES["s6_tiny"], settings, Budget(None))
    assert "indexed_token_loop" not in {m.candidate.name for m in result.measured}
    note = "indexed_token_loop skipped: a forward and backward would take about 180 s (limit 100 s)"
    assert note in result.notes


def test_a_quadratic_backward_is_predicted_from_two_short_ones(monkeypatch):
    case = Case("here", SSDShape(1, 800, 1, 8, 8, 16, 1), "small")
    monkeypatch.setattr(measure, "_call_s", lambda _, short: 3 * short.shape.seqlen + short.shape.seqlen**2)
    quadratic = Candidate("q", "published", torch.neg, backward_growth=2)
    assert measure.predicted_s(quadratic, case) == pytest.approx(3 * 800 + 800**2)
    assert measure.predicted_s(Candidate("l", "published", torch.neg), case) == 0.0


def test_what_computes_something_else_is_not_timed(monkeypatch):
    honest = Selection.candidates

    def with_a_liar(self, case, only=None):
        found = honest(self, case, only)
        liar = dataclasses.replace(
            found[0], name="liar", run=lambda **tensors: 1.01 * found[0].run(**tensors)
        )
        return [*found, liar]

    settings = Settings(Selection("chunked", peers=False), repeat=1, threads=1, memory=False)
    exact = accuracy.exact_results(CASES["tiny"], CASES["tiny"].tensors(), output_gradient(CASES["tiny"]))
    monkeypatch.setattr(accuracy, "exact_results", lambda *_: exact)
    monkeypatch.setattr(Selection, "candidates", with_a_liar)
    result = measure_case(CASES["tiny"], settings, Budget(None))
    assert [m.candidate.name for m in result.measured] == ["chunked"]
    assert any(note.startswith("liar is WRONG: ") for note in result.notes)


def test_nan_is_wrong():
    assert accuracy.is_wrong(TensorError("y", math.nan, math.nan, math.nan))
    assert not accuracy.is_wrong(NO_ERROR)


def test_the_exact_result_is_the_recurrence_where_it_fits():
    assert accuracy.exact_backend(CASES["tiny"]) == "reference"
    assert accuracy.exact_backend(CASES["v3136"]) == "chunked"


def measured(name, kind, forward_s, both_s, peak_mib=None, works=(FORWARD, FORWARD_BACKWARD)):
    """A candidate with these figures; CPU time is twice the wall time."""
    candidate = Candidate(name, kind, torch.neg, works=works)
    times = {
        which: Timed(Summary(s, s, s), Summary(2 * s, 2 * s, 2 * s), 3)
        for which, s in ((FORWARD, forward_s), (FORWARD_BACKWARD, both_s))
        if which in works
    }
    peaks = {} if peak_mib is None else {FORWARD_BACKWARD: peak_mib * 2**20}
    return Measured(candidate, NO_ERROR, times, peaks)


def test_bars_are_judged_against_the_best_peer_of_all():
    bars = Bars(forward=7, forward_backward=6, memory=5, compiled=3)
    result = CaseResult(Case("here", SSDShape(1, 8, 1, 8, 8, 8, 1), "small", bars), "reference")
    result.measured = [
        measured("cpu", "backend", 1.0, 4.0, peak_mib=10),
        measured("einsum 64", "published", 9.0, 30.0, peak_mib=60),
        measured("chunk_list 64", "strengthened", 8.0, 22.0, peak_mib=80),
        measured("chunked", "backend", 0.1, 0.1, peak_mib=5),
        measured("compiled", "compiled", 0.0, 14.0, works=(FORWARD_BACKWARD,)),
    ]
    found = {v.quantity: v for v in verdicts(result, "cpu")}
    ratios = {quantity: (v.ratio, v.peer, v.bar, v.passed) for quantity, v in found.items()}
    assert ratios == {
        FORWARD: (8.0, "chunk_list 64", 7, True),
        FORWARD_BACKWARD: (5.5, "chunk_list 64", 6, False),
        MEMORY: (6.0, "einsum 64", 5, True),
        COMPILED: (3.5, "compiled", 3, True),
    }
    both = found[FORWARD_BACKWARD]
    assert (both.published_ratio, both.published_peer, both.cpu_ratio) == (7.5, "einsum 64", 5.5)
    want = "forward+backward: chunk_list 64 takes 5.5 x as much (CPU time 5.5 x), "
    assert sentence(both) == want + "of published forms einsum 64 7.5 x; wanted 6 x: FAIL"
    text = "".join(summary("cpu", found.values()))
    assert "5.5 (7.5; 5.5; 6 FAIL)" in text
    assert "3 of 4 bars reached" in text


def test_small_peaks_are_not_compared():
    result = CaseResult(Case("here", SSDShape(1, 8, 1, 8, 8, 8, 1), "small"), "reference")
    result.measured = [measured("cpu", "backend", 1, 1, 0), measured("einsum", "published", 1, 1, 1)]
    assert MEMORY not in {v.quantity for v in verdicts(result, "cpu")}


def test_nothing_is_concluded_without_the_backend():
    result = CaseResult(CASES["tiny"], "reference", [measured("einsum", "published", 1, 1)])
    assert verdicts(result, "cpu") == []


def test_slow_peers_stop_after_two_rounds():
    slept = {"fast": 1e-3, "slow": 20e-3, "backend": 20e-3}
    calls = {name: lambda s=s: timing.time.sleep(s) for name, s in slept.items()}
    keep = frozenset({"backend"})
    samples = timing.interleave(calls, repeat=4, keep=keep, left_s=lambda: math.inf, warm=True)
    assert {name: len(s.wall) for name, s in samples.items()} == {"fast": 4, "slow": 2, "backend": 4}


def test_a_crowded_machine_shows_in_the_yardstick():
    idle, crowded = Samples([1.0, 1.0], [2.0, 2.0]), Samples([3.0, 3.0], [2.0, 2.0])
    assert timing.crowding(idle, threads=2) == 1.0
    assert timing.crowding(crowded, threads=2) == 3.0


def test_the_summary_of_samples_is_median_and_quartiles():
    assert Summary.of([3.0, 1.0, 2.0, 5.0, 4.0]) == Summary(3.0, 2.0, 4.0)
    assert Summary.of([2.0]) == Summary(2.0, 2.0, 2.0)


def test_arithmetic_of_a_single_chunk_needs_no_state():
    #                                 B  L  H  P  N  Q  G
    case = Case("here", SSDShape(2, 4, 6, 8, 16, 64, 3), "small")
    pairs = 10
    final_state = 4 * 6 * 8 * 16
    forward = 2 * 2 * (pairs * (3 * 16 + 6 * 8) + final_state)
    backward = 2 * 2 * pairs * (3 * 3 * 16 + 2 * 6 * 8)
    assert amount(case, FORWARD).flops == forward
    assert amount(case, FORWARD_BACKWARD).flops == forward + backward


def test_arithmetic_of_many_chunks():
    # The figures of DESIGN's second stage, of which the forward is 1.36 and the backward 3.7 GFLOP.
    forward, both = (amount(CASES["v784"], which).flops for which in (FORWARD, FORWARD_BACKWARD))
    assert forward == pytest.approx(1.36e9, rel=0.02)
    assert both - forward == pytest.approx(3.7e9, rel=0.1)


def test_arithmetic_of_a_grid_counts_every_direction():
    grid = Case("here", GridShape(1, 8, 8, 2, 8, 8, 64, 1), "small")
    line = Case("here", SSDShape(1, 64, 2, 8, 8, 64, 1), "small")
    final_state = 2 * 64 * 2 * 8 * 8
    assert amount(grid, FORWARD).flops == 4 * (amount(line, FORWARD).flops - final_state)


def test_a_selective_scan_counts_exponentials():
    case = Case("here", SelectiveShape(2, 3, 5, 7), "small")
    assert amount(case, FORWARD).exps == 2 * 3 * 5 * 7
    assert amount(case, FORWARD_BACKWARD).exps == 2 * 2 * 3 * 5 * 7
    # u, delta and y; B and C.
    assert amount(case, FORWARD).moved_bytes == 4 * 2 * 5 * (3 * 3 + 2 * 7)


@pytest.mark.slow
@pytest.mark.skipif(not memory.sys.platform.startswith("linux"), reason="reads the high-water mark of /proc")
def test_peaks_are_measured_in_processes_of_their_own():
    case = Case("here", SSDShape(2, 512, 4, 64, 64, 64, 1), "small")
    selection = Selection("chunked", peer_chunks=())
    peak = {
        name: memory.peak_bytes(case, selection, name, FORWARD_BACKWARD, threads=1)
        for name in ("chunked", "segment_sum 64")
    }
    output_bytes = 4 * 2 * 512 * 4 * 64
    assert output_bytes < peak["chunked"] < peak["segment_sum 64"]


def test_a_process_that_dies_is_reported(monkeypatch):
    if not memory.sys.platform.startswith("linux"):
        pytest.skip("reads the high-water mark of /proc")
    with pytest.raises(memory.NotMeasuredError, match="exit code 3"):
        memory.in_fresh_process(memory.sys.exit, 3)
