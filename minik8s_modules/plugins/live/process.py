"""Tie a process to its parent's life, so that no kill -9 leaves an orphan."""

from __future__ import annotations

import ctypes
import os
import signal

PR_SET_PDEATHSIG = 1  # linux/prctl.h
_libc = ctypes.CDLL(None, use_errno=True)  # loaded before any fork: a child only makes the call


def die_with_parent(expected_parent: int) -> bool:
    """Have the kernel SIGKILL this process when its parent ends; cleared by fork, so children call it too.

    Returns:
        Whether ``expected_parent`` still was the parent after that, i.e. whether to go on.
    """
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    return os.getppid() == expected_parent
