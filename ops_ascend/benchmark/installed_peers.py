"""The CPU paths of other packages, where they are installed: each called as its own project calls it.

They are looked up by name at run time; nothing here needs them.
"""

import importlib
import importlib.util
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Installed:
    """A function of another package.

    Attributes:
        name: in the tables.
        op: the operator that it computes.
        module: where it is.
        function: what it is called there.
        adapt: makes an operator of it; takes the function.
        backward_growth: how its backward grows with the length: linearly (1) or quadratically (2).
    """

    name: str
    op: str
    module: str
    function: str
    adapt: Callable[[Callable[..., Any]], Callable[..., Tensor]]
    backward_growth: int = 1

    @property
    def package(self) -> str:
        """What one installs."""
        return self.module.partition(".")[0]

    def load(self) -> Callable[..., Tensor]:
        """Import it.

        Raises:
            ImportError, AttributeError, OSError, RuntimeError: the package is not usable here.
        """
        return self.adapt(getattr(importlib.import_module(self.module), self.function))


def _pad(tokens: Tensor, chunk_size: int) -> Tensor:
    after_seqlen = (0, 0) * (tokens.dim() - 2)
    return F.pad(tokens, (*after_seqlen, 0, -tokens.shape[1] % chunk_size))


def _mamba_ssm_combined(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def scan(
        x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, *, chunk_size: int, **rest: Any
    ) -> Tensor:
        # Its own padding raises.
        padded = [_pad(t, chunk_size) for t in (x, dt, B, C)]
        y = function(*padded[:2], A, *padded[2:], chunk_size, dt_softplus=True, **rest)
        return y[:, : x.shape[1]]

    return scan


def _mamba_ssm_minimal(function: Callable[..., Any]) -> Callable[..., Tensor]:
    def scan(
        x: Tensor,
        dt: Tensor,
        A: Tensor,
        B: Tensor,
        C: Tensor,
        *,
        chunk_size: int,
        D: Tensor,
        dt_bias: Tensor,
    ) -> Tensor:
        step = F.softplus(dt + dt_bias)
        heads = (t.repeat_interleave(x.shape[2] // t.shape[2], dim=2) for t in (B, C))
        tokens = (_pad(t, chunk_size) for t in (x * step.unsqueeze(-1), step * A, *heads))
        return function(*tokens, chunk_size)[0][:, : x.shape[1]] + x * D.unsqueeze(-1)

    return scan


def _transformers_mamba2(function: Callable[..., Any]) -> Callable[..., Tensor]:
    # The decorator replaces it by a GPU kernel wherever mamba_ssm is installed.
    plain = inspect.unwrap(function)

    def scan(
        x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, *, chunk_size: int, **rest: Any
    ) -> Tensor:
        result = plain(x, dt, A, B, C, chunk_size, dt_softplus=True, **rest)
        return result[0] if isinstance(result, tuple) else result

    return scan


def _linear_attention_chunks(function: Callable[..., Any]) -> Callable[..., Tensor]:
    def scan(
        x: Tensor,
        dt: Tensor,
        A: Tensor,
        B: Tensor,
        C: Tensor,
        *,
        chunk_size: int,
        D: Tensor,
        dt_bias: Tensor,
    ) -> Tensor:
        step = F.softplus(dt + dt_bias)
        keys, queries = (t.repeat_interleave(x.shape[2] // t.shape[2], dim=2) for t in (B, C))
        result = function(queries, keys, x * step.unsqueeze(-1), step * A, chunk_size=chunk_size, scale=1.0)
        return (result[0] if isinstance(result, tuple) else result) + x * D.unsqueeze(-1)

    return scan


def _selective(function: Callable[..., Any]) -> Callable[..., Tensor]:
    plain = inspect.unwrap(function)

    def scan(*tensors: Tensor, **named: Tensor) -> Tensor:
        result = plain(*tensors, delta_softplus=True, **named)
        return result[0] if isinstance(result, tuple) else result

    def by_position(u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, **rest: Tensor) -> Tensor:
        return scan(u, delta, A, B, C, **rest)

    return by_position


def _mambapy(pscan: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def scan(
        u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, *, D: Tensor, delta_bias: Tensor
    ) -> Tensor:
        step = F.softplus(delta + delta_bias.unsqueeze(-1)).mT.unsqueeze(-1)  # (B, L, D, 1)
        added = step * u.mT.unsqueeze(-1) * B.mT.unsqueeze(2)
        states = pscan(torch.exp(step * A), added)  # (B, L, D, N)
        return (states @ C.mT.unsqueeze(-1)).squeeze(-1).mT + u * D.unsqueeze(-1)

    return scan


INSTALLED = (
    Installed(
        "mamba_ssm combined reference",
        "ssd_scan",
        "mamba_ssm.ops.triton.ssd_combined",
        "ssd_chunk_scan_combined_ref",
        _mamba_ssm_combined,
    ),
    Installed(
        "mamba_ssm minimal",
        "ssd_scan",
        "mamba_ssm.modules.ssd_minimal",
        "ssd_minimal_discrete",
        _mamba_ssm_minimal,
    ),
    Installed(
        "transformers",
        "ssd_scan",
        "transformers.models.mamba2.modeling_mamba2",
        "mamba2_chunk_scan",
        _transformers_mamba2,
    ),
    Installed(
        "fla naive chunks",
        "ssd_scan",
        "fla.ops.simple_gla.naive",
        "naive_chunk_simple_gla",
        _linear_attention_chunks,
        backward_growth=2,
    ),
    Installed(
        "mamba_ssm reference",
        "selective_scan",
        "mamba_ssm.ops.selective_scan_interface",
        "selective_scan_ref",
        _selective,
        backward_growth=2,
    ),
    Installed(
        "transformers",
        "selective_scan",
        "transformers.models.mamba.modeling_mamba",
        "mamba_selective_scan",
        _selective,
        backward_growth=2,
    ),
    Installed("mambapy", "selective_scan", "mambapy.pscan", "pscan", _mambapy),
)


def usable(
    op: str, only: str | None = None
) -> tuple[list[tuple[Installed, Callable[..., Tensor]]], list[str]]:
    """The installed functions that compute an operator, and why the others are left out.

    Args:
        op: the operator.
        only: import only what a candidate of this name needs.
    """
    found, left_out = [], []
    for peer in INSTALLED:
        if peer.op != op or (only is not None and not only.startswith(peer.name)):
            continue
        if importlib.util.find_spec(peer.package) is None:
            left_out.append(f"{peer.name}: {peer.package} is not installed")
            continue
        try:
            found.append((peer, peer.load()))
        except (ImportError, AttributeError, OSError, RuntimeError) as error:
            left_out.append(f"{peer.name}: {peer.package} cannot be used: {str(error).splitlines()[0]}")
    return found, left_out
