import pytest
import torch

from ops_ascend import twin
from ops_ascend.build import NoCompilerError, build
from ops_ascend.native import CHIPS

BACKENDS = ("chunked", "reference")


@pytest.fixture(params=BACKENDS)
def backend(request):
    """Every backend with gradients that runs on this machine; each row of a table is run on all of them."""
    return request.param


@pytest.fixture(autouse=True)
def _fresh_memory_is_nan(_restore_global_torch_state):
    """PyTorch fills fresh memory with NaN in this mode: whatever a kernel forgets to write shows."""
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True, warn_only=True)


@pytest.fixture(scope="session")
def twin_libraries():
    """The twin of both chips, built from the sources as they are now."""
    if twin.missing():
        try:
            build(lambda line: None)
        except NoCompilerError as error:
            pytest.skip(str(error))
    assert twin.missing() == []


@pytest.fixture(params=CHIPS)
def chip(request, twin_libraries):
    return request.param
