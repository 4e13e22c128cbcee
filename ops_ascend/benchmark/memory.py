"""Peak memory of one call beyond its inputs: the high-water mark of a process of its own. Linux only."""

import ctypes
import multiprocessing
import sys
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from ops_ascend.benchmark.candidates import FORWARD_BACKWARD, Selection, output_gradient, work
from ops_ascend.benchmark.cases import Case, GridShape, SelectiveShape

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class NotMeasuredError(RuntimeError):
    """A peak could not be measured; the message says why."""


def peak_bytes(case: Case, selection: Selection, name: str, which: str, threads: int) -> int:
    """Measure one candidate in a fresh process.

    Args:
        case: the shape.
        selection: what the candidates are.
        name: of the candidate.
        which: the work.
        threads: of PyTorch.

    Raises:
        NotMeasuredError: there is no high-water mark on this system, or the process died.
    """
    return in_fresh_process(_peak_bytes_there, case, selection, name, which, threads)


def _peak_bytes_there(case: Case, selection: Selection, name: str, which: str, threads: int) -> int:
    torch.set_num_threads(threads)
    return peak_bytes_here(case, selection, name, which)


def in_fresh_process(measure: Callable[..., int], *arguments: Any) -> int:
    """The result of a measurement that runs in a process of its own.

    Args:
        measure: a function at the top of a module.
        arguments: of it, anything that pickle takes.

    Raises:
        NotMeasuredError: there is no high-water mark on this system, or the process died.
    """
    if not sys.platform.startswith("linux"):
        raise NotMeasuredError(f"no high-water mark on {sys.platform}")
    # A server that has imported PyTorch and started no thread: forks of it are cheap and safe.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_send, args=(sender, measure, arguments))
    child.start()
    sender.close()
    try:
        return receiver.recv()
    except EOFError:
        child.join()
        raise NotMeasuredError(f"the process ended with exit code {child.exitcode}") from None
    finally:
        child.join()
        receiver.close()


def _send(sender: Connection, measure: Callable[..., int], arguments: tuple[Any, ...]) -> None:
    sender.send(measure(*arguments))


def peak_bytes_here(case: Case, selection: Selection, name: str, which: str) -> int:
    """Peak of this process during one call, less what it held before."""
    _warm_up(case, selection, name)
    (candidate,) = selection.candidates(case, name)
    tensors, dy = case.tensors(), output_gradient(case)
    call = work(candidate, which, tensors, dy)
    return rise_of(call)


def rise_of(call: Callable[[], Any]) -> int:
    """How far a call raises the high-water mark of this process."""
    # Freed memory that the allocator still holds would hide a part of what the call needs.
    if hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)
    _RESET.write_text("5")
    before = _high_water_bytes()
    # The results live until the mark is read.
    kept = call()
    peak = _high_water_bytes() - before
    del kept
    return peak


def _warm_up(case: Case, selection: Selection, name: str) -> None:
    """Start thread pools and load libraries, with the smallest call of the same operator."""
    shape = case.shape
    if isinstance(shape, SelectiveShape):
        small = replace(case, shape=shape._replace(batch=1, dim=16, seqlen=4))
    elif isinstance(shape, GridShape):
        small = replace(case, shape=shape._replace(batch=1, height=2, width=2))
    else:
        small = replace(case, shape=shape._replace(batch=1, seqlen=4))
    (candidate,) = selection.candidates(small, name)
    work(candidate, FORWARD_BACKWARD, small.tensors(), output_gradient(small))()
    left = torch.randn(256, 256)
    torch.mm(left, left).add_(1.0)


def _high_water_bytes() -> int:
    lines = _STATUS.read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
