"""The one place where errors are judged. Widening a number is a commit of its own, with the reason."""

import torch

from ops_ascend.errors import TensorError

# Relative RMS against the float64 recurrence. Rounding the result to bfloat16 alone costs 1.7e-3, to float16
# 2.1e-4.
CAPS = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 5e-3, torch.float16: 1e-3}
# The compiled CPU kernels may not spend what float32 leaves; traps are held to the cap above.
CPU_CAPS = CAPS | {torch.float32: 2e-6}
# But sums over all tokens may cancel to a tenth of what went in: 5e-6 without fused multiply-adds, of
# gradients of tokens that are as good as those of chunked.
CPU_SUMS = CAPS
# Of gradients on the native kernels. Products of 16-bit operands, float16 ones of float32 tensors too, round
# what they multiply several times on the way; bfloat16 has three bits fewer than float16.
NATIVE_GRADIENTS = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}
# Sums over all tokens, one number for a head or a channel, may cancel to little of what went in. An exact
# backward of operands rounded to float16 errs as much: test_twin_ssd_gradients.py compares the two.
NATIVE_SUMS = {torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 3e-2}
SUMS = ("dA", "dD", "ddt_bias", "ddelta_bias")
FLOORS = {torch.float64: 1e-13, torch.float32: 1e-6, torch.bfloat16: 1e-3, torch.float16: 2e-4}


def assert_accurate(
    rows: list[TensorError],
    dtype: torch.dtype,
    backend: str = "",
    *,
    chunked: list[TensorError] | None = None,
) -> None:
    """Fail unless every tensor is within its dtype's cap and twice the error of chunked plus a floor.

    Args:
        rows: errors.
        dtype: of the inputs.
        backend: whose own caps hold, where it has any.
        chunked: errors of that backend on the same inputs.
    """
    caps, sums = (CPU_CAPS, CPU_SUMS) if backend == "cpu" else (CAPS, CAPS)
    bounds = {row.name: (sums if row.name in SUMS else caps)[dtype] for row in rows}
    for row in chunked or ():
        bounds[row.name] = min(2 * row.relative_rms + FLOORS[dtype], bounds[row.name])
    _assert_within(rows, bounds)


def assert_native(rows: list[TensorError], dtype: torch.dtype) -> None:
    """Fail unless every output is within its dtype's cap, and every gradient within that of the kernels.

    Args:
        rows: errors; a name that begins with d is a gradient's.
        dtype: of the operands of the matrix products.
    """
    kinds = {
        row.name: NATIVE_SUMS if row.name in SUMS else NATIVE_GRADIENTS if row.name.startswith("d") else CAPS
        for row in rows
    }
    _assert_within(rows, {name: caps[dtype] for name, caps in kinds.items()})


def _assert_within(rows: list[TensorError], bounds: dict[str, float]) -> None:
    # A comparison with NaN is false, so the tests are for being inside. A value that float32 can only hold as
    # a denormal has no digits to compare.
    bad = [
        f"{row.name}: {row.relative_rms:.2e} > {bounds[row.name]:.1e}"
        for row in rows
        if not (row.relative_rms <= bounds[row.name] or row.max_abs < torch.finfo(torch.float32).tiny)
    ]
    assert not bad, "; ".join(bad)
