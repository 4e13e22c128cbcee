"""What a model costs: parameters and multiply-adds of one image."""

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode


def count_parameters(model: nn.Module) -> int:
    """Count the numbers in a model's parameters; a shared parameter counts once."""
    return sum(parameter.numel() for parameter in model.parameters())


def count_multiply_adds(model: nn.Module, input_size: tuple[int, int, int]) -> int:
    """Count the multiply-adds of one image (C, height, width): matmuls, convolutions and scans.

    Runs on shapes alone (the meta device), so the size of the model or the image costs nothing. Scans are
    counted by the formula registered with the operator; elementwise work is not counted, as usual.
    """
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    shapes = {name: tensor.detach().to("meta") for name, tensor in tensors.items()}
    floating = (tensor.dtype for tensor in model.parameters() if tensor.dim() > 1)
    image = torch.empty(1, *input_size, device="meta", dtype=next(floating, torch.float32))
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        torch.func.functional_call(model, shapes, (image,))
    return counter.get_total_flops() // 2
