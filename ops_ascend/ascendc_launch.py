"""A launch of an AscendC kernel, and what the kernels take: sizes, dtypes, strides.

Shared by the twin and the NPU, and by the kernels of both scans: ascendc_call.py and ascendc_selective.py
arrange their calls, ascendc_scan.py makes operators of them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ops_ascend.calls import Request

LARGEST_SIZE = 256  # of headdim and dstate: kMaxSize
# Of the operands of the matrix products of float32 tensors: float32, or float16.
PRECISIONS = ("accurate", "half")
DTYPES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}
Fields = tuple[int | float, ...]
Buffers = Mapping[str, Tensor | None]
Plan = Callable[[str, str, Fields], int]


@dataclass(frozen=True)
class Launch:
    """What one launch of a kernel is told.

    Attributes:
        kernel: its name.
        fields: the kernel's call structure in the order of its memory: int64_t and double.
        inputs: by name, in the order of the kernel's buffers; None where not given.
        outputs: to fill; likewise.
    """

    kernel: str
    fields: Fields
    inputs: Buffers
    outputs: Buffers

    def buffers(self) -> list[Tensor | None]:
        """Every buffer in the kernel's order."""
        return [*self.inputs.values(), *self.outputs.values()]

    def output(self, name: str) -> Tensor:
        """An output that this launch has."""
        tensor = self.outputs[name]
        assert tensor is not None
        return tensor


@dataclass(frozen=True)
class Machine:
    """What runs launches: the twin, or an NPU.

    Attributes:
        name: of the backend.
        half_operands: whether the operands of the matrix products of float32 tensors are float16 now.
        plan: how many partial sums a kernel leaves to its caller: takes its name, which sums ("parts" of dB
            and dC, "rows" of parameters), and its fields.
        run: runs a launch.
    """

    name: str
    half_operands: Callable[[], bool]
    plan: Plan
    run: Callable[[Launch], object]


def beyond_kernels(request: Request) -> list[str]:
    """Why there is no AscendC kernel for a call; nothing where there is one."""
    sizes = {"headdim": request.headdim, "dstate": request.dstate}
    reasons = [
        f"{name} ({size}) must be 1 to {LARGEST_SIZE}"
        for name, size in sizes.items()
        if not 1 <= size <= LARGEST_SIZE
    ]
    if request.dtype not in DTYPES:
        first = "u" if request.op == "selective_scan" else "x"
        reasons.append(f"{first} ({request.dtype}) must be float32, float16 or bfloat16")
    return reasons


def wide(tensor: Tensor | None) -> Tensor | None:
    """A parameter or a state as the kernels read it: float32, without gaps."""
    return None if tensor is None else tensor.detach().float().contiguous()


def span_bytes(tensor: Tensor) -> int:
    """Bytes from the first element of a tensor to the end of its last."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()
