import contextlib
from pathlib import Path

import pytest
import torch

from ops_ascend import cpu, native
from ops_ascend.build import NoCompilerError, build

# The tensors here are small: a second thread gains little, and waits for its turn where others use the cores.
torch.set_num_threads(1)


def pytest_addoption(parser):
    parser.addoption("--cpu-libraries", type=Path, help="a folder with other builds of the CPU libraries")


def pytest_configure(config):
    folder = config.getoption("--cpu-libraries")
    if folder is not None:
        usual = native._folders
        native._folders = lambda kind: (folder, folder) if kind == "cpu" else usual(kind)
        native.look()
        cpu._library.cache_clear()
        cpu._best.cache_clear()
        assert cpu.missing() == []


@pytest.fixture(scope="session", autouse=True)
def _cpu_libraries_of_these_sources():
    """Where there is a compiler, "auto" takes kernels that were built from the sources as they are."""
    if cpu.missing():
        with contextlib.suppress(NoCompilerError):
            build(lambda line: None, ("cpu",))


@pytest.fixture(autouse=True)
def _restore_global_torch_state():
    """A test that changes torch's process-wide settings must not change the next one."""
    deterministic = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    default_dtype = torch.get_default_dtype()
    threads = torch.get_num_threads()
    yield
    torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)
    torch.set_default_dtype(default_dtype)
    torch.set_num_threads(threads)
