"""What a scan has to compute and to move, counted from its sizes.

SSD scans: operations of the matrix products (two per multiply-add) that the scan in chunks of Q tokens cannot
do without; Q = 32 forward and 64 backward, where the sum is near its smallest on CPUs, or one chunk when
L <= 64. A pair is a token and one that it reads, itself included, so only the causal half counts. A product
costs a pair N multiply-adds for each group or P for each head, and a token with the state N P for each head:

    forward    each pair and group: C B^T
               each pair and head: its product with dt x
               each token behind the first chunk: C S
               each token before the last chunk, or each where the final state is a result: what it adds
    backward   each pair and group: C B^T, dC, dB
               each pair and head: dy x^T, dx, and with a gate y
               each token that a state concerns: the state again, dS, dC, dB, dx, and with a gate y

A grid counts once for each direction. Exponentials, decays and steps are not counted.

Selective scans: exponentials, one for each token, channel and state, and as many again in backward, whose
states have to be computed again.

Bytes: every float32 input read once and every output written once.
"""

from typing import NamedTuple

from ops_ascend.benchmark.candidates import FORWARD
from ops_ascend.benchmark.cases import DIRECTIONS, Case, GridShape, SelectiveShape, SSDShape

FORWARD_CHUNK, BACKWARD_CHUNK = 32, 64


class Amount(NamedTuple):
    """Operations of matrix products, exponentials, and bytes."""

    flops: int
    exps: int
    moved_bytes: int

    def plus(self, other: "Amount") -> "Amount":
        """Add up."""
        return Amount(*(a + b for a, b in zip(self, other, strict=True)))


def amount(case: Case, which: str) -> Amount:
    """What a case needs: forward, or forward and backward."""
    count = _selective if isinstance(case.shape, SelectiveShape) else _ssd
    forward = count(case, backward=False)
    return forward if which == FORWARD else forward.plus(count(case, backward=True))


def _pairs(seqlen: int, chunk: int) -> int:
    """Pairs of a token and one that is not after it, within the chunks of a sequence."""
    full, rest = divmod(seqlen, chunk)
    return full * chunk * (chunk + 1) // 2 + rest * (rest + 1) // 2


def _ssd(case: Case, *, backward: bool) -> Amount:
    shape = case.shape
    assert isinstance(shape, SSDShape | GridShape)
    grid = isinstance(shape, GridShape)
    seqlen, chunk = shape.seqlen, BACKWARD_CHUNK if backward else FORWARD_CHUNK
    if seqlen <= BACKWARD_CHUNK:
        chunk = BACKWARD_CHUNK
    group, head = shape.ngroups * shape.dstate, shape.nheads * shape.headdim
    pairs, through_states = _pairs(seqlen, chunk), max(0, seqlen - chunk)
    if backward:
        products = pairs * (3 * group + 2 * head) + 5 * through_states * head * shape.dstate
        if grid:
            products += pairs * head + through_states * head * shape.dstate
    else:
        into_states = through_states if grid else seqlen
        products = pairs * (group + head) + (through_states + into_states) * head * shape.dstate
    scans = shape.batch * (DIRECTIONS if grid else 1)
    return Amount(2 * scans * products, 0, _ssd_bytes(shape, backward=backward))


def _ssd_bytes(shape: SSDShape | GridShape, *, backward: bool) -> int:
    tokens = shape.batch * shape.seqlen
    x, dt, B = shape.nheads * shape.headdim, shape.nheads, shape.ngroups * shape.dstate
    gate = int(isinstance(shape, GridShape))
    if backward:
        return 4 * tokens * ((3 + 2 * gate) * x + 2 * dt + 4 * B)
    states = 0 if gate else shape.batch * x * shape.dstate
    return 4 * (tokens * ((2 + gate) * x + dt + 2 * B) + states)


def _selective(case: Case, *, backward: bool) -> Amount:
    shape = case.shape
    assert isinstance(shape, SelectiveShape)
    tokens = shape.batch * shape.seqlen
    channels, states = (5, 4) if backward else (3, 2)
    moved = 4 * tokens * (channels * shape.dim + states * shape.dstate)
    return Amount(0, tokens * shape.dim * shape.dstate, moved)
