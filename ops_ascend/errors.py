"""How far an operator's outputs and gradients are from the float64 recurrence, as numbers and as a table.

    python -m ops_ascend.errors --op ssd_scan --dtype bfloat16 --backend chunked --device cpu

Errors are relative to the tensor: a gradient of 1e5 that is off by 1 is a good one (relative RMS 1e-5), and a
gradient of 1e-5 that is off by 1e-5 is none at all.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from ops_ascend.dispatch import selective_scan, ssd_cross_scan, ssd_scan

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class TensorError:
    """The distance of one tensor from its exact value.

    Attributes:
        name: y, final_states, or dfoo for the gradient of foo.
        relative_rms: RMS of the difference over RMS of the exact value.
        max_abs: largest absolute difference.
        cosine: cosine between the two, 1 for the same direction.
    """

    name: str
    relative_rms: float
    max_abs: float
    cosine: float


def tensor_error(name: str, measured: Tensor, exact: Tensor) -> TensorError:
    """Compare a tensor with its exact value; non-finite values give non-finite errors."""
    have, want = measured.detach().double().cpu().flatten(), exact.detach().double().cpu().flatten()
    difference = have - want
    size = want.norm()
    if want.numel() == 0 or (size == 0 and difference.norm() == 0):
        return TensorError(name, 0.0, 0.0, 1.0)
    relative = difference.norm() / size if size > 0 else torch.tensor(torch.inf)
    cosine = F.cosine_similarity(have, want, dim=0, eps=1e-300)
    return TensorError(name, relative.item(), difference.abs().max().item(), cosine.item())


def outputs_and_gradients(
    op: Callable[..., Tensor | tuple[Tensor, ...]], tensors: Tensors, names: Sequence[str], seed: int = 0
) -> Tensors:
    """Run an operator forward and backward.

    Args:
        op: takes the tensors by name.
        tensors: the arguments; floating ones get gradients.
        names: of the outputs, in order.
        seed: of the random weights w in the loss sum(w * output), which every dtype represents exactly.
    """
    leaves = {
        name: t.detach().requires_grad_() if t.is_floating_point() else t for name, t in tensors.items()
    }
    results = op(**leaves)
    results = (results,) if isinstance(results, Tensor) else results
    generator = torch.Generator().manual_seed(seed)
    weights = [torch.randn(out.shape, generator=generator).bfloat16() for out in results]
    terms = [
        (out.to(_wide(out)) * w.to(out.device, _wide(out))).sum()
        for out, w in zip(results, weights, strict=True)
    ]
    loss = torch.stack([term.double() for term in terms]).sum()
    wanted = [name for name, t in leaves.items() if t.requires_grad]
    # Zeros for what the loss does not depend on.
    gradients = torch.autograd.grad(loss, [leaves[name] for name in wanted], materialize_grads=True)
    return dict(zip(names, results, strict=True)) | {
        f"d{name}": gradient for name, gradient in zip(wanted, gradients, strict=True)
    }


def outputs_alone(
    op: Callable[..., Tensor | tuple[Tensor, ...]], tensors: Tensors, names: Sequence[str]
) -> Tensors:
    """Run an operator forward."""
    with torch.no_grad():
        results = op(**tensors)
    results = (results,) if isinstance(results, Tensor) else results
    return dict(zip(names, results, strict=True))


def _wide(tensor: Tensor) -> torch.dtype:
    return torch.promote_types(tensor.dtype, torch.float32)


def compare(
    op: Callable[..., Tensor | tuple[Tensor, ...]],
    tensors: Tensors,
    names: Sequence[str],
    backend: str,
    gradients: bool = True,
) -> list[TensorError]:
    """Errors of a backend against the float64 recurrence on the CPU, on the very same values."""
    exact_inputs = {
        name: t.detach().cpu().double() if t.is_floating_point() else t.cpu() for name, t in tensors.items()
    }
    run = outputs_and_gradients if gradients else outputs_alone
    exact = run(partial(op, backend="reference"), exact_inputs, names)
    measured = run(partial(op, backend=backend), tensors, names)
    return [tensor_error(name, measured[name], exact[name]) for name in exact]


def random_ssd(
    sizes: tuple[int, int, int, int, int, int], dtype: torch.dtype, device: str = "cpu", seed: int = 0
) -> Tensors:
    """Inputs of ssd_scan in the range of a fresh network.

    Args:
        sizes: batch, seqlen, nheads, headdim, ngroups, dstate.
        dtype: of x, dt, B, C and z; the rest is float32 (float64 when dtype is).
        device: where the tensors go.
        seed: of the draw.
    """
    batch, seqlen, nheads, headdim, ngroups, dstate = sizes
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    wide = torch.float64 if dtype == torch.float64 else torch.float32
    values = {
        "x": normal(batch, seqlen, nheads, headdim),
        "dt": normal(batch, seqlen, nheads),
        "B": normal(batch, seqlen, ngroups, dstate),
        "C": normal(batch, seqlen, ngroups, dstate),
        "z": normal(batch, seqlen, nheads, headdim),
    }
    parameters = {
        "A": -torch.exp(2.77 * torch.rand(nheads, dtype=torch.float64, generator=generator)),
        "D": normal(nheads, headdim),
        # softplus(-3.5) is about 0.03, the middle of the usual range of steps.
        "dt_bias": normal(nheads) - 3.5,
        "initial_states": normal(batch, nheads, headdim, dstate),
    }
    moved = {name: t.to(device, dtype) for name, t in values.items()}
    return moved | {name: t.to(device, wide) for name, t in parameters.items()}


def random_selective(
    sizes: tuple[int, int, int, int, int], dtype: torch.dtype, device: str = "cpu", seed: int = 0
) -> Tensors:
    """Inputs of selective_scan; sizes are batch, dim, seqlen, ngroups, dstate. See random_ssd."""
    batch, dim, seqlen, ngroups, dstate = sizes
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    wide = torch.float64 if dtype == torch.float64 else torch.float32
    values = {
        "u": normal(batch, dim, seqlen),
        "delta": normal(batch, dim, seqlen),
        "B": normal(batch, ngroups, dstate, seqlen),
        "C": normal(batch, ngroups, dstate, seqlen),
        "z": normal(batch, dim, seqlen),
    }
    parameters = {
        # The usual initialisation: state n decays at rate n.
        "A": -torch.arange(1.0, dstate + 1, dtype=torch.float64).repeat(dim, 1),
        "D": normal(dim),
        "delta_bias": normal(dim) - 3.5,
    }
    moved = {name: t.to(device, dtype) for name, t in values.items()}
    return moved | {name: t.to(device, wide) for name, t in parameters.items()}


def operator_errors(
    op: str, dtype: torch.dtype, backend: str, device: str, gradients: bool = True
) -> list[TensorError]:
    """Errors of one operator on a vision-like shape."""
    if op == "selective_scan":
        tensors = random_selective((2, 96, 196, 1, 8), dtype, device)
        selective = partial(selective_scan, delta_softplus=True)
        return compare(selective, tensors, ("y", "last_state"), backend, gradients)
    tensors = random_ssd((2, 196, 6, 64, 2, 128), dtype, device)
    if op == "ssd_scan":
        once = partial(ssd_scan, chunk_size=64, dt_softplus=True)
        return compare(once, tensors, ("y", "final_states"), backend, gradients)
    del tensors["initial_states"]
    scan = partial(ssd_cross_scan, height=14, width=14, directions=4, chunk_size=64, dt_softplus=True)
    return compare(scan, tensors, ("y",), backend, gradients)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the error table of the command line's operator, dtype, backend and device.

    Returns:
        0; or 1, with the sentence, when the backend cannot run the operator.
    """
    parser = argparse.ArgumentParser(prog="python -m ops_ascend.errors", description=__doc__.split("\n")[0])
    parser.add_argument("--op", choices=("ssd_scan", "ssd_cross_scan", "selective_scan"), default="ssd_scan")
    parser.add_argument("--dtype", choices=tuple(DTYPES), default="float32")
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--outputs-only", action="store_true", help="leave out the gradients")
    options = parser.parse_args(arguments)
    gradients = not options.outputs_only
    try:
        rows = operator_errors(options.op, DTYPES[options.dtype], options.backend, options.device, gradients)
    except (NotImplementedError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    write = sys.stdout.write
    write(f"{options.op}, {options.dtype}, backend {options.backend} on {options.device}, against float64\n")
    write(f"{'tensor':<16}{'relative RMS':>14}{'max abs':>12}{'1 - cosine':>12}\n")
    for row in rows:
        write(f"{row.name:<16}{row.relative_rms:>14.1e}{row.max_abs:>12.1e}{1 - row.cosine:>12.1e}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
