"""Print which backend supports what: `python -m ops_ascend.support`, or `vmamba2 support`.

Each row is a kind of call; the table asks the backends themselves, and the tests run every row.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ops_ascend.backend import BACKENDS, Backend, backends
from ops_ascend.calls import Request
from ops_ascend.dispatch import selective_scan, ssd_cross_scan, ssd_scan
from ops_ascend.errors import random_selective, random_ssd

_OPERATORS: dict[str, Callable[..., Any]] = {
    "ssd_scan": ssd_scan,
    "ssd_cross_scan": ssd_cross_scan,
    "selective_scan": selective_scan,
}
# What a device of its own means for a backend; the rest is asked about the CPU.
_DEVICES = {"ascendc": "npu"}


@dataclass(frozen=True)
class Feature:
    """One row: a kind of call of an operator.

    Attributes:
        op: the operator.
        title: what the call has, for the table.
        dtype: of x, B, C and z, or of u.
        headdim: P.
        dstate: N.
        batch: B.
        backward: whether the row is about gradients.
        without: tensors that the call leaves out.
        options: arguments that the call changes.
    """

    op: str
    title: str
    dtype: torch.dtype = torch.float32
    headdim: int = 8
    dstate: int = 8
    batch: int = 2
    backward: bool = False
    without: tuple[str, ...] = ()
    options: tuple[tuple[str, Any], ...] = ()

    def example(self) -> tuple[Callable[..., Any], dict[str, Tensor]]:
        """A small call of this kind: the operator with its options, but without its backend; its tensors."""
        options: dict[str, Any] = dict(self.options)
        if self.op == "selective_scan":
            tensors = random_selective((self.batch, 4, 12, 2, self.dstate), self.dtype)
            options |= {"delta_softplus": True}
        else:
            tensors = random_ssd((self.batch, 12, 4, self.headdim, 2, self.dstate), self.dtype)
            options = {"chunk_size": 8, "dt_softplus": True} | options
        if self.op == "ssd_cross_scan":
            options |= {"height": 3, "width": 4}
        left = {name: t for name, t in tensors.items() if name not in self.without}
        operator = _OPERATORS[self.op]
        return lambda **arguments: operator(**options, **arguments), left

    def request(self, device_type: str) -> Request:
        """What a backend is asked about a call of this kind."""
        headdim = 1 if self.op == "selective_scan" else self.headdim
        return Request(self.op, device_type, self.dtype, headdim, self.dstate, self.backward)


_SEQ_IDX = torch.tensor([0] * 5 + [1] * 7).repeat(2, 1)
_CROSS = {"op": "ssd_cross_scan", "without": ("initial_states",)}
FEATURES = (
    Feature("ssd_scan", "float32; D (H, P), z, dt_bias, softplus, initial and final states"),
    Feature("ssd_scan", "bfloat16", dtype=torch.bfloat16),
    Feature("ssd_scan", "float16", dtype=torch.float16),
    Feature("ssd_scan", "float64", dtype=torch.float64),
    Feature("ssd_scan", "without D, z, dt_bias, states", without=("D", "z", "dt_bias", "initial_states")),
    Feature("ssd_scan", "dt_limit", options=(("dt_limit", (0.01, 0.05)),)),
    Feature("ssd_scan", "seq_idx", options=(("seq_idx", _SEQ_IDX),)),
    Feature("ssd_scan", "chunk_size 512", options=(("chunk_size", 512),)),
    Feature("ssd_scan", "headdim and dstate 1", headdim=1, dstate=1),
    Feature("ssd_scan", "headdim and dstate 256", headdim=256, dstate=256),
    Feature("ssd_scan", "headdim 257", headdim=257),
    Feature("ssd_scan", "dstate 257", dstate=257),
    Feature("ssd_scan", "empty batch", batch=0),
    Feature("ssd_scan", "backward", backward=True),
    Feature(title="1 direction", options=(("directions", 1),), **_CROSS),  # type: ignore[arg-type]
    Feature(title="2 directions", options=(("directions", 2),), **_CROSS),  # type: ignore[arg-type]
    Feature(title="4 directions", options=(("directions", 4),), **_CROSS),  # type: ignore[arg-type]
    Feature(title="backward", backward=True, options=(("directions", 4),), **_CROSS),  # type: ignore[arg-type]
    Feature("selective_scan", "forward"),
    Feature("selective_scan", "backward", backward=True),
)


def refusals(feature: Feature, name: str) -> list[str]:
    """Why a backend, where it can run at all, does not take a kind of call."""
    backend: Backend = BACKENDS[name]
    reasons = backend.refuses(feature.request(_DEVICES.get(name, "cpu")))
    if feature.backward and not backend.trains:
        reasons.append("it has no backward yet")
    return reasons


def _cell(feature: Feature, name: str, notes: list[str]) -> str:
    reasons = refusals(feature, name)
    if not reasons:
        return "native" if name in ("ascendc", "twin") else "PyTorch"
    note = "; ".join(reasons)
    if note not in notes:
        notes.append(note)
    word = "fallback" if BACKENDS[name].auto_on else "refused"
    return f"{word} ({notes.index(note) + 1})"


def table() -> str:
    """The support matrix as Markdown; the same on every machine."""
    names = list(BACKENDS)
    notes: list[str] = []
    rows = [f"| operator | call | {' | '.join(names)} |", "|---" * (2 + len(names)) + "|"]
    for feature in FEATURES:
        cells = [_cell(feature, name, notes) for name in names]
        rows.append(f"| {feature.op} | {feature.title} | {' | '.join(cells)} |")
    rows += ["", "fallback: `auto` takes `chunked` and logs why; a backend that is named is never replaced."]
    rows += [f"({i}) {note}" for i, note in enumerate(notes, 1)]
    return "\n".join(rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the support matrix, and what can run on this machine."""
    parser = argparse.ArgumentParser(prog="vmamba2 support", description="Print which backend supports what.")
    parser.parse_args(arguments)
    sys.stdout.write(f"{table()}\n\nOn this machine:\n")
    for name, reasons in backends().items():
        sys.stdout.write(f"  {name:<10} {'; '.join(reasons) or 'can run'}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
