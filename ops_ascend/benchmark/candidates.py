"""What runs on a case: the backend that is judged, and what it is compared with."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ops_ascend import dispatch
from ops_ascend.benchmark import installed_peers, selective_peers, ssd_peers
from ops_ascend.benchmark.cases import Case, GridShape, SelectiveShape

FORWARD, FORWARD_BACKWARD = "forward", "forward+backward"
WORKS = (FORWARD, FORWARD_BACKWARD)
# Of the customary chunk sizes 64 to 256, and of smaller ones, what suits peers on CPUs best.
PEER_CHUNKS = (32, 64)
COMPILED_CHUNK = 64


@dataclass(frozen=True)
class Candidate:
    """Something that computes an operator.

    Attributes:
        name: in tables and on the command line of a memory measurement.
        kind: "backend" for ours; "published" for a form or a function that people use; "strengthened" for a
            peer that is faster than what is published; "compiled" for a form under torch.compile.
        run: takes a case's tensors by name and returns y.
        works: what it is timed on.
        backward_growth: how its backward grows with the length: linearly (1) or quadratically (2).
    """

    name: str
    kind: str
    run: Callable[..., Tensor]
    works: tuple[str, ...] = WORKS
    backward_growth: int = 1


@dataclass(frozen=True)
class Selection:
    """Which candidates a case has.

    Attributes:
        backend: the backend that is judged.
        others: further backends to run beside it.
        peers: whether to run the peers.
        compiled: whether to run the einsum form under torch.compile.
        peer_chunks: chunk sizes that the SSD peers try beside the case's own.
    """

    backend: str
    others: tuple[str, ...] = ()
    peers: bool = True
    compiled: bool = False
    peer_chunks: tuple[int, ...] = PEER_CHUNKS

    def candidates(self, case: Case, only: str | None = None) -> list[Candidate]:
        """The candidates of a case, the judged backend first; or the one of a name."""
        found = [_backend(case, name) for name in dict.fromkeys((self.backend, *self.others))]
        if self.peers:
            found += _PEERS[case.op](case, self.peer_chunks, only)
        if self.compiled and case.op == "ssd_scan":
            found.append(_compiled())
        return [candidate for candidate in found if only in (None, candidate.name)]

    def left_out(self, op: str) -> list[str]:
        """Which peers of other packages cannot take part in an operator's cases, and why."""
        return installed_peers.usable(op)[1] if self.peers else []


def _backend(case: Case, name: str) -> Candidate:
    shape, options = case.shape, case.options()
    if isinstance(shape, SelectiveShape):

        def run(**tensors: Any) -> Tensor:
            return dispatch.selective_scan(**tensors, delta_softplus=True, backend=name)[0]

    elif isinstance(shape, GridShape):

        def run(**tensors: Any) -> Tensor:
            fixed: dict[str, Any] = {"chunk_size": shape.chunk_size, "dt_softplus": True, "backend": name}
            return dispatch.ssd_cross_scan(**tensors, **options, **fixed)

    else:

        def run(**tensors: Any) -> Tensor:
            fixed: dict[str, Any] = {"chunk_size": shape.chunk_size, "dt_softplus": True, "backend": name}
            return dispatch.ssd_scan(**tensors, **fixed)[0]

    return Candidate(name, "backend", run)


def _chunks(case: Case, peer_chunks: tuple[int, ...]) -> list[int]:
    assert not isinstance(case.shape, SelectiveShape)
    return list(dict.fromkeys((case.shape.chunk_size, *peer_chunks)))


def _ssd_peers(case: Case, peer_chunks: tuple[int, ...], only: str | None) -> list[Candidate]:
    found = []
    for chunk in _chunks(case, peer_chunks):
        for form, kind, growth in (
            (ssd_peers.einsum, "published", 1),
            (ssd_peers.segment_sum, "published", 1),
            (ssd_peers.chunk_loop, "published", 2),
            (ssd_peers.chunk_list, "strengthened", 1),
        ):
            run = partial(form, chunk_size=chunk)
            found.append(Candidate(f"{form.__name__} {chunk}", kind, run, backward_growth=growth))
        for peer, function in installed_peers.usable("ssd_scan", only)[0]:
            run = partial(function, chunk_size=chunk)
            growth = peer.backward_growth
            found.append(Candidate(f"{peer.name} {chunk}", "published", run, backward_growth=growth))
    return found


def _cross_peers(case: Case, peer_chunks: tuple[int, ...], only: str | None) -> list[Candidate]:
    found = []
    for chunk in _chunks(case, peer_chunks):
        for form, kind in (
            (ssd_peers.einsum, "published"),
            (ssd_peers.segment_sum, "published"),
            (ssd_peers.chunk_list, "strengthened"),
        ):
            grid = ssd_peers.each_direction(
                partial(form, chunk_size=chunk), hoisted=form is ssd_peers.chunk_list
            )
            run = partial(grid, **case.options())
            found.append(Candidate(f"{form.__name__} {chunk} each direction", kind, run))
    return found


def _selective_peers(case: Case, peer_chunks: tuple[int, ...], only: str | None) -> list[Candidate]:
    found = [
        Candidate("indexed_token_loop", "published", selective_peers.indexed_token_loop, backward_growth=2),
        Candidate("token_loop", "strengthened", selective_peers.token_loop),
    ]
    for peer, function in installed_peers.usable("selective_scan", only)[0]:
        found.append(Candidate(peer.name, "published", function, backward_growth=peer.backward_growth))
    return found


_PEERS = {"ssd_scan": _ssd_peers, "ssd_cross_scan": _cross_peers, "selective_scan": _selective_peers}


def _compiled() -> Candidate:
    form = partial(ssd_peers.einsum, chunk_size=COMPILED_CHUNK, states="matrix")
    run = torch.compile(form, dynamic=False)
    # Forward alone would be compiled once more, and nothing is asked of it.
    return Candidate(f"torch.compile einsum {COMPILED_CHUNK}", "compiled", run, works=(FORWARD_BACKWARD,))


def work(candidate: Candidate, which: str, tensors: dict[str, Tensor], dy: Tensor) -> Callable[[], Any]:
    """One call: forward without gradients, or forward and the gradients of every tensor.

    Args:
        candidate: what is called.
        which: FORWARD or FORWARD_BACKWARD.
        tensors: the case's inputs.
        dy: the gradient of y.
    """
    if which == FORWARD:

        def forward() -> Tensor:
            with torch.no_grad():
                return candidate.run(**tensors)

        return forward
    leaves = {name: t.detach().requires_grad_() for name, t in tensors.items()}

    def forward_backward() -> tuple[Tensor, tuple[Tensor, ...]]:
        y = candidate.run(**leaves)
        return y.detach(), torch.autograd.grad(y, list(leaves.values()), dy)

    return forward_backward


def output_gradient(case: Case) -> Tensor:
    """A gradient for y, the same for every candidate."""
    shape = case.shape
    generator = torch.Generator().manual_seed(1)
    if isinstance(shape, SelectiveShape):
        return torch.randn(shape.batch, shape.dim, shape.seqlen, generator=generator)
    return torch.randn(shape.batch, shape.seqlen, shape.nheads, shape.headdim, generator=generator)
