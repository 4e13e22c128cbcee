"""Print which backend supports what: `python -m ops_ascend.support`, or `vmamba2 support`.

Each row is a kind of call, outputs and gradients; the table asks the backends themselves, and the tests run
every row.
"""

import argparse
import functools
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
        seqlen: L.
        shared: whether B and C of a selective scan have no group axis.
        without: tensors that the call leaves out.
        options: arguments that the call changes.
    """

    op: str
    title: str
    dtype: torch.dtype = torch.float32
    headdim: int = 8
    dstate: int = 8
    batch: int = 2
    seqlen: int = 12
    shared: bool = False
    without: tuple[str, ...] = ()
    options: tuple[tuple[str, Any], ...] = ()

    def example(self) -> tuple[Callable[..., Any], dict[str, Tensor]]:
        """A small call of this kind: the operator with its options, but without its backend; its tensors."""
        options: dict[str, Any] = dict(self.options)
        if self.op == "selective_scan":
            sizes = (self.batch, 4, self.seqlen, 1 if self.shared else 2, self.dstate)
            tensors = random_selective(sizes, self.dtype)
            if self.shared:
                tensors |= {name: tensors[name].squeeze(1) for name in ("B", "C")}
            options |= {"delta_softplus": True}
        else:
            tensors = random_ssd((self.batch, self.seqlen, 4, self.headdim, 2, self.dstate), self.dtype)
            options = {"chunk_size": 8, "dt_softplus": True} | options
        if self.op == "ssd_cross_scan":
            options |= {"height": self.seqlen // 4, "width": 4}
            del tensors["initial_states"]
        if options.pop("skip", None) == "head":
            tensors["D"] = tensors["D"].sum(1)
        left = {name: t for name, t in tensors.items() if name not in self.without}
        operator = _OPERATORS[self.op]
        return lambda **arguments: operator(**options, **arguments), left

    def request(self, device_type: str) -> Request:
        """What a backend is asked about a call of this kind."""
        headdim = 1 if self.op == "selective_scan" else self.headdim
        return Request(self.op, device_type, self.dtype, headdim, self.dstate, gradients=True)


_SEQ_IDX = torch.tensor([0] * 5 + [1] * 7).repeat(2, 1)
_SSD = functools.partial(Feature, "ssd_scan")
_CROSS = functools.partial(Feature, "ssd_cross_scan", options=(("directions", 4),))
_SELECTIVE = functools.partial(Feature, "selective_scan")
FEATURES = (
    _SSD("float32; D (H, P), z, dt_bias, softplus, initial and final states"),
    _SSD("bfloat16", dtype=torch.bfloat16),
    _SSD("float16", dtype=torch.float16),
    _SSD("float64", dtype=torch.float64),
    _SSD("D (H,)", options=(("skip", "head"),)),
    _SSD("without D, z, dt_bias, initial states", without=("D", "z", "dt_bias", "initial_states")),
    _SSD("dt_limit", options=(("dt_limit", (0.01, 0.05)),)),
    _SSD("seq_idx", options=(("seq_idx", _SEQ_IDX),)),
    _SSD("chunk_size 512", options=(("chunk_size", 512),)),
    _SSD("1 token", seqlen=1),
    _SSD("headdim and dstate 1", headdim=1, dstate=1),
    _SSD("headdim and dstate 256", headdim=256, dstate=256),
    _SSD("headdim 257", headdim=257),
    _SSD("dstate 257", dstate=257),
    _SSD("empty batch", batch=0),
    _SSD("empty sequence", seqlen=0),
    _CROSS("1 direction", options=(("directions", 1),)),
    _CROSS("2 directions", options=(("directions", 2),)),
    _CROSS("4 directions"),
    _CROSS("bfloat16", dtype=torch.bfloat16),
    _CROSS("float16", dtype=torch.float16),
    _CROSS("float64", dtype=torch.float64),
    _CROSS("D (H,)", options=(("directions", 4), ("skip", "head"))),
    _CROSS("without D, z, dt_bias", without=("D", "z", "dt_bias")),
    _CROSS("headdim 257", headdim=257),
    _CROSS("dstate 257", dstate=257),
    _CROSS("empty batch", batch=0),
    _SELECTIVE("float32; B and C of groups, D, z, delta_bias, softplus, last state"),
    _SELECTIVE("bfloat16", dtype=torch.bfloat16),
    _SELECTIVE("float16", dtype=torch.float16),
    _SELECTIVE("float64", dtype=torch.float64),
    _SELECTIVE("B and C without groups", shared=True),
    _SELECTIVE("without D, z, delta_bias", without=("D", "z", "delta_bias")),
    _SELECTIVE("1 token", seqlen=1),
    _SELECTIVE("dstate 1", dstate=1),
    _SELECTIVE("dstate 256", dstate=256),
    _SELECTIVE("dstate 257", dstate=257),
    _SELECTIVE("empty batch", batch=0),
    _SELECTIVE("empty sequence", seqlen=0),
)


def refusals(feature: Feature, name: str) -> list[str]:
    """Why a backend, where it can run at all, does not take a kind of call."""
    backend: Backend = BACKENDS[name]
    return backend.refuses(feature.request(_DEVICES.get(name, "cpu")))


def _cell(feature: Feature, name: str, notes: list[str]) -> str:
    reasons = refusals(feature, name)
    if not reasons:
        return "native" if name in ("ascendc", "cpu", "twin") else "PyTorch"
    note = "; ".join(reasons)
    if note not in notes:
        notes.append(note)
    word = "fallback" if BACKENDS[name].auto_on else "refused"
    return f"{word} ({notes.index(note) + 1})"


def table() -> str:
    """The support matrix as Markdown; the same on every machine."""
    names = list(BACKENDS)
    notes: list[str] = []
    rows = [
        f"| operator | call, forward and backward | {' | '.join(names)} |",
        "|---" * (2 + len(names)) + "|",
    ]
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
