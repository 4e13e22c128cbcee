"""The one place where errors are judged. Widening a number is a commit of its own, with the reason."""

import torch

from ops_ascend.errors import TensorError

# Relative RMS against the float64 recurrence. Rounding the result to bfloat16 alone costs 1.7e-3, to float16
# 2.1e-4.
CAPS = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 5e-3, torch.float16: 1e-3}
FLOORS = {torch.float64: 1e-13, torch.float32: 1e-6, torch.bfloat16: 1e-3, torch.float16: 2e-4}


def assert_accurate(
    rows: list[TensorError], dtype: torch.dtype, chunked: list[TensorError] | None = None
) -> None:
    """Fail unless every tensor is within its dtype's cap and twice the error of chunked plus a floor."""
    bounds = {row.name: CAPS[dtype] for row in rows}
    for row in chunked or ():
        bounds[row.name] = min(2 * row.relative_rms + FLOORS[dtype], CAPS[dtype])
    # A comparison with NaN is false, so the tests are for being inside. A value that float32 can only hold as
    # a denormal has no digits to compare.
    bad = [
        f"{row.name}: {row.relative_rms:.2e} > {bounds[row.name]:.1e}"
        for row in rows
        if not (row.relative_rms <= bounds[row.name] or row.max_abs < torch.finfo(torch.float32).tiny)
    ]
    assert not bad, "; ".join(bad)
