"""What a module call left behind in its process, so that only one that left nothing is followed by another there.

A module is written for a process of its own, which ends with it. What it may have left is looked for after each call:
threads, programs, open files, imports, another environment, folder, namespace or way to take signals, values at the
top of Ansible's and our modules. Values that were replaced are put back; whatever else differs ends the process, and
the next call is forked again. Standard library only, Python 3.8 and newer: it travels with `server.py`.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import ModuleType
from typing import Any, NamedTuple

MORE_PAGES = 1 << 13  # 32 MB: what a call with 10,000 Services keeps for the next one is less
OPENED_ONCE = 2  # by the first call, to stay: the C library's connection to syslog
PLAIN = (type(None), bool, int, float, str, bytes, tuple, frozenset)
GROWING = (dict, list, set)
NAMESPACES = ("net", "mnt", "uts", "ipc")


class Process(NamedTuple):
    """What the system knows of this process."""

    environment: dict[str, str]
    folder: str
    threads: int
    files: int
    namespaces: tuple[str, ...]
    handlers: tuple[Any, ...]
    ids: tuple[int, ...]


class Before:
    """How the process was before its first call."""

    def __init__(self) -> None:
        self._process = _process()
        self._pages = _pages()
        self._calls = 0
        self._modules = set(sys.modules)
        self._globals = _globals()
        self._sizes = _sizes()

    def holds_again(self) -> bool:
        """Return whether the process is as it was, but for values that were replaced: those are put back."""
        if _has_children() or self.imported():
            return False
        for name, values in self._globals.items():
            found = vars(sys.modules[name])
            for key, value in values.items():
                if found.get(key) is not value:
                    found[key] = value
        found_now = _process()
        self._calls += 1
        if self._calls == 1 and found_now.files <= self._process.files + OPENED_ONCE:
            self._process = self._process._replace(files=found_now.files)
        has_room = _pages() < self._pages + MORE_PAGES
        return has_room and found_now == self._process and _sizes() == self._sizes

    def imported(self) -> list[str]:
        """Return the names of the modules that have come, but for Ansible modules: those are what was called."""
        return [name for name in set(sys.modules) - self._modules if not name.startswith("ansible.modules")]


def _globals() -> dict[str, dict[str, Any]]:
    kinds = (*PLAIN, *GROWING)
    return {
        module.__name__: {key: value for key, value in vars(module).items() if isinstance(value, kinds)}
        for module in _watched()
    }


def _sizes() -> list[int]:
    # what a module collects for its one result, such as warnings, would be in the next one's, too
    return [len(value) for module in _watched() for value in vars(module).values() if isinstance(value, GROWING)]


def _watched() -> list[ModuleType]:
    return [module for name, module in list(sys.modules.items()) if name.startswith("ansible.")]


def _process() -> Process:
    return Process(
        dict(os.environ),
        os.getcwd(),
        threading.active_count(),
        len(os.listdir("/proc/self/fd")),
        tuple(os.readlink(f"/proc/self/ns/{each}") for each in NAMESPACES),
        tuple(signal.getsignal(each) for each in signal.valid_signals()),
        (*os.getresuid(), *os.getresgid(), *os.getgroups()),
    )


def _pages() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1])


def _has_children() -> bool:
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True  # one that runs yet, or one that nobody waited for
