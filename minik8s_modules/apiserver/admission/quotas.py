"""ResourceQuota admission: an object and what it uses of its namespace's quotas are one write of the store.

The quotas' ``status.used`` is raised in the transaction that stores the object, each compared with the revision that
was looked at. So no number of clients and servers gets past a quota, nothing is given back after a failure, and the
controller that counts again (controllers/policy/quotas.py) is never wrong about objects on their way. Deletions are its
to see. Words are those of kubernetes ``apiserver/pkg/admission/plugin/resourcequota``.
"""

from __future__ import annotations

from typing import NamedTuple

from minik8s_modules.api.errors import Conflict
from minik8s_modules.api.kinds import RESOURCE_QUOTA, Kind
from minik8s_modules.api.objects import JsonObject, name, namespace
from minik8s_modules.api.pods import quotas
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.store import readable
from minik8s_modules.store.cached import CachedObject
from minik8s_modules.store.encoding import with_revision, without_revision
from minik8s_modules.store.errors import KeyMissing, StaleWrite
from minik8s_modules.store.interface import Put

_ATTEMPTS = 20


class Stored(NamedTuple):
    """A write's revision, and whether it changed the object ``alone``: quotas were charged with it otherwise."""

    revision: int
    alone: bool


def stored(backend: Backend, kind: Kind, put: Put, new: JsonObject, old: JsonObject | None = None) -> Stored:
    """Store ``new`` as ``put`` says, and charge the quotas of its namespace.

    Raises:
        Forbidden: it would exceed a quota, or a quota cannot tell yet.
        Conflict: the quotas change too fast.
        StoreError: as ``Store.write`` has it, about the object's own key.
    """
    if not _concerned(backend, kind, new, old):
        return Stored(_plainly(backend, put), alone=True)
    with backend.quotas.held(namespace(new)):
        fresh: list[CachedObject] | None = None
        for _ in range(_ATTEMPTS):
            looked = fresh if fresh is not None else [backend.quotas.newer(item) for item in _quotas(backend, new)]
            charged = _charged(backend, kind, looked, new, old)
            puts = [Put(item.key, without_revision(obj), item.revision) for item, obj in charged]
            try:
                revision = backend.store.write([put, *puts])
            except (StaleWrite, KeyMissing):
                fresh = _latest(backend, looked)
                if [each.revision for each in fresh] == [each.revision for each in looked]:
                    raise  # it is the object itself that has changed
                continue
            for item, obj in charged:
                backend.quotas.wrote(_cached(item.key, without_revision(obj), revision))
            return Stored(revision, alone=not charged)
    raise Conflict(kind, name(new), "the quotas of its namespace are changed all the time; try again")


def _plainly(backend: Backend, put: Put) -> int:
    if put.expected:
        return backend.store.update(put.key, put.value, put.expected)
    return backend.store.create(put.key, put.value)


def check(backend: Backend, kind: Kind, new: JsonObject, old: JsonObject | None = None) -> None:
    """Raise Forbidden where ``stored`` would; nothing is written (dry run)."""
    if _concerned(backend, kind, new, old):
        _charged(backend, kind, _quotas(backend, new), new, old)


def _concerned(backend: Backend, kind: Kind, new: JsonObject, old: JsonObject | None) -> bool:
    if not kind.namespaced or kind.kind == "Event":
        return False
    if old is not None and kind.id not in quotas.CHANGING and not quotas.is_resize(kind, new, old):
        return False
    return bool(_quotas(backend, new))


def _quotas(backend: Backend, obj: JsonObject) -> list[CachedObject]:
    return backend.cache.list(RESOURCE_QUOTA.key(namespace(obj), "")).items


def _latest(backend: Backend, looked: list[CachedObject]) -> list[CachedObject]:
    found = [backend.store.get(item.key) for item in looked]
    return [_cached(entry.key, entry.value, entry.revision) for entry in found if entry is not None]


def _cached(key: str, value: bytes, revision: int) -> CachedObject:
    data, parsed = with_revision(value, revision, key)
    return CachedObject(key, data, revision, parsed["metadata"].get("labels") or {})


def _charged(
    backend: Backend, kind: Kind, looked: list[CachedObject], new: JsonObject, old: JsonObject | None
) -> list[tuple[CachedObject, JsonObject]]:
    """Return the quotas that ``new`` counts for, as they are with it. Raises Forbidden."""
    now = backend.clock.now()
    known = ((item, quota) for item in looked for quota in readable.objects_of(RESOURCE_QUOTA, [item]))
    charged = ((item, quotas.charged(quota, kind, new, old, now)) for item, quota in known)
    return [(item, after) for item, after in charged if after is not None]
