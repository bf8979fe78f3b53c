"""What a module call left behind in its process, so that only one that left nothing is followed by another there.

A module is written for a process of its own, which ends with it. What it may have left is looked for after each call:
threads, programs, open files, imports, another environment, folder, namespace or way to take signals, values at the
top of Ansible's and our modules. Values that were replaced are put back; whatever else differs ends the process, and
the next call is forked again. Standard library only, Python 3.8 and newer: it travels with `server.py`.
"""

from __future__ import annotations

import itertools
import operator
import os
import signal
import sys
import threading
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


class Top:
    """The values at the top of one module."""

    def __init__(self, found: dict[str, Any]) -> None:
        kinds = (*PLAIN, *GROWING)
        self._found, self._count = found, len(found)
        self._values = {key: value for key, value in found.items() if key[:2] != "__" and isinstance(value, kinds)}
        self._get = operator.itemgetter("__name__", *self._values)
        self._known = self._get(found)
        self._growing = [value for value in self._values.values() if isinstance(value, GROWING)]
        self._sizes = list(map(len, self._growing))

    def holds_again(self) -> bool:
        """Put back values that were replaced; returns whether nothing has grown or come."""
        try:
            is_same = all(map(operator.is_, self._get(self._found), self._known))
        except KeyError:
            is_same = False
        if not is_same:
            self._found.update(self._values)
        # what a module collects for its one result, such as warnings, would be in the next one's, too
        return list(map(len, self._growing)) == self._sizes and (
            len(self._found) == self._count or not self._has_more()
        )

    def _has_more(self) -> bool:
        found = [value for key, value in self._found.items() if key[:2] != "__" and isinstance(value, GROWING)]
        return len(found) != len(self._growing)


class Values:
    """What a template has imported, and the values at the top of Ansible's and our modules there.

    Whoever reads a value writes its count of references, and a forked process then gets the page for itself. So the
    template notes what there is, and its children look at no names, functions and classes, which are most.
    """

    def __init__(self) -> None:
        self._modules = set(sys.modules)
        self._last = next(reversed(sys.modules))
        self._tops = [Top(vars(module)) for name, module in list(sys.modules.items()) if name.startswith("ansible.")]

    def hold_again(self) -> bool:
        """Put back values that were replaced; returns whether nothing has grown or come."""
        return all(top.holds_again() for top in self._tops)

    def imported(self) -> list[str]:
        """Return the names of the modules that have come, but for Ansible modules: those are what was called."""
        new = list(itertools.islice(reversed(sys.modules), len(sys.modules) - len(self._modules) + 1))
        if not new or new.pop() != self._last:  # some have gone
            new = list(set(sys.modules) - self._modules)
        return [name for name in new if not name.startswith("ansible.modules")]


class Before:
    """How the process was before its first call."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._process = _process()
        self._pages = _pages()
        self._calls = 0

    def holds_again(self) -> bool:
        """Return whether the process is as it was, but for values that were replaced: those are put back."""
        if _has_children() or self._values.imported() or not self._values.hold_again():
            return False
        found_now = _process()
        self._calls += 1
        if self._calls == 1 and found_now.files <= self._process.files + OPENED_ONCE:
            self._process = self._process._replace(files=found_now.files)
        return _pages() < self._pages + MORE_PAGES and found_now == self._process


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
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1])


def _has_children() -> bool:
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True  # one that runs yet, or one that nobody waited for
