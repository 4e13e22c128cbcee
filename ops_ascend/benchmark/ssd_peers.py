"""The Mamba-2 scan as it is commonly written in PyTorch, gradients by autograd.

Written from the equations of arXiv:2405.21060 (section 6, Listing 1) in the forms that libraries and networks
publish: in all of them each head has its own copy of its group's B and C and the sequence is padded to whole
chunks. Where a form leaves a choice the faster one is taken, and decays are masked before they go through
exp, so that gradients stay finite. `chunk_list` is stronger than what is published: a chunk loop without what
slows the customary one down.

With `cs` the running sum of dt A inside a chunk, u = dt x, and S the state at the chunk's start:

    y_l = sum_{s <= l} exp(cs_l - cs_s) (C_l . B_s) u_s + exp(cs_l) S C_l
    S  <- exp(cs_last) S + sum_s exp(cs_last - cs_s) u_s B_s^T
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ops_ascend.grid import grid_orders, grid_positions


@dataclass(frozen=True)
class _Chunked:
    """A call cut into chunks of Q tokens: n of them, each head with its own B and C."""

    u: Tensor  # (b, n, Q, H, P)
    log_decay: Tensor  # (b, n, H, Q)
    B: Tensor  # (b, n, Q, H, N)
    C: Tensor

    @property
    def later(self) -> Tensor:
        """Pairs (l, s) in which s comes after l, (Q, Q)."""
        length = self.log_decay.shape[-1]
        return torch.ones(length, length, dtype=torch.bool, device=self.u.device).triu(1)


def _cut(
    x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, dt_bias: Tensor | None, length: int
) -> _Chunked:
    seqlen, heads_per_group = x.shape[1], x.shape[2] // B.shape[2]
    step = F.softplus(dt if dt_bias is None else dt + dt_bias)
    heads = (x * step.unsqueeze(-1), *(t.repeat_interleave(heads_per_group, dim=2) for t in (B, C)))
    tokens = [F.pad(t, (0, 0, 0, 0, 0, -seqlen % length)).unflatten(1, (-1, length)) for t in heads]
    log_decay = F.pad(step * A, (0, 0, 0, -seqlen % length)).unflatten(1, (-1, length))
    return _Chunked(tokens[0], log_decay.mT, tokens[1], tokens[2])


def _finish(y: Tensor, x: Tensor, D: Tensor | None, z: Tensor | None) -> Tensor:
    y = y.flatten(1, 2)[:, : x.shape[1]]
    if D is not None:
        y = y + x * (D.unsqueeze(-1) if D.dim() == 1 else D)
    return y if z is None else y * F.silu(z)


def _starts_by_loop(added: Tensor, carry: Tensor) -> Tensor:
    """States at the chunks' starts, one chunk after the other.

    Args:
        added: (b, n, H, P, N), what each chunk adds by its end.
        carry: (b, n, H), the decay of each chunk.
    """
    state = torch.zeros_like(added[:, 0])
    starts = [state]
    for added_here, carry_here in zip(added.unbind(1)[:-1], carry.unbind(1)[:-1], strict=True):
        state = state * carry_here[..., None, None] + added_here
        starts.append(state)
    return torch.stack(starts, 1)


def _starts_by_matrix(added: Tensor, log_carry: Tensor) -> Tensor:
    """The same as one product with the decays between all chunks; log_carry is (b, n, H)."""
    ends = log_carry.cumsum(1).transpose(1, 2)  # (b, H, n)
    # From the end of chunk m to the start of chunk c, which is the end of the one before it.
    span = F.pad(ends[..., :-1], (1, 0)).unsqueeze(-1) - ends.unsqueeze(-2)
    count = span.shape[-1]
    unreached = torch.ones(count, count, dtype=torch.bool, device=added.device).triu()
    decay = span.masked_fill(unreached, -torch.inf).exp()
    return torch.einsum("bhcm,bmhpn->bchpn", decay, added)


def einsum(
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    *,
    chunk_size: int,
    D: Tensor | None = None,
    z: Tensor | None = None,
    dt_bias: Tensor | None = None,
    states: str = "loop",
) -> Tensor:
    """All chunks at once by einsum.

    Args:
        x: (B, L, H, P); every tensor as in ops_ascend.ssd_scan, softplus always on.
        dt: (B, L, H).
        A: (H,).
        B: (B, L, G, N).
        C: (B, L, G, N).
        chunk_size: tokens per chunk at most.
        D: (H,) or (H, P).
        z: (B, L, H, P).
        dt_bias: (H,).
        states: pass the states between chunks by a "loop" or by one product with a "matrix" of decays.
    """
    cut = _cut(x, dt, A, B, C, dt_bias, chunk_size)
    cs = cut.log_decay.cumsum(-1)  # (b, n, H, Q)
    decay = (cs.unsqueeze(-1) - cs.unsqueeze(-2)).masked_fill(cut.later, -torch.inf).exp()
    weights = torch.einsum("bclhn,bcshn->bchls", cut.C, cut.B) * decay
    y = torch.einsum("bchls,bcshp->bclhp", weights, cut.u)
    leave = (cs[..., -1:] - cs).exp().mT.unsqueeze(-1)  # (b, n, Q, H, 1)
    added = torch.einsum("bclhn,bclhp->bchpn", cut.B, cut.u * leave)
    if states == "loop":
        starts = _starts_by_loop(added, cs[..., -1].exp())
    else:
        starts = _starts_by_matrix(added, cs[..., -1])
    y = y + torch.einsum("bclhn,bchpn->bclhp", cut.C, starts) * cs.exp().mT.unsqueeze(-1)
    return _finish(y, x, D, z)


def _segment_sums(log_decay: Tensor) -> Tensor:
    """Sums over the tokens from s + 1 to l, -inf where s > l: (..., Q) -> (..., Q, Q).

    Each is added up by itself and is not the difference of two running sums: exact for any decays.
    """
    length = log_decay.shape[-1]
    lower = torch.ones(length, length, dtype=torch.bool, device=log_decay.device).tril()
    between = log_decay.unsqueeze(-1).expand(*log_decay.shape, length)
    sums = between.masked_fill(~lower.tril(-1), 0.0).cumsum(-2)
    return sums.masked_fill(~lower, -torch.inf)


def segment_sum(
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    *,
    chunk_size: int,
    D: Tensor | None = None,
    z: Tensor | None = None,
    dt_bias: Tensor | None = None,
) -> Tensor:
    """The minimal form: every decay from segment sums, of tokens and of chunks; see einsum for the rest."""
    cut = _cut(x, dt, A, B, C, dt_bias, chunk_size)
    cs = cut.log_decay.cumsum(-1)
    decay = _segment_sums(cut.log_decay).exp()
    y = torch.einsum("bclhn,bcshn,bchls,bcshp->bclhp", cut.C, cut.B, decay, cut.u)
    leave = (cs[..., -1:] - cs).exp()
    added = torch.einsum("bclhn,bchl,bclhp->bchpn", cut.B, leave, cut.u)
    # Chunks are to states what tokens are to outputs; a chunk's start is the end of the one before it.
    between = _segment_sums(F.pad(cs[..., -1].transpose(1, 2), (1, 0))).exp()[:, :, :-1, 1:]
    starts = torch.einsum("bhcm,bmhpn->bchpn", between, added)
    y = y + torch.einsum("bclhn,bchpn,bchl->bclhp", cut.C, starts, cs.exp())
    return _finish(y, x, D, z)


def chunk_loop(
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    *,
    chunk_size: int,
    D: Tensor | None = None,
    z: Tensor | None = None,
    dt_bias: Tensor | None = None,
) -> Tensor:
    """One chunk after the other, as linear-attention libraries write it; see einsum for the rest.

    Chunks are indexed and written inside the loop. Either has a backward that goes through a whole tensor.
    """
    cut = _cut(x, dt, A, B, C, dt_bias, chunk_size)
    u, B, C = (t.transpose(2, 3) for t in (cut.u, cut.B, cut.C))  # (b, n, H, Q, ...)
    cs, later = cut.log_decay.cumsum(-1), cut.later
    state = x.new_zeros(*u.shape[:1], u.shape[2], B.shape[-1], u.shape[-1])
    y = torch.zeros_like(u)
    for chunk in range(u.shape[1]):
        part = _ChunkOf(u[:, chunk], B[:, chunk], C[:, chunk], cs[:, chunk], later)
        y[:, chunk] = part.outputs(state)
        state = part.state_after(state)
    return _finish(y.transpose(2, 3), x, D, z)


def chunk_list(
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    *,
    chunk_size: int,
    D: Tensor | None = None,
    z: Tensor | None = None,
    dt_bias: Tensor | None = None,
) -> Tensor:
    """chunk_loop with its chunks taken apart before the loop and put together after it.

    A sequence shorter than a chunk is not padded.
    """
    cut = _cut(x, dt, A, B, C, dt_bias, min(chunk_size, x.shape[1]))
    u, B, C = (t.transpose(2, 3) for t in (cut.u, cut.B, cut.C))
    cs, later = cut.log_decay.cumsum(-1), cut.later
    state = x.new_zeros(*u.shape[:1], u.shape[2], B.shape[-1], u.shape[-1])
    ys = []
    for u_c, B_c, C_c, cs_c in zip(*(t.unbind(1) for t in (u, B, C, cs)), strict=True):
        part = _ChunkOf(u_c, B_c, C_c, cs_c, later)
        ys.append(part.outputs(state))
        state = part.state_after(state)
    return _finish(torch.stack(ys, 1).transpose(2, 3), x, D, z)


@dataclass(frozen=True)
class _ChunkOf:
    """One chunk of every sequence, states (b, H, N, P)."""

    u: Tensor  # (b, H, Q, P)
    B: Tensor  # (b, H, Q, N)
    C: Tensor
    cs: Tensor  # (b, H, Q)
    later: Tensor  # (Q, Q)

    def outputs(self, state: Tensor) -> Tensor:
        span = self.cs.unsqueeze(-1) - self.cs.unsqueeze(-2)
        decay = span.masked_fill(self.later, -torch.inf).exp()
        within = ((self.C @ self.B.mT) * decay) @ self.u
        return within + (self.C @ state) * self.cs.exp().unsqueeze(-1)

    def state_after(self, state: Tensor) -> Tensor:
        leave = (self.cs[..., -1:] - self.cs).exp().unsqueeze(-1)
        return state * self.cs[..., -1:].exp().unsqueeze(-1) + self.B.mT @ (self.u * leave)


def each_direction(scan: Callable[..., Tensor], *, hoisted: bool = False) -> Callable[..., Tensor]:
    """Make a grid operator of a scan by calling it once for each order of the grid, as networks do.

    Args:
        scan: a function of this module with its options bound.
        hoisted: apply D x and silu(z), which all orders share, once and outside; published networks hand them
            to each call.
    """

    def cross_scan(
        x: Tensor,
        dt: Tensor,
        A: Tensor,
        B: Tensor,
        C: Tensor,
        *,
        height: int,
        width: int,
        directions: int,
        D: Tensor | None = None,
        z: Tensor | None = None,
        dt_bias: Tensor | None = None,
    ) -> Tensor:
        orders = grid_orders(height, width, directions, x.device)
        positions = grid_positions(height, width, directions, x.device)
        inner = {} if hoisted else {"D": D}
        total = None
        for order, position in zip(orders, positions, strict=True):
            ordered = [t.index_select(1, order) for t in (x, dt, B, C)]
            gate = None if hoisted or z is None else z.index_select(1, order)
            y = scan(*ordered[:2], A, *ordered[2:], z=gate, dt_bias=dt_bias, **inner)
            y = y.index_select(1, position)
            total = y if total is None else total + y
        assert total is not None
        mean = total / directions
        return _finish(mean.unsqueeze(1), x, D, z) if hoisted else mean

    return cross_scan
