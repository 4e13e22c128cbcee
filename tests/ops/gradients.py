"""Forward and backward on the twin: silent, and the same to the last bit whatever the order of the pipes."""

from functools import partial

import torch

from ops_ascend import twin
from ops_ascend.errors import outputs_and_gradients, tensor_error
from tests.ops.forward import SEEDS

STATES = ("y", "state")


def twin_gradients(scan, tensors, chip, precision="accurate", seeds=SEEDS, names=STATES):
    """Outputs and every gradient of an operator (without its backend) on the twin, by name.

    Args:
        names: of the outputs; the loss depends on all of them.
    """
    runs = []
    for seed in seeds:
        with twin.settings(chip=chip, seed=seed, precision=precision):
            runs.append(outputs_and_gradients(partial(scan, backend="twin"), tensors, names))
    for run in runs[1:]:
        for name, value in run.items():
            torch.testing.assert_close(value, runs[0][name], rtol=0, atol=0, equal_nan=True, msg=name)
    for name, tensor in tensors.items():
        if tensor.is_floating_point():
            assert runs[0][f"d{name}"].dtype == tensor.dtype, name
    return runs[0]


def exact_gradients(scan, tensors, names=STATES):
    """Outputs and gradients of the float64 recurrence on the same values."""
    wide = {name: t.double() if t.is_floating_point() else t for name, t in tensors.items()}
    return outputs_and_gradients(partial(scan, backend="reference"), wide, names)


def errors(measured, exact):
    return [tensor_error(name, value, exact[name]) for name, value in measured.items()]


def only(index, scan):
    """The operator with one of its results alone: nothing depends on the other."""
    return lambda **tensors: scan(**tensors)[index]
