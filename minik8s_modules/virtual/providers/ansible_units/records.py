"""The Pods that are units: a file each, so that a restarted provider knows them, and on which host they are."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.module_utils.minik8s.core.files import write_atomically
from minik8s_modules.module_utils.minik8s.core.paths import component


class Record(NamedTuple):
    """A Pod, the host that has its unit, the unit as it was asked for first, and the values of its variables."""

    pod: JsonObject
    host: str
    entry: JsonObject
    environment: dict[str, str]

    @property
    def ends(self) -> bool:
        """Return whether the Pod was deleted."""
        return bool(self.entry.get("stopping"))


class Records:
    """All of them; for one thread at a time. Values of variables stand in the files, which only their owner reads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._known: dict[str, Record] = {}
        for path in sorted(folder.glob("*.json")):
            with contextlib.suppress(OSError, ValueError, TypeError):
                self._known[path.stem] = Record(**json.loads(path.read_bytes()))

    def all(self) -> dict[str, Record]:
        """Return them by uid."""
        return dict(self._known)

    def get(self, uid: str) -> Record | None:
        """Return one, None where there is none."""
        return self._known.get(uid)

    def keep(self, record: Record) -> None:
        """Have a record, from now on and over restarts."""
        uid = objects.uid(record.pod)
        write_atomically(str(self._path(uid)), json.dumps(record._asdict()).encode(), sync=True)
        self._known[uid] = record

    def drop(self, uid: str) -> None:
        """Have it no more."""
        self._path(uid).unlink(missing_ok=True)
        self._known.pop(uid, None)

    def _path(self, uid: str) -> Path:
        return self._folder / f"{component(uid)}.json"
