"""The model families (registered with timm), their weights and what they cost."""

from vmamba2.models.checkpoint import LoadReport, load_weights
from vmamba2.models.complexity import count_multiply_adds, count_parameters
from vmamba2.models.vmamba2 import VMamba2

__all__ = ["LoadReport", "VMamba2", "count_multiply_adds", "count_parameters", "load_weights"]
