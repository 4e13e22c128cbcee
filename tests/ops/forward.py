"""Forward passes on the twin: silent, and the same to the last bit whatever the order of the pipes."""

import torch

from ops_ascend import twin
from ops_ascend.errors import tensor_error

SEEDS = (0, 1, 2)
#             tensors         precision    judged as
PRECISIONS = {
    "accurate": (torch.float32, "accurate", torch.float32),
    "half": (torch.float32, "half", torch.float16),
    "bfloat16": (torch.bfloat16, "accurate", torch.bfloat16),
    "float16": (torch.float16, "accurate", torch.float16),
}


def as_tuple(outputs):
    return outputs if isinstance(outputs, tuple) else (outputs,)


def twin_forward(scan, tensors, chip, precision="accurate", seeds=SEEDS):
    """The outputs of an operator (without its backend) on the twin."""
    runs = []
    for seed in seeds:
        with twin.settings(chip=chip, seed=seed, precision=precision):
            runs.append(as_tuple(scan(**tensors, backend="twin")))
    for run in runs[1:]:
        for have, want in zip(run, runs[0], strict=True):
            torch.testing.assert_close(have, want, rtol=0, atol=0, equal_nan=True)
    return runs[0]


def exact_forward(scan, tensors):
    """The outputs of the float64 recurrence on the same values."""
    wide = {name: t.double() if t.is_floating_point() else t for name, t in tensors.items()}
    return as_tuple(scan(**wide, backend="reference"))


def errors(outputs, exact):
    names = ("y", "final_states")[: len(exact)]
    return [tensor_error(name, *pair) for name, *pair in zip(names, outputs, exact, strict=True)]
