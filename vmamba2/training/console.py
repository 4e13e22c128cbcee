"""What the terminal shows: plain lines above the moving bar, without tracebacks and without noise."""

from __future__ import annotations

import logging
import warnings
from typing import Any

from lightning.pytorch.utilities.rank_zero import rank_zero_only
from tqdm import tqdm

# Passed as `extra` to a log call whose text only the log file gets.
FILE_ONLY = {"file_only": True}
# Said by Lightning about itself, or about a choice that the configuration makes on purpose.
KNOWN_WARNINGS = (
    ".*LeafSpec.*",
    ".*does not have many workers.*",
    ".*smaller than the logging interval.*",
    # Metrics are reduced over all processes before they are logged.
    ".*It is recommended to use `self.log.*",
)


class ConsoleHandler(logging.StreamHandler):
    """Writes log lines above a tqdm bar; a traceback goes to the log file only."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record, in the first process only."""
        if getattr(rank_zero_only, "rank", 0) == 0 and not getattr(record, "file_only", False):
            tqdm.write(self.format(record), file=self.stream)

    def format(self, record: logging.LogRecord) -> str:
        """The record's text without its traceback."""
        plain = logging.makeLogRecord({**record.__dict__, "exc_info": None, "exc_text": None})
        return super().format(plain)


def route_messages() -> None:
    """Send warnings and Lightning's messages through the log, and leave out those that say nothing."""
    logging.captureWarnings(True)
    warnings.formatwarning = _format_warning
    for message in KNOWN_WARNINGS:
        warnings.filterwarnings("ignore", message)
    for name in ("lightning.pytorch", "lightning.fabric"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(logging.WARNING)


def _format_warning(message: Any, category: type[Warning], *_: Any, **__: Any) -> str:
    return f"{category.__name__}: {message}"
