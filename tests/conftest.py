import pytest
import torch

# The tensors here are small: a second thread gains little, and waits for its turn where others use the cores.
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _restore_global_torch_state():
    """A test that changes torch's process-wide settings must not change the next one."""
    deterministic = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    default_dtype = torch.get_default_dtype()
    yield
    torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)
    torch.set_default_dtype(default_dtype)
