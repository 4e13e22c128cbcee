"""How far a candidate is from the exact result, before anything is timed."""

from torch import Tensor

from ops_ascend.benchmark.candidates import FORWARD_BACKWARD, Candidate, Selection, work
from ops_ascend.benchmark.cases import Case, SelectiveShape
from ops_ascend.errors import TensorError, Tensors, tensor_error

# A candidate beyond it computes something else, and its time says nothing.
WRONG = 1e-4
REFERENCE_BYTES = 2**30
# The recurrence keeps about this many states of every token for its backward.
_KEPT_STATES = 4


def exact_backend(case: Case) -> str:
    """What gives the exact result of a case in float64.

    The recurrence token by token where its backward fits into memory, else the same scan in chunks, which the
    tests hold to the recurrence.
    """
    shape = case.shape
    if isinstance(shape, SelectiveShape):
        state = shape.batch * shape.dim * shape.dstate
    else:
        state = shape.batch * shape.nheads * shape.headdim * shape.dstate
    fits = _KEPT_STATES * 8 * state * shape.seqlen <= REFERENCE_BYTES
    return "reference" if fits else "chunked"


def exact_results(case: Case, tensors: Tensors, dy: Tensor) -> Tensors:
    """Exact y and gradient of every tensor, in float64."""
    (candidate,) = Selection(exact_backend(case), peers=False).candidates(case)
    wide = {name: t.double() for name, t in tensors.items()}
    return results(candidate, wide, dy.double())


def results(candidate: Candidate, tensors: Tensors, dy: Tensor) -> Tensors:
    """A candidate's y and gradient of every tensor."""
    y, gradients = work(candidate, FORWARD_BACKWARD, tensors, dy)()
    return {"y": y} | {f"d{name}": t for name, t in zip(tensors, gradients, strict=True)}


def worst_error(candidate: Candidate, tensors: Tensors, dy: Tensor, exact: Tensors) -> TensorError:
    """The largest relative RMS error of y and the gradients; NaN counts as the largest."""
    have = results(candidate, tensors, dy)
    errors = [tensor_error(name, have[name], want) for name, want in exact.items()]
    return max(errors, key=lambda error: (error.relative_rms != error.relative_rms, error.relative_rms))


def is_wrong(error: TensorError) -> bool:
    """Whether a candidate does not compute the operator."""
    return not error.relative_rms <= WRONG
