"""One line a record on standard error: time, level, logger, message; tracebacks follow it."""

from __future__ import annotations

import logging
import sys


def configure(level: str = "INFO") -> None:
    """Send all records of ``level`` and above to standard error; replaces earlier handlers."""
    handler = logging.StreamHandler(sys.stderr)
    formatter = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S%z")
    handler.setFormatter(formatter)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
