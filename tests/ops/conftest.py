import pytest
import torch

BACKENDS = ("chunked", "reference")


@pytest.fixture(params=BACKENDS)
def backend(request):
    """Every backend that runs on this machine; each row of a table is run on all of them."""
    return request.param


@pytest.fixture(autouse=True)
def _fresh_memory_is_nan(_restore_global_torch_state):
    """PyTorch fills fresh memory with NaN in this mode: whatever a kernel forgets to write shows."""
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True, warn_only=True)
