"""The Mamba-2 token mixer over a grid."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ops_ascend
from vmamba2.layers.depthwise_conv import DepthwiseConv2d

DIRECTIONS = (1, 2, 4)
DT_RANGE = (1e-3, 1e-1)
A_RANGE = (1.0, 16.0)


class GridMixer(nn.Module):
    """Mix the tokens of a grid by scans in 1, 2 or 4 directions, one operator call for all of them.

    in_proj -> z, xBC, dt;  xBC = silu(dwconv(xBC));  y = ssd_cross_scan(x, dt, B, C, z);  out_proj(norm(y))

    The operator takes x, B, C, z as views of the projections: nothing is copied or padded here.

    `A_log`, `dt_bias` and `D` are float32 in storage and in use. `half()`, `bfloat16()` and `to(dtype)` move
    them but leave them in float32 (a step of 0.001 has 8 bits in bfloat16, and its decay drifts); `double()`
    widens them. They are parameters of this module and not of a layer, so an init pass by layer type
    (linear weights, biases to zero) cannot touch them; `reset_parameters` gives them their own init.

    Args:
        d_model: channels of the grid.
        expand: d_inner / d_model.
        headdim: channels per head; divides d_inner.
        dstate: size of the state per channel.
        ngroups: heads that share B and C; divides nheads.
        chunk_size: tokens per chunk of the scan; a matter of speed, not of result.
        directions: 1 (rows forward), 2 (and backward) or 4 (and both ways along the columns).
        scan_backend: a name of `ops_ascend.backends()`, or "auto".
        device: where the parameters are made.
        dtype: of every parameter but the three above.
    """

    def __init__(
        self,
        d_model: int,
        *,
        expand: int = 2,
        headdim: int = 64,
        dstate: int = 128,
        ngroups: int = 1,
        chunk_size: int = 128,
        directions: int = 4,
        scan_backend: str = "auto",
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        _check_positive(
            d_model=d_model,
            expand=expand,
            headdim=headdim,
            dstate=dstate,
            ngroups=ngroups,
            chunk_size=chunk_size,
        )
        d_inner = expand * d_model
        _check_heads(d_inner, headdim, ngroups)
        _check_scan(directions, scan_backend)
        self.d_inner, self.headdim, self.dstate, self.ngroups = d_inner, headdim, dstate, ngroups
        self.nheads = d_inner // headdim
        self.chunk_size, self.directions, self.scan_backend = chunk_size, directions, scan_backend
        d_conv = d_inner + 2 * ngroups * dstate

        self.A_log = nn.Parameter(torch.empty(self.nheads, device=device, dtype=torch.float32))
        self.dt_bias = nn.Parameter(torch.empty(self.nheads, device=device, dtype=torch.float32))
        self.D = nn.Parameter(torch.empty(self.nheads, headdim, device=device, dtype=torch.float32))
        d_in_proj = d_inner + d_conv + self.nheads
        self.in_proj = nn.Linear(d_model, d_in_proj, bias=False, device=device, dtype=dtype)
        self.dwconv = DepthwiseConv2d(d_conv, device=device, dtype=dtype)
        self.out_norm = nn.LayerNorm(d_inner, device=device, dtype=dtype)
        self.out_proj = nn.Linear(d_inner, d_model, bias=False, device=device, dtype=dtype)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw softplus(dt_bias) log-uniform in DT_RANGE and exp(A_log) uniform in A_RANGE; set D to one."""
        self.A_log.uniform_(*A_RANGE).log_()
        low, high = map(math.log, DT_RANGE)
        step = self.dt_bias.uniform_(low, high).exp_()
        # The inverse of softplus, exact for small steps too.
        step.add_(torch.log(-torch.expm1(-step)))
        self.D.fill_(1.0)

    def forward(self, grid: Tensor) -> Tensor:
        """Mix (B, height, width, d_model)."""
        height, width = grid.shape[1:3]
        d_grouped = self.ngroups * self.dstate
        z, xBC, dt = self.in_proj(grid).split(
            [self.d_inner, self.d_inner + 2 * d_grouped, self.nheads], dim=-1
        )
        xBC = F.silu(self.dwconv(xBC))
        x, B, C = xBC.flatten(1, 2).split([self.d_inner, d_grouped, d_grouped], dim=-1)
        y = ops_ascend.ssd_cross_scan(
            x.unflatten(-1, (self.nheads, self.headdim)),
            dt.flatten(1, 2),
            -torch.exp(self.A_log.float()),
            B.unflatten(-1, (self.ngroups, self.dstate)),
            C.unflatten(-1, (self.ngroups, self.dstate)),
            height=height,
            width=width,
            directions=self.directions,
            chunk_size=self.chunk_size,
            D=self.D,
            z=z.flatten(1, 2).unflatten(-1, (self.nheads, self.headdim)),
            dt_bias=self.dt_bias,
            dt_softplus=True,
            backend=self.scan_backend,
        )
        y = self.out_proj(self.out_norm(y.flatten(2)))
        return y.unflatten(1, (height, width))

    def extra_repr(self) -> str:
        """What `print(model)` says beyond the submodules."""
        return (
            f"nheads={self.nheads}, headdim={self.headdim}, dstate={self.dstate}, ngroups={self.ngroups}, "
            f"chunk_size={self.chunk_size}, directions={self.directions}, scan_backend={self.scan_backend!r}"
        )

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "GridMixer":
        if recurse:
            for child in self.children():
                child._apply(fn)

        def apply_without_narrowing(tensor: Tensor) -> Tensor:
            moved = fn(tensor)
            narrowed = moved.is_floating_point() and torch.finfo(moved.dtype).bits < 32
            return tensor.to(moved.device) if narrowed else moved

        # Not recursive: what is left are A_log, dt_bias, D and their gradients.
        return super()._apply(apply_without_narrowing, recurse=False)


def _check_positive(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"GridMixer: {name} ({size}) must be positive")


def _check_heads(d_inner: int, headdim: int, ngroups: int) -> None:
    if d_inner % headdim:
        raise ValueError(f"GridMixer: expand * d_model ({d_inner}) must be divisible by headdim ({headdim})")
    nheads = d_inner // headdim
    if nheads % ngroups:
        raise ValueError(f"GridMixer: nheads ({nheads}) must be divisible by ngroups ({ngroups})")


def _check_scan(directions: int, scan_backend: str) -> None:
    if directions not in DIRECTIONS:
        raise ValueError(f"GridMixer: directions ({directions}) must be 1, 2 or 4")
    known = ["auto", *ops_ascend.backends()]
    if scan_backend not in known:
        raise ValueError(f"GridMixer: scan_backend ({scan_backend!r}) must be one of {', '.join(known)}")
