"""Processes of the container: started here, and reaped here with all that others leave behind (KV-09)."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Sequence
from typing import Any


class Children:
    """Reaps every process that ends; who waits for one is told its status as ``os.waitstatus_to_exitcode`` has it."""

    def __init__(self) -> None:
        self._ends: dict[int, asyncio.Future[int]] = {}
        self._kept: dict[int, subprocess.Popen[bytes]] = {}

    def watch(self) -> None:
        """Begin, in the running loop."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self._reap)

    def start(self, argv: Sequence[str], **options: Any) -> tuple[int, asyncio.Future[int]]:
        """Start a program in a process group of its own; return its number and how it will have ended."""
        child = subprocess.Popen(argv, process_group=0, **options)
        end: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        # nothing is reaped in between: the signal is handled by the loop
        self._ends[child.pid], self._kept[child.pid] = end, child
        return child.pid, end

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            code = os.waitstatus_to_exitcode(status)
            end, child = self._ends.pop(pid, None), self._kept.pop(pid, None)
            if child is not None:
                child.returncode = code
            if end is not None and not end.done():
                end.set_result(code)


def kill_group(pid: int) -> None:
    """Kill what is left of a process group."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
