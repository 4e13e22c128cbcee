"""Peak memory of one forward and backward of ssd_scan, beside the same algorithm written with einsum.

    python -m tests.ops.memory

Each measurement is a process of its own: the high-water mark of its resident memory, less what it held before
the call. Linux only.
"""

import json
import subprocess
import sys
from pathlib import Path

import torch
import torch.nn.functional as F

from ops_ascend import ssd_scan

# batch, seqlen, nheads, headdim, ngroups, dstate, and the chunk size: stage 2 of Vision-Mamba2 at 224 pixels.
SIZES, CHUNK_SIZE = (8, 784, 6, 64, 2, 128), 128


def einsum_chunk_scan(x, dt, A, B, C):
    """The chunked scan as the paper's listing has it, gradients by autograd, padded to whole chunks."""
    seqlen, heads_per_group = x.shape[1], x.shape[2] // B.shape[2]
    padding = -seqlen % CHUNK_SIZE
    x, B, C = (F.pad(t, (0, 0, 0, 0, 0, padding)).unflatten(1, (-1, CHUNK_SIZE)) for t in (x, B, C))
    step = F.pad(F.softplus(dt), (0, 0, 0, padding)).unflatten(1, (-1, CHUNK_SIZE))
    B, C = (t.repeat_interleave(heads_per_group, dim=3) for t in (B, C))
    cs = (step * A).cumsum(2).permute(0, 3, 1, 2)  # (B, H, n, Q)
    later = torch.ones(CHUNK_SIZE, CHUNK_SIZE, dtype=torch.bool).triu(1)
    decay = (cs.unsqueeze(-1) - cs.unsqueeze(-2)).masked_fill(later, -torch.inf).exp()
    dx = x * step.unsqueeze(-1)
    y = torch.einsum("bclhn,bcshn,bhcls,bcshp->bclhp", C, B, decay, dx)
    added = torch.einsum("bclhn,bhcl,bclhp->bchpn", B, (cs[..., -1:] - cs).exp(), dx)
    state, starts = torch.zeros_like(added[:, 0]), []
    for chunk in range(added.shape[1]):
        starts.append(state)
        state = state * cs[:, :, chunk, -1].exp()[..., None, None] + added[:, chunk]
    y = y + torch.einsum("bclhn,bchpn,bhcl->bclhp", C, torch.stack(starts, 1), cs.exp())
    return y.flatten(1, 2)[:, :seqlen]


def ours(backend):
    def scan(x, dt, A, B, C):
        return ssd_scan(x, dt, A, B, C, chunk_size=CHUNK_SIZE, dt_softplus=True, backend=backend)[0]

    return scan


def inputs(batch):
    _, seqlen, nheads, headdim, ngroups, dstate = SIZES
    generator = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(*shape, generator=generator).requires_grad_()

    A = (-torch.arange(1.0, nheads + 1)).requires_grad_()
    tokens = normal(batch, seqlen, nheads, headdim), normal(batch, seqlen, nheads)
    return (*tokens, A, normal(batch, seqlen, ngroups, dstate), normal(batch, seqlen, ngroups, dstate))


SCANS = {"cpu": ours("cpu"), "chunked": ours("chunked"), "einsum": einsum_chunk_scan}


def high_water_bytes():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def measure_here(name):
    """Peak bytes of this process during one forward and backward of a scan."""
    scan = SCANS[name]
    scan(*inputs(1)).sum().backward()  # thread pools and library handles
    tensors = inputs(SIZES[0])
    Path("/proc/self/clear_refs").write_text("5")
    before = high_water_bytes()
    scan(*tensors).sum().backward()
    return high_water_bytes() - before


def measure(name):
    """Peak bytes of a fresh process during one forward and backward of a scan."""
    code = f"from tests.ops.memory import measure_here; print(measure_here({name!r}))"
    root = Path(__file__).parents[2]
    run = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    return json.loads(run.stdout)


def main():
    for name in SCANS:
        sys.stdout.write(f"{name:<8} {measure(name) / 2**20:8.0f} MiB\n")


if __name__ == "__main__":
    main()
