"""The compiled CPU kernels on threads: as many as allowed, the same bits for any number, safe together."""

import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest
import torch

from ops_ascend import cpu, selective_scan, ssd_cross_scan, ssd_scan
from ops_ascend.errors import outputs_and_gradients, random_selective, random_ssd, tensor_error
from tests.ops.policy import CAPS

pytestmark = pytest.mark.usefixtures("cpu_libraries")
ROOT = Path(__file__).parents[2]
THREADS = (1, 2, 3, 5)


def large(dtype=torch.float32):
    """Calls of every operator, large enough for several threads: scan, tensors, names of the outputs."""
    few = random_ssd((1, 640, 4, 64, 2, 64), dtype)
    many = random_ssd((3, 196, 6, 32, 2, 64), dtype)
    grid = {name: t for name, t in many.items() if name != "initial_states"}
    channels = random_selective((2, 160, 196, 2, 16), dtype)
    long = random_selective((1, 40, 3136, 1, 16), dtype)
    ssd = partial(ssd_scan, chunk_size=64, dt_softplus=True, backend="cpu")
    orders = {"height": 14, "width": 14, "directions": 4, "chunk_size": 64}
    cross = partial(ssd_cross_scan, **orders, dt_softplus=True, backend="cpu")
    selective = partial(selective_scan, delta_softplus=True, backend="cpu")
    return {
        "ssd_scan of few heads": (ssd, few, ("y", "state")),
        "ssd_scan of a batch": (ssd, many, ("y", "state")),
        "ssd_cross_scan": (cross, grid, ("y",)),
        "selective_scan of channels": (selective, channels, ("y", "state")),
        "selective_scan of a long sequence": (selective, long, ("y", "state")),
    }


calls = pytest.mark.parametrize("name", large())


# Threads share the heads of a group, over which dB and dC sum, where the batch has fewer groups than threads.
DEPEND_ON_THREADS = {"ssd_scan of few heads": {"dB", "dC"}}


@calls
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_op_20_the_same_bits_in_two_runs_and_for_any_number_of_threads(name, dtype, instructions):
    scan, tensors, outputs = large(dtype)[name]

    def run(threads):
        torch.set_num_threads(threads)
        with cpu.settings(instructions=instructions):
            return outputs_and_gradients(scan, tensors, outputs)

    alone = run(1)
    for threads in THREADS:
        first, second = run(threads), run(threads)
        for tensor, value in first.items():
            assert torch.equal(value, second[tensor]), (tensor, threads)
            if tensor in DEPEND_ON_THREADS.get(name, ()):
                assert tensor_error(tensor, value, alone[tensor]).relative_rms <= 2 * CAPS[dtype]
            else:
                assert torch.equal(value, alone[tensor]), (tensor, threads)


@calls
def test_calls_of_several_python_threads_do_not_disturb_each_other(name):
    torch.set_num_threads(2)
    scan, tensors, outputs = large()[name]
    other_scan, other_tensors, other_outputs = large()["ssd_scan of a batch"]
    want = outputs_and_gradients(scan, tensors, outputs)
    other = outputs_and_gradients(other_scan, other_tensors, other_outputs)
    wrong = []

    def run(scan, tensors, outputs, want):
        for _ in range(3):
            have = outputs_and_gradients(scan, tensors, outputs)
            wrong.extend(key for key, value in have.items() if not torch.equal(value, want[key]))

    work = [(scan, tensors, outputs, want), (other_scan, other_tensors, other_outputs, other)] * 2
    threads = [threading.Thread(target=run, args=arguments) for arguments in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def run_script(script):
    """Run Python in a process of its own, which must end by itself and well."""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


COUNT = """
import os, torch
torch.set_num_threads(1)
from tests.ops.test_cpu_threads import large
scan, tensors, _ = large()[{name!r}]
if {short}:
    tensors = {{n: t[:1, :1] if n in ("x", "dt", "B", "C", "z") else t for n, t in tensors.items()}}
torch.set_num_threads({threads})
before = len(os.listdir("/proc/self/task"))
with torch.no_grad():
    scan(**tensors)
print(len(os.listdir("/proc/self/task")) - before)
"""
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts threads in /proc")


@linux
@pytest.mark.parametrize("name", ["ssd_scan of a batch", "selective_scan of channels"])
@pytest.mark.parametrize("threads", [1, 3])
def test_a_call_takes_as_many_threads_as_pytorch_may(name, threads):
    (more,) = run_script(COUNT.format(threads=threads, name=name, short=False))
    assert int(more) == threads - 1


@linux
def test_a_short_call_wakes_no_second_thread():
    assert run_script(COUNT.format(threads=3, name="ssd_scan of few heads", short=True)) == ["0"]


@linux
def test_pytorch_and_the_kernels_share_one_pool_of_threads():
    script = """
import os, torch
torch.set_num_threads(1)
from tests.ops.test_cpu_threads import large
scan, tensors, _ = large()["ssd_scan of a batch"]
big = torch.ones(1 << 22)

def count():
    return len(os.listdir("/proc/self/task"))

first = count()
torch.set_num_threads(3)
big * big
second = count()
with torch.no_grad():
    scan(**tensors)
big * big
print(second - first, count() - second)
"""
    assert run_script(script) == ["2", "0"]


FORK = """
import os, torch
from tests.ops.test_cpu_threads import large
calls = large().values()
torch.set_num_threads(3)

# Nothing else may use threads in the child: PyTorch's own operators would wait for those that are not there.
def bits():
    with torch.no_grad():
        results = [scan(**tensors) for scan, tensors, _ in calls]
    flat = [r for result in results for r in (result if isinstance(result, tuple) else (result,))]
    return b"".join(t.numpy().tobytes() for t in flat)

here = bits()
child = os.fork()
if child == 0:
    os._exit(0 if bits() == here else 7)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
assert bits() == here
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
def test_a_forked_process_computes_the_same_after_its_parent_used_threads():
    run_script(FORK)


WORKERS = """
import torch
from torch.utils.data import DataLoader, Dataset
from tests.ops.test_cpu_threads import large
from ops_ascend.errors import outputs_and_gradients

class Scans(Dataset):
    names = list(large())

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        run = outputs_and_gradients(*large()[self.names[index]])
        return {name: value.detach() for name, value in run.items()}

scans = Scans()
torch.set_num_threads(3)
scans[0]
torch.set_num_threads(1)  # as in the workers
here = [scans[index] for index in range(len(scans))]
loader = DataLoader(scans, batch_size=None, num_workers=2, multiprocessing_context="fork")
for have, want in zip(loader, here, strict=True):
    for name, value in have.items():
        assert torch.equal(value, want[name]), name
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
def test_forked_workers_of_a_data_loader_compute_the_same():
    run_script(WORKERS)
