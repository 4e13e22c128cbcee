"""Lightning callbacks, one idea each; `configs/callbacks` builds them."""

from vmamba2.training.callbacks.checkpoints import RunCheckpoints
from vmamba2.training.callbacks.curves import LearningCurves
from vmamba2.training.callbacks.ema import EmaWeights
from vmamba2.training.callbacks.epoch_report import EpochReport
from vmamba2.training.callbacks.non_finite import NonFiniteError, NonFiniteGuard
from vmamba2.training.callbacks.predictions import PredictionGrid
from vmamba2.training.callbacks.progress import EpochBar
from vmamba2.training.callbacks.random_state import RandomState
from vmamba2.training.callbacks.summary import RunSummary
from vmamba2.training.callbacks.throughput import Throughput

__all__ = [
    "EmaWeights",
    "EpochBar",
    "EpochReport",
    "LearningCurves",
    "NonFiniteError",
    "NonFiniteGuard",
    "PredictionGrid",
    "RandomState",
    "RunCheckpoints",
    "RunSummary",
    "Throughput",
]
