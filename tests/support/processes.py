"""Processes that tests look at from outside."""

from __future__ import annotations

import socket
import struct
from pathlib import Path


def peer_pid(path: Path) -> int:
    """Return who listens on the Unix socket ``path``, 0 if nobody does."""
    with socket.socket(socket.AF_UNIX) as probe:
        if probe.connect_ex(str(path)):
            return 0
        return int(struct.unpack("3i", probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0])
