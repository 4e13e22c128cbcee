import pytest
import torch

from ops_ascend import cpu, twin
from ops_ascend.build import NoCompilerError, build
from ops_ascend.native import CHIPS, INSTRUCTIONS

BACKENDS = ("cpu", "chunked", "reference")


@pytest.fixture(params=BACKENDS)
def backend(request):
    """Every backend with gradients that runs on this machine; each row of a table is run on all of them."""
    if request.param == "cpu":
        request.getfixturevalue("cpu_libraries")
    return request.param


@pytest.fixture(autouse=True)
def _fresh_memory_is_nan(_restore_global_torch_state):
    """PyTorch fills fresh memory with NaN in this mode: whatever a kernel forgets to write shows."""
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True, warn_only=True)


@pytest.fixture(scope="session")
def cpu_libraries(_cpu_libraries_of_these_sources):
    if cpu.missing():
        pytest.skip(cpu.missing()[0])


@pytest.fixture(params=INSTRUCTIONS)
def instructions(request, cpu_libraries):
    """Every set of instructions that runs here."""
    if request.param not in cpu.instruction_sets():
        pytest.skip(f"this processor has no {request.param}")
    return request.param


@pytest.fixture(scope="session")
def twin_libraries():
    """The twin of both chips, built from the sources as they are now."""
    if twin.missing():
        try:
            build(lambda line: None, ("twin",))
        except NoCompilerError as error:
            pytest.skip(str(error))
    assert twin.missing() == []


@pytest.fixture(params=CHIPS)
def chip(request, twin_libraries):
    return request.param
