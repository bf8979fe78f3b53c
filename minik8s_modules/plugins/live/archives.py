"""The archives of modules as a worker's calls need them, the last few of which are kept.

For each call, Ansible reads a module's archive from the run's folder, makes text of it, and escapes that for the script
which the call is: 400 KB, always the same. A worker runs a few modules again and again, so it does all this once for
each. Only a worker does: in the play, which lives for months, the archives of all modules would be 9 MB.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from ansible.executor import module_common

KEPT = 4
"""Modules of a Pod's life are no more."""


class _Text(str):
    """An archive in base64, which nothing needs to escape."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"'{self}'"


def keep() -> None:
    """Have this process keep the archives it reads; for a worker."""
    read = module_common._CachedModule.load  # noqa: SLF001 - there is no other place between reading and escaping

    @functools.lru_cache(maxsize=KEPT)
    def kept(path: str) -> Any:
        found = read(path)
        return dataclasses.replace(found, zip_data=_Text(found.zip_data.decode("ascii")))

    module_common._CachedModule.load = staticmethod(kept)  # noqa: SLF001
