"""One guest an image: an exclusive lock on the first byte of each image that the guest may write to.

The lock belongs to the open file (``F_OFD_SETLK``), so it lives exactly as long as the launcher, process 1 of its
container, with which the machine dies. One byte, as QEMU locks bytes from 100 on for itself (``block/file-posix.c``).
By NFS it holds between nodes.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from pathlib import Path

_F_OFD_SETLK = 37
_FIRST_BYTE = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)


def take(path: Path) -> int | None:
    """Return the open file that has the lock, None while somebody else has it."""
    opened = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.fcntl(opened, _F_OFD_SETLK, _FIRST_BYTE)
    except OSError as error:
        os.close(opened)
        if error.errno in {errno.EAGAIN, errno.EACCES}:
            return None
        raise
    return opened
