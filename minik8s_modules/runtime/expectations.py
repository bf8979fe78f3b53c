"""What a controller has done and its copies do not show yet: until they do, it must not decide again.

client-go counts creations and deletions (``controller.ControllerExpectations``). Here the API's answers say more: each
write has a revision, and an informer that has reached it shows the write. So a key waits

- for the largest revision of its own writes, a kind;
- for each object it has deleted to be gone, or to be marked as deleted (by uid);
- for an answer about each creation whose answer was lost: names are chosen by us, so that a look tells.

Nothing waits longer than five minutes (``controller.ExpectationsTimeout``).
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import Kind
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.base.clock import Clock, SystemClock
from minik8s_modules.client.informer import Informer
from minik8s_modules.runtime.informers import Informers

log = logging.getLogger(__name__)

TIMEOUT_S = 300.0


class Unsure(NamedTuple):
    """An object that may have been created."""

    kind: Kind
    key: Key


class _Deleted(NamedTuple):
    kind: Kind
    key: Key
    uid: str


@dataclass
class _Expected:
    """Revisions that the copies are to show, and since when they are waited for."""

    since_s: float
    revisions: dict[Kind, int] = field(default_factory=dict)
    deleted: set[_Deleted] = field(default_factory=set)
    unsure: set[Unsure] = field(default_factory=set)


class Expectations:
    """Expectations of one controller, by the key of what it syncs; thread-safe."""

    def __init__(self, informers: Informers, clock: Clock | None = None) -> None:
        self._informers = informers
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._expected: dict[Key, _Expected] = {}

    def wrote(self, key: Key, kind: Kind, answer: JsonObject) -> None:
        """Expect to see what the API answered to a create or update of ``kind``."""
        revision = objects.resource_version(answer)
        if revision.isdigit():
            with self._lock:
                revisions = self._of(key).revisions
                revisions[kind] = max(revisions.get(kind, 0), int(revision))

    def deleted(self, key: Key, kind: Kind, obj: JsonObject) -> None:
        """Expect to see that ``obj`` is gone, or going."""
        with self._lock:
            self._of(key).deleted.add(_Deleted(kind, objects.key(obj), objects.uid(obj)))

    def unsure(self, key: Key, kind: Kind, name: Key) -> None:
        """Remember that ``name`` may have been created: the answer was lost."""
        with self._lock:
            self._of(key).unsure.add(Unsure(kind, name))

    def take_unsure(self, key: Key) -> list[Unsure]:
        """Return what may have been created; the caller looks, and says ``wrote`` or ``unsure`` again."""
        with self._lock:
            expected = self._expected.get(key)
            if expected is None:
                return []
            unsure, expected.unsure = [*expected.unsure], set()
            return unsure

    def fulfilled(self, key: Key) -> bool:
        """Return whether the copies show everything that was done for ``key``."""
        with self._lock:
            expected = self._expected.get(key)
            if expected is None:
                return True
            late = self._clock.monotonic() - expected.since_s > TIMEOUT_S
            if late:
                log.warning("%s: what was written %d s ago does not show; going on", key, TIMEOUT_S)
            if late or self._shown(expected):
                del self._expected[key]
                return True
            return False

    def forget(self, key: Key) -> None:
        """Expect nothing more: the object is gone."""
        with self._lock:
            self._expected.pop(key, None)

    def _of(self, key: Key) -> _Expected:
        return self._expected.setdefault(key, _Expected(self._clock.monotonic()))

    def _shown(self, expected: _Expected) -> bool:
        if expected.unsure:
            return False
        if not all(self._informers.of(kind).has_reached(at) for kind, at in expected.revisions.items()):
            return False
        expected.deleted = {each for each in expected.deleted if _alive(self._informers.of(each.kind), each)}
        return not expected.deleted


def _alive(informer: Informer, deleted: _Deleted) -> bool:
    obj = informer.get(*deleted.key)
    return obj is not None and objects.uid(obj) == deleted.uid and not objects.is_deleting(obj)
