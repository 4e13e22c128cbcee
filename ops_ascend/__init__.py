"""Scan operators for state-space models: Mamba-2's SSD scan, its grid form, and Mamba-1's selective scan."""

from ops_ascend.backend import backends
from ops_ascend.dispatch import selective_scan, ssd_cross_scan, ssd_scan
from ops_ascend.mamba_ssm import mamba_chunk_scan_combined, selective_scan_fn

__all__ = [
    "backends",
    "mamba_chunk_scan_combined",
    "selective_scan",
    "selective_scan_fn",
    "ssd_cross_scan",
    "ssd_scan",
]
