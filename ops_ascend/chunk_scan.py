"""One batch slice of the chunked Mamba-2 scan: the matrix products inside chunks and the states between them.

Inside a chunk of Q tokens the scan is a masked matrix product, between chunks only the states pass
(arXiv:2405.21060, section 6 and Listing 1). With `cs` the cumulative sum of dt A inside a chunk and S the
state at its start:

    y_l    = sum_{s <= l} exp(cs_l - cs_s) (C_l . B_s) dt_s x_s  +  exp(cs_l) S C_l
    S_next = exp(cs_last) S  +  sum_s exp(cs_last - cs_s) dt_s x_s B_s^T

Layout: a span is `nchunks` chunks of equal size Q. Batch, chunk and group form one leading axis Z, so that
each product is a bmm; the R heads of a group share B, C and C B^T. States are (Z, N, R * P).
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class ScanInputs:
    """A slice of the batch, steps already biased, softplussed and clamped.

    Attributes:
        x: (b, L, H, P).
        step: (b, L, H), float32 or wider; its dtype is that of the whole computation.
        A: (H,), in the dtype of step.
        B: (b, L, G, N).
        C: (b, L, G, N).
        states: (b, H, P, N), the state before the first token, in the dtype of step, or None for zeros.
        segments: (b, L), ids that grow where a new packed sequence begins, or None.
        chunk_size: tokens of a chunk at most.
    """

    x: Tensor
    step: Tensor
    A: Tensor
    B: Tensor
    C: Tensor
    states: Tensor | None
    segments: Tensor | None
    chunk_size: int


@dataclass(frozen=True)
class ScanGradients:
    """Gradients of the tensors in ScanInputs, same shapes, in the dtype of step."""

    x: Tensor
    step: Tensor
    A: Tensor
    B: Tensor
    C: Tensor
    states: Tensor


def chunk_length(seqlen: int, chunk_size: int) -> int:
    """Tokens per chunk: equal chunks when the sequence allows them, never more than chunk_size.

    A sequence that fits is one chunk. Otherwise the largest divisor of seqlen above half of chunk_size spares
    the ragged span; without one, chunks of chunk_size are followed by a shorter one.
    """
    if seqlen <= chunk_size:
        return max(seqlen, 1)
    for length in range(chunk_size, chunk_size // 2, -1):
        if seqlen % length == 0:
            return length
    return chunk_size


def scan_slice(inputs: ScanInputs) -> tuple[Tensor, Tensor]:
    """Scan a slice.

    Returns:
        y, (b, L, H, P), and the states after the last token, (b, H, P, N), both in the dtype of step.
    """
    y = torch.empty_like(inputs.x, dtype=inputs.step.dtype, memory_format=torch.contiguous_format)
    states = _first_states(inputs)
    for span in _spans(inputs):
        products = _ChunkProducts(inputs, span)
        starts, states = products.pass_states(states)
        span.store(products.outputs(starts), y)
    return y, _states_to_public(states)


def scan_slice_backward(
    inputs: ScanInputs, dy: Tensor, dstates: Tensor, *, with_y: bool
) -> tuple[ScanGradients, Tensor | None]:
    """Gradients of scan_slice.

    Args:
        inputs: what scan_slice was given.
        dy: (b, L, H, P), any floating dtype.
        dstates: (b, H, P, N), gradient of the final states, in the dtype of step.
        with_y: also recompute y.
    """
    starts_of_spans = []
    states = _first_states(inputs)
    spans = list(_spans(inputs))
    for span in spans:
        starts, states = _ChunkProducts(inputs, span).pass_states(states)
        starts_of_spans.append(starts)
    gradients = _empty_gradients(inputs)
    y = torch.empty_like(gradients.x) if with_y else None
    carried = _states_from_public(dstates, inputs)
    for span, starts in zip(reversed(spans), reversed(starts_of_spans), strict=True):
        products = _ChunkProducts(inputs, span)
        carried = products.backward(starts, span.heads(dy), carried, gradients)
        if y is not None:
            span.store(products.outputs(starts), y)
    gradients.states.copy_(_states_to_public(carried))
    return gradients, y


@dataclass(frozen=True)
class _Span:
    """`nchunks` equal chunks of `length` tokens from token `start` on."""

    start: int
    nchunks: int
    length: int
    ngroups: int
    dtype: torch.dtype

    def chunks(self, tokens: Tensor) -> Tensor:
        """(b, L, ...) -> (b, nchunks, Q, ...), a view."""
        stop = self.start + self.nchunks * self.length
        return tokens[:, self.start : stop].unflatten(1, (self.nchunks, self.length))

    def heads(self, tokens: Tensor) -> Tensor:
        """(b, L, H, ...) -> (Z, Q, R, ...) in the dtype of the computation."""
        return self.groups(tokens.unflatten(2, (self.ngroups, -1)))

    def groups(self, tokens: Tensor) -> Tensor:
        """(b, L, G, ...) -> (Z, Q, ...) in the dtype of the computation."""
        return self.chunks(tokens).movedim(3, 2).to(self.dtype).flatten(0, 2)

    def store(self, values: Tensor, out: Tensor) -> None:
        """Write (Z, Q, ...) into the tokens of out, (b, L, ...), heads or groups alike."""
        tokens = self.chunks(out)
        grouped = values.unflatten(0, (tokens.shape[0], self.nchunks, self.ngroups)).movedim(2, 3)
        tokens.copy_(grouped.reshape(tokens.shape))


class _ChunkProducts:
    """The chunk-local quantities of a span and what forward and backward make of them."""

    def __init__(self, inputs: ScanInputs, span: _Span) -> None:
        self.span = span
        self.step = span.heads(inputs.step)  # (Z, Q, R)
        self.x = span.heads(inputs.x)  # (Z, Q, R, P)
        self.B = span.groups(inputs.B)  # (Z, Q, N)
        self.C = span.groups(inputs.C)
        self.A = inputs.A.view(span.ngroups, 1, -1)  # (G, 1, R)
        self.dx = self.x * self.step.unsqueeze(-1)  # dt x: what a token adds to the state
        self._batch = inputs.x.shape[0]
        log_decay = (self.step.unflatten(0, (-1, span.ngroups)) * self.A).flatten(0, 1)
        self.cs, self.cs_low = _exact_cumsum(log_decay)
        self.hidden = _hidden_pairs(inputs.segments, span, self.x.device)
        self._decay_to_and_from_chunk_ends(inputs.segments)

    def _decay_to_and_from_chunk_ends(self, segments: Tensor | None) -> None:
        """Set enter, the decay from the chunk's start to a token, and leave, from there to its end."""
        last = slice(-1, None)
        self.enter = torch.exp(self.cs + self.cs_low)
        self.leave = torch.exp((self.cs[:, last] - self.cs) + (self.cs_low[:, last] - self.cs_low))
        if segments is None:
            return
        own = self.span.chunks(segments)  # (b, n, Q)
        before = segments[:, max(self.span.start - 1, 0), None]
        # The segment that the state at each chunk's start belongs to, (b, n).
        previous = torch.cat([before, own[:, :-1, -1]], dim=1)
        for decay, seen in (
            (self.enter, own == previous.unsqueeze(-1)),
            (self.leave, own == own[:, :, last]),
        ):
            decay.masked_fill_(~_per_group(seen, self.span.ngroups).unsqueeze(-1), 0.0)

    def pass_states(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Run the states through the chunks.

        Args:
            states: (b, G, N, R, P) before the span.

        Returns:
            The state at the start of each chunk, (Z, N, R * P), and the states after the span.
        """
        added = torch.bmm(self.B.mT, (self.dx * self.leave.unsqueeze(-1)).flatten(2))
        chunks = self._by_chunk(added, states.shape)
        carry = self._carry()
        for chunk in range(self.span.nchunks):
            following = torch.addcmul(chunks[:, chunk], carry[:, chunk], states)
            chunks[:, chunk].copy_(states)
            states = following
        return added, states

    def outputs(self, starts: Tensor) -> Tensor:
        """The scan's y of each token, (Z, Q, R, P), from the states at the chunks' starts."""
        y = torch.bmm(self.C, starts).unflatten(2, self.x.shape[2:])
        y *= self.enter.unsqueeze(-1)
        CB = torch.bmm(self.C, self.B.mT)
        for head in range(self.x.shape[2]):
            weights = self._decay_between_tokens(head).mul_(CB)
            y[:, :, head].add_(torch.bmm(weights, self.dx[:, :, head]))
        return y

    def backward(self, starts: Tensor, dy: Tensor, dstates: Tensor, out: ScanGradients) -> Tensor:
        """Add this span's gradients to out; return the gradient of the states before it, (b, G, N, R, P)."""
        dy_entered = (dy * self.enter.unsqueeze(-1)).flatten(2)  # (Z, Q, R * P)
        dnext, dstates = self._pass_states_backward(torch.bmm(self.C.mT, dy_entered), dstates)
        # What the chunk's end and start states contribute, then the tokens among themselves.
        dx_left = torch.bmm(self.B, dnext).unflatten(2, self.x.shape[2:]) * self.leave.unsqueeze(-1)
        into_end = (dx_left * self.dx).sum(-1)
        from_start = (dy_entered * torch.bmm(self.C, starts)).unflatten(2, self.x.shape[2:]).sum(-1)
        through = self._carry_gradient(starts, dnext)  # (Z, 1, R)
        dC = torch.bmm(dy_entered, starts.mT)
        dB = torch.bmm((self.dx * self.leave.unsqueeze(-1)).flatten(2), dnext.mT)
        ddx, dcs, dCB = self._among_tokens_backward(dy, dx_left)
        dC.baddbmm_(dCB, self.B)
        dB.baddbmm_(dCB.mT, self.C)
        # cs is a prefix sum, so the log decay of a token collects what reads across it: tokens behind it from
        # the start, tokens before it into the end. Both sums only ever add, for a difference of totals would
        # leave the rounding of the largest term on the smallest.
        dlog_decay = _suffix_sum(dcs).to(dy.dtype) + _suffix_sum(from_start) + _sum_before(into_end) + through
        self._store_gradients(ddx, dlog_decay, dB, dC, out)
        return dstates

    def _pass_states_backward(self, added: Tensor, dstates: Tensor) -> tuple[Tensor, Tensor]:
        """The gradient of the state after each chunk, (Z, N, R * P), and of the state before the span."""
        chunks = self._by_chunk(added, dstates.shape)
        carry = self._carry()
        for chunk in reversed(range(self.span.nchunks)):
            preceding = torch.addcmul(chunks[:, chunk], carry[:, chunk], dstates)
            chunks[:, chunk].copy_(dstates)
            dstates = preceding
        return added, dstates

    def _among_tokens_backward(self, dy: Tensor, dx_left: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients through the masked products: of dt x (added to dx_left in place), of cs, of C B^T."""
        CB = torch.bmm(self.C, self.B.mT)
        dCB = torch.zeros_like(CB)
        wide = _sum_dtype(self.cs)
        dcs = torch.empty_like(self.cs, dtype=wide)
        for head in range(self.x.shape[2]):
            decay = self._decay_between_tokens(head)
            dweights = torch.bmm(dy[:, :, head], self.dx[:, :, head].mT).mul_(decay)
            dCB += dweights
            dx_left[:, :, head].add_(torch.bmm(decay.mul_(CB).mT, dy[:, :, head]))
            through_decay = dweights.mul_(CB)
            # A token's decay to itself is exp(0): left out, or strong decays drown the rest in its rounding.
            through_decay.diagonal(dim1=1, dim2=2).zero_()
            dcs[:, :, head] = through_decay.sum(2, dtype=wide) - through_decay.sum(1, dtype=wide)
        return dx_left, dcs, dCB

    def _store_gradients(
        self, ddx: Tensor, dlog_decay: Tensor, dB: Tensor, dC: Tensor, out: ScanGradients
    ) -> None:
        store, ngroups = self.span.store, self.span.ngroups
        grouped = dlog_decay.unflatten(0, (-1, ngroups))  # (b * n, G, Q, R)
        dstep = (ddx * self.x).sum(-1) + (grouped * self.A).flatten(0, 1)
        out.A.add_((grouped * self.step.unflatten(0, (-1, ngroups))).sum((0, 2)).flatten())
        store(dstep, out.step)
        store(ddx.mul_(self.step.unsqueeze(-1)), out.x)
        store(dB, out.B)
        store(dC, out.C)

    def _carry_gradient(self, starts: Tensor, dnext: Tensor) -> Tensor:
        """Gradient of cs_last through the decay of the whole chunk, (Z, 1, R)."""
        heads, headdim = self.x.shape[2:]
        per_head = (starts * dnext).sum(1).unflatten(1, (heads, headdim)).sum(-1)
        return (per_head * self.enter[:, -1]).unsqueeze(1)

    def _decay_between_tokens(self, head: int) -> Tensor:
        """exp(cs_l - cs_s) for s <= l and 0 elsewhere, (Z, Q, Q), a fresh tensor."""
        cs, low = self.cs[:, :, head], self.cs_low[:, :, head]
        difference = cs.unsqueeze(2) - cs.unsqueeze(1)
        difference += low.unsqueeze(2)
        difference -= low.unsqueeze(1)
        # Masked before exp: above the diagonal exp overflows, and 0 * inf would be NaN in backward.
        return difference.masked_fill_(self.hidden, -torch.inf).exp_()

    def _by_chunk(self, states: Tensor, shape: torch.Size) -> Tensor:
        """View (Z, N, R * P) as (b, n, G, N, R, P); shape is (b, G, N, R, P)."""
        batch, ngroups, dstate, heads, headdim = shape
        return states.view(batch, self.span.nchunks, ngroups, dstate, heads, headdim)

    def _carry(self) -> Tensor:
        """Decay over each whole chunk, (b, n, G, 1, R, 1)."""
        leading = (self._batch, self.span.nchunks, self.span.ngroups)
        return self.enter[:, -1].unflatten(0, leading)[..., None, :, None]


def _exact_cumsum(values: Tensor) -> tuple[Tensor, Tensor]:
    """Cumulative sum along dimension 1 as an exact part and a small rest, both in the dtype of values.

    Differences of a plain float32 sum lose a small decay beside a large one. Here each value is rounded to a
    grid coarse enough that every partial sum is exact, and the remainders are summed apart; unlike a float64
    sum this runs on devices without float64.
    """
    # Adding and subtracting 2 Q max|v| rounds to its last bit, and no partial sum reaches half of it.
    anchor = values.abs().amax(1, keepdim=True) * (2 * values.shape[1])
    rounded = (values + anchor) - anchor
    return rounded.cumsum(1), (values - rounded).cumsum(1)


def _sum_dtype(values: Tensor) -> torch.dtype:
    """Of the row and column sums whose difference is the gradient of cs: they cancel almost entirely."""
    return torch.float64 if values.device.type in ("cpu", "cuda") else values.dtype


def _suffix_sum(values: Tensor) -> Tensor:
    return values.flip(1).cumsum(1).flip(1)


def _sum_before(values: Tensor) -> Tensor:
    return F.pad(values[:, :-1], (0, 0, 1, 0)).cumsum(1)


def _hidden_pairs(segments: Tensor | None, span: _Span, device: torch.device) -> Tensor:
    """True where token l (row) must not see token s (column), (Q, Q) or (Z, Q, Q)."""
    later = torch.ones(span.length, span.length, dtype=torch.bool, device=device).triu(1)
    if segments is None:
        return later
    own = span.chunks(segments)
    return _per_group(later | (own.unsqueeze(-1) != own.unsqueeze(-2)), span.ngroups)


def _per_group(mask: Tensor, ngroups: int) -> Tensor:
    """(b, n, ...) -> (Z, ...), the same for every group."""
    return mask.unsqueeze(2).expand(-1, -1, ngroups, *mask.shape[2:]).flatten(0, 2)


def _spans(inputs: ScanInputs) -> list[_Span]:
    seqlen, ngroups, dtype = inputs.x.shape[1], inputs.B.shape[2], inputs.step.dtype
    length = chunk_length(seqlen, inputs.chunk_size)
    nchunks, rest = divmod(seqlen, length)
    spans = [_Span(0, nchunks, length, ngroups, dtype)] if nchunks else []
    if rest:
        spans.append(_Span(nchunks * length, 1, rest, ngroups, dtype))
    return spans


def _first_states(inputs: ScanInputs) -> Tensor:
    batch, _, nheads, headdim = inputs.x.shape
    ngroups, dstate = inputs.B.shape[2:]
    if inputs.states is not None:
        return _states_from_public(inputs.states, inputs)
    return inputs.step.new_zeros(batch, ngroups, dstate, nheads // ngroups, headdim)


def _states_from_public(states: Tensor, inputs: ScanInputs) -> Tensor:
    """(b, H, P, N) -> (b, G, N, R, P)."""
    return states.unflatten(1, (inputs.B.shape[2], -1)).permute(0, 1, 4, 2, 3)


def _states_to_public(states: Tensor) -> Tensor:
    """(b, G, N, R, P) -> (b, H, P, N)."""
    return states.permute(0, 1, 3, 4, 2).flatten(1, 2)


def _empty_gradients(inputs: ScanInputs) -> ScanGradients:
    def like(tensor: Tensor) -> Tensor:
        return torch.empty_like(tensor, dtype=inputs.step.dtype, memory_format=torch.contiguous_format)

    batch, _, nheads, headdim = inputs.x.shape
    return ScanGradients(
        x=like(inputs.x),
        step=like(inputs.step),
        A=torch.zeros_like(inputs.A),
        B=like(inputs.B),
        C=like(inputs.C),
        states=inputs.step.new_empty(batch, nheads, headdim, inputs.B.shape[3]),
    )
