"""Time and memory of a training step beside the same network with the operators that people use today.

    vmamba2 benchmark
    vmamba2 benchmark --model vmamba2_micro --batch 2 --against peers,chunked --json step.jsonl

A step is forward, cross-entropy, backward and AdamW. All variants share the weights and take turns; before
anything is timed their losses and gradients have to agree. Peak memory is that of the first step of a process
of its own beyond the model: activations, gradients and the state of AdamW.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import timm
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import vmamba2
from ops_ascend.backend import BACKENDS, backends
from ops_ascend.benchmark import machine, memory, timing
from ops_ascend.benchmark.cases import unknown
from ops_ascend.benchmark.measure import Budget, Timed
from ops_ascend.errors import tensor_error
from vmamba2.tools.networks import BARS, Bars, Family, family_of, variant
from vmamba2.training.parameter_groups import build_optimizer

PEERS = "peers"
# Variants whose gradients differ by more do not compute the same network.
WRONG = 1e-3


@dataclass(frozen=True)
class Step:
    """What is trained.

    Attributes:
        model: a name that timm knows.
        image_size: pixels of a side.
        batch: images.
        threads: of PyTorch.
    """

    model: str
    image_size: int
    batch: int
    threads: int

    def network(self) -> nn.Module:
        """The model, the same weights at every call."""
        torch.set_num_threads(self.threads)
        torch.manual_seed(0)
        return timm.create_model(self.model).train()

    def images_and_classes(self) -> tuple[Tensor, Tensor]:
        """A batch of noise."""
        generator = torch.Generator().manual_seed(1)
        images = torch.randn(self.batch, 3, self.image_size, self.image_size, generator=generator)
        return images, torch.randint(1000, (self.batch,), generator=generator)

    @property
    def family(self) -> Family:
        """The family of the model."""
        return family_of(self.model)

    @property
    def bars(self) -> Bars | None:
        """What it has to reach, if anything was set."""
        return BARS.get((self.model, self.image_size, self.batch))


@dataclass
class Row:
    """One variant: a backend or a peer."""

    name: str
    peer: bool
    loss: float = 0.0
    gradient_error: float = 0.0
    timed: Timed | None = None
    peak_bytes: int | None = None


@dataclass
class Result:
    """What was measured of a step.

    Attributes:
        judged: the name of the backend that is judged.
        rows: the variants that compute the same network.
        notes: a sentence for everything that was left out, and why.
        crowding: how much longer a matrix product took than its CPU time explains.
    """

    judged: str
    rows: list[Row]
    notes: list[str] = field(default_factory=list)
    crowding: float = 1.0

    def best_peer(self, cost: Callable[[Row], float | None]) -> tuple[str, float] | None:
        """The peer with the least of something, and how many times that of the judged backend it is."""
        own = next((cost(row) for row in self.rows if row.name == self.judged), None)
        known = {row.name: value for row in self.rows if row.peer and (value := cost(row)) is not None}
        if own is None or not known:
            return None
        name = min(known, key=lambda peer: known[peer])
        return name, known[name] / own


def wall_s(row: Row) -> float | None:
    """Median wall time of a step."""
    return None if row.timed is None else row.timed.wall.median


def cpu_s(row: Row) -> float | None:
    """Median CPU time of a step."""
    return None if row.timed is None else row.timed.cpu.median


def peak_bytes(row: Row) -> float | None:
    """Peak memory of a step."""
    return row.peak_bytes


def _optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return build_optimizer(model, {"opt": "adamw", "lr": 1e-4, "weight_decay": 0.05})


def _loss_and_gradients(model: nn.Module, images: Tensor, classes: Tensor) -> Tensor:
    model.zero_grad(set_to_none=True)
    loss = F.cross_entropy(model(images), classes)
    loss.backward()
    return loss.detach()


def _flat_gradients(model: nn.Module) -> Tensor:
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def measure(step: Step, names: Sequence[str], *, repeat: int, weigh: bool, budget: Budget) -> Result:
    """Check, time and weigh variants of a step.

    Args:
        step: what is trained.
        names: of backends and peers, the judged backend first.
        repeat: rounds of timing.
        weigh: whether to measure peak memory.
        budget: what does not fit is left out with a note.
    """
    family = step.family
    result = Result(names[0], [Row(name, peer=name in family.peers) for name in names])
    _check_and_time(result, step, repeat, budget)
    if weigh:
        _weigh(result, step, budget)
    return result


def _check_and_time(result: Result, step: Step, repeat: int, budget: Budget) -> None:
    family, model, batch = step.family, step.network(), step.images_and_classes()
    _check(result, model, family, batch)
    optimizer = _optimizer(model)

    def train_with(name: str) -> Callable[[], None]:
        def train() -> None:
            with variant(model, family, name):
                _loss_and_gradients(model, *batch)
            optimizer.step()

        return train

    calls: dict[str, Callable[[], Any]] = {row.name: train_with(row.name) for row in result.rows}
    calls[timing.YARDSTICK] = timing.yardstick()
    kept = frozenset(calls)
    samples = timing.interleave(calls, repeat=repeat, keep=kept, left_s=budget.left_s, warm=True)
    for row in result.rows:
        row.timed = Timed.of(samples[row.name])
    result.crowding = timing.crowding(samples[timing.YARDSTICK], step.threads)
    if (rounds := len(samples[timing.YARDSTICK].wall)) < repeat:
        result.notes.append(f"{rounds} of {repeat} rounds fit into the budget")


def _check(result: Result, model: nn.Module, family: Family, batch: tuple[Tensor, Tensor]) -> None:
    """Compare gradients with the last variant's, a peer's if there is one; drop what is something else."""
    wanted: Tensor | None = None
    for row in reversed(list(result.rows)):
        with variant(model, family, row.name):
            row.loss = _loss_and_gradients(model, *batch).item()
        gradients = _flat_gradients(model)
        wanted = gradients if wanted is None else wanted
        row.gradient_error = tensor_error("gradients", gradients, wanted).relative_rms
        if not row.gradient_error <= WRONG:
            result.rows.remove(row)
            error = f"{row.gradient_error:.1e}"
            result.notes.append(f"{row.name} is WRONG: its gradients are {error} away from the last one's")
    model.zero_grad(set_to_none=True)


def _weigh(result: Result, step: Step, budget: Budget) -> None:
    for row in result.rows:
        if budget.left_s() <= 0:
            result.notes.append(f"memory of {row.name} skipped: the budget is spent")
            continue
        try:
            row.peak_bytes = memory.in_fresh_process(peak_of_first_step, step, row.name)
        except memory.NotMeasuredError as error:
            result.notes.append(f"memory of {row.name} not measured: {error}")


def peak_of_first_step(step: Step, name: str) -> int:
    """Peak bytes of this process during one step, beyond the model."""
    model, batch = step.network(), step.images_and_classes()
    optimizer = _optimizer(model)

    def train() -> None:
        with variant(model, step.family, name):
            _loss_and_gradients(model, *batch)
        optimizer.step()

    return memory.rise_of(train)


def lines(step: Step, result: Result) -> Iterator[str]:
    """The result for people."""
    yield (
        f"{step.model}, {step.image_size} px, batch {step.batch}: one training step; seconds are medians "
        "(quartiles) of wall time\n"
    )
    yield f"  {'':24}{'s':>28}{'CPU s':>9}{'MiB':>9}{'loss':>10}{'gradients':>11}\n"
    for row in result.rows:
        assert row.timed is not None
        wall = row.timed.wall
        time = f"{wall.median:.3f} ({wall.low:.3f}-{wall.high:.3f})"
        peak = "-" if row.peak_bytes is None else f"{row.peak_bytes / 2**20:.0f}"
        yield (
            f"  {row.name:24}{time:>28}{row.timed.cpu.median:>9.3f}{peak:>9}{row.loss:>10.5f}"
            f"{row.gradient_error:>11.1e}\n"
        )
    for verdict in verdicts(step, result):
        wanted = ""
        if verdict["bar"] is not None:
            wanted = f"; wanted {verdict['bar']:g} x: {'pass' if verdict['passed'] else 'FAIL'}"
        verb = "needs" if verdict["quantity"] == "memory" else "takes"
        yield f"  {verdict['quantity']}: {verdict['peer']} {verb} {verdict['ratio']:.1f} x as much{wanted}\n"
    for note in result.notes:
        yield f"  note: {note}\n"
    if result.crowding > timing.BUSY:
        yield (
            f"  WARNING: busy machine, a matrix product took {result.crowding:.1f} times what its CPU time "
            "explains; trust the ratio of CPU time\n"
        )


def verdicts(step: Step, result: Result) -> list[dict[str, Any]]:
    """Ratios of the best peer to the judged backend, with their bars."""
    bars, found = step.bars, []
    for quantity, cost, bar in (
        ("time", wall_s, bars.time if bars else None),
        ("CPU time", cpu_s, None),
        ("memory", peak_bytes, bars.memory if bars else None),
    ):
        best = result.best_peer(cost)
        if best is not None:
            peer, ratio = best
            passed = None if bar is None else ratio >= bar
            found.append({"quantity": quantity, "peer": peer, "ratio": ratio, "bar": bar, "passed": passed})
    return found


def records(step: Step, result: Result) -> Iterator[dict[str, Any]]:
    """The result as JSON records."""
    yield {"kind": "machine", **machine.describe(), "versions": {"vmamba2": vmamba2.__version__}}
    yield {"kind": "step", **asdict(step), "crowding": round(result.crowding, 3)}
    yield from ({"kind": "training step", **asdict(row)} for row in result.rows)
    yield from ({"kind": "verdict", **verdict} for verdict in verdicts(step, result))
    yield from ({"kind": "note", "text": note} for note in result.notes)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="vmamba2 benchmark", description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--model", default="vmamba2_tiny")
    add("--image-size", type=int, default=224)
    add("--batch", type=int, default=4)
    add("--backend", default="cpu", help="the backend that is judged (default: cpu)")
    add(
        "--against",
        default=f"{PEERS},chunked",
        help="comma-separated: peers, the name of one, names of backends",
    )
    add("--repeat", type=int, default=3, help="rounds of timing (default: 3)")
    add("--threads", type=int, default=2, help="of PyTorch (default: 2)")
    add("--no-memory", action="store_true", help="leave out peak memory")
    add("--budget-s", type=float, help="begin no round that does not fit into so many seconds")
    add("--json", type=Path, metavar="FILE", help="also write every figure as JSON lines")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the comparison of the command line.

    Returns:
        0 when it was measured, whatever the ratios; 1 when a backend cannot run here or the judged one
        computes something else; 2 for a name that there is none of.
    """
    options = _parser().parse_args(arguments)
    step = Step(options.model, options.image_size, options.batch, options.threads)
    try:
        names = _names(options, family_of(options.model))
    except ValueError as error:
        sys.stderr.write(f"benchmark: {error}\n")
        return 2
    for name in names:
        if name in BACKENDS and (reasons := backends()[name]):
            sys.stderr.write(f"benchmark: backend {name!r} cannot run here: {'; '.join(reasons)}\n")
            return 1
    budget = Budget(options.budget_s)
    result = measure(step, names, repeat=options.repeat, weigh=not options.no_memory, budget=budget)
    sys.stdout.writelines(lines(step, result))
    if options.json:
        text = "".join(json.dumps(record) + "\n" for record in records(step, result))
        options.json.write_text(text, encoding="utf-8")
    return 0 if any(row.name == result.judged for row in result.rows) else 1


def _names(options: argparse.Namespace, family: Family) -> list[str]:
    against = [name for name in options.against.split(",") if name]
    if options.backend not in (known := ["auto", *BACKENDS]):
        raise ValueError(unknown("backend", options.backend, known))
    for name in against:
        if name not in (allowed := [PEERS, *family.peers, *known]):
            raise ValueError(unknown("backend or peer", name, allowed))
    peers = [name for name in family.peers if PEERS in against or name in against]
    others = [name for name in against if name in known]
    return list(dict.fromkeys([options.backend, *others, *peers]))
