"""Custom kinds in this server: definitions are taken over into the registry, and their status is decided.

Every server of a control plane does both, from its watch cache: all decide alike (api/custom/conditions.py), and
compare-and-swap lets one of them write. A definition is served from when its names are accepted; each server then says
by an annotation of its Lease up to which revision it has taken definitions over, and the definition is ``Established``
once all servers have said so: who reads that may ask any of them. In the same way the last object of a definition that
is being deleted goes after all servers know that none may come any more.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

import orjson

from minik8s_modules.api import objects
from minik8s_modules.api.custom import conditions, definitions
from minik8s_modules.api.custom.kinds import kinds_of, schema_in, slim
from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.kind import Kind
from minik8s_modules.api.kinds import CUSTOM_RESOURCE_DEFINITION, KINDS, LEASE
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.apiserver.http import target as targets
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.incoming import Options
from minik8s_modules.apiserver.http.rounds import Rounds
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.reads.hub import Hub
from minik8s_modules.apiserver.serving import presence
from minik8s_modules.apiserver.verbs import deleting, writing
from minik8s_modules.apiserver.webhooks.conversions import converter_of
from minik8s_modules.base.backoff import Backoff
from minik8s_modules.base.clock import rfc3339
from minik8s_modules.store import readable
from minik8s_modules.store.cached import CachedObject, CacheEvent

log = logging.getLogger(__name__)

TAKEN_OVER = "minik8s.io/definitions-revision"
"""Annotation of a server's Lease: it serves every definition as it was at this revision of the store."""
LOOK_S = 5.0
# an ending definition waits for finalizers of its objects, whose going wakes nobody here
ENDING_S = 0.5
RETRY = Backoff(initial_s=0.1, maximum_s=LOOK_S)
_LEASES = f"{LEASE.prefix}{presence.NAMESPACE}/{presence.PREFIX}"
_Stamp = tuple[str, int, bytes, bool, bool]


class _Definition(NamedTuple):
    """A definition without its schemas, which stand in ``data``."""

    key: str
    revision: int
    object: JsonObject
    data: bytes


class Definitions(Rounds):
    """Keeps the registry and the status of definitions as the store has them, until ``stop``."""

    def __init__(self, backend: Backend, hub: Hub, own: str) -> None:
        prefixes = (CUSTOM_RESOURCE_DEFINITION.prefix, LEASE.prefix)
        super().__init__(backend, "definitions", "custom kinds", prefixes, RETRY)
        self._hub = hub
        self._own = f"{_LEASES}{own}"
        self._made: dict[str, tuple[_Stamp, tuple[Kind, ...]]] = {}
        backend.kinds.complete = False
        self._known: dict[str, _Definition] = {}
        self._settled: dict[str, int] = {}

    def look(self) -> bool:
        """Take definitions over, say so, and decide what is to be decided; returns whether one is ending."""
        found, revision = self._backend.cache.list(CUSTOM_RESOURCE_DEFINITION.prefix)
        self._known = {item.key: known for item in found if (known := self._slimmed(item)) is not None}
        self._take_over([*self._known.values()])
        self._backend.kinds.complete = True
        items = [self._known[item.key] for item in found if self._stands(item)]
        return self._decide_all(items, revision) if items else False

    def _stands(self, item: CachedObject) -> bool:
        """Return whether a definition is known as it is stored."""
        return item.key in self._known and self._known[item.key].revision == item.revision

    def _slimmed(self, item: CachedObject) -> _Definition | None:
        """Return what is kept of a definition here; parsed, a large one is some 4 MB.

        One that cannot be read as it is stored stays what it was, so that its objects are served.
        """
        known = self._known.get(item.key)
        if known is not None and known.revision == item.revision:
            return known
        found = readable.objects_of(CUSTOM_RESOURCE_DEFINITION, [item])
        item.forget_parsed()
        return _Definition(item.key, item.revision, slim(found[0]), item.data) if found else known

    def _decide_all(self, items: Sequence[_Definition], revision: int) -> bool:
        leases = self._others()
        if leases:
            self._say(revision, max(item.revision for item in items))
        acknowledged = min((_revision(lease) for lease in leases), default=revision)
        for item in items:
            if self._settled.get(item.key) != item.revision:
                self._decide(item, items, served=acknowledged >= item.revision)
        return any(conditions.is_ending(item.object) for item in items)

    # --- the registry -------------------------------------------------------------------------------

    def _take_over(self, items: Sequence[_Definition]) -> None:
        """Exchange the registry if a definition came, went, or says something else."""
        before, made = self._made, {}
        for item in items:
            stamp, known = _stamp(item.object), before.get(item.key)
            made[item.key] = known if known is not None and known[0] == stamp else (stamp, self._compiled(item))
        changed = [key for key in made.keys() | before.keys() if made.get(key) != before.get(key)]
        self._made = made
        if not changed:
            return
        self._backend.kinds.registry = KINDS.with_custom(kind for _, kinds in made.values() for kind in kinds)
        targets.forget()
        for key in changed:
            was, now = before.get(key), made.get(key)
            if was is not None and (now is None or now[0][:-1] != was[0][:-1]):  # that it ends changes no object
                for kind in was[1][:1]:
                    self._hub.renew(kind.prefix)

    def _compiled(self, item: _Definition) -> tuple[Kind, ...]:
        definition, data = item.object, item.data
        try:
            convert = converter_of(self._backend.webhooks, self._backend.cache, definition)
            return kinds_of(definition, lambda version: schema_in(orjson.loads(data), version), convert)
        except Exception:  # one definition that cannot be compiled must not keep the others from being served
            log.exception("the definition %s cannot be served", objects.name(definition))
            return ()

    # --- what servers say ---------------------------------------------------------------------------

    def _others(self) -> list[CachedObject]:
        found = self._backend.cache.list(f"{LEASE.prefix}{presence.NAMESPACE}/").items
        return [item for item in found if item.key.startswith(_LEASES) and item.key != self._own]

    def _say(self, revision: int, newest: int) -> None:
        """Tell the other servers that definitions are taken over up to ``revision``, if they miss the ``newest``."""
        own = self._backend.cache.get(self._own)
        if own is None or _revision(own) >= newest:
            return

        def said(lease: JsonObject) -> JsonObject:
            published = {**objects.annotations(lease), TAKEN_OVER: str(revision)}
            return {**lease, "metadata": {**objects.metadata(lease), "annotations": published}}

        _ignoring_absence(self._backend, Target(LEASE, presence.NAMESPACE, self._own.rpartition("/")[2]), said)

    # --- decisions ----------------------------------------------------------------------------------

    def _decide(self, item: _Definition, items: Sequence[_Definition], *, served: bool) -> None:
        definition = item.object
        if objects.is_deleting(definition):
            if conditions.is_ending(definition) and served:
                self._end(item)
            return
        having = conditions.taken(definition, (each.object for each in items), KINDS.all())
        now = rfc3339(self._backend.clock.now())
        if conditions.decide(definition, having, now, served=served) == objects.status(definition):
            if definitions.is_true(definition, "Established") and definitions.is_true(definition, "NamesAccepted"):
                self._settled[item.key] = item.revision
            return

        def decided(present: JsonObject) -> JsonObject:
            if objects.resource_version(present) != str(item.revision):
                return present  # decided on something old: the next look has the new one
            return {**present, "status": conditions.decide(present, having, now, served=served)}

        self._change(item, decided, "status")

    def _end(self, item: _Definition) -> None:
        """Delete the objects of a definition that is being deleted; when none is left, let it go."""
        made = self._made.get(item.key)
        kind, left = made[1][0] if made and made[1] else None, self._left(item)
        now = rfc3339(self._backend.clock.now())
        match conditions.decide_end([each.object for each in left]):
            case "finish" if kind is None or not self._backend.store.range(kind.prefix, limit=1).entries:
                self._change(item, lambda present: conditions.finished(present, now), "")
            case "delete" if kind is not None:
                self._change(item, lambda each: {**each, "status": conditions.deleting_status(each, now)}, "status")
                for each in left:
                    self._delete(kind, each)

    def _left(self, item: _Definition) -> list[CachedObject]:
        if not conditions.is_served(item.object):
            return []  # what stands below its plural is a built-in kind's, whose name it never got
        declared = objects.spec(item.object)
        plural = (declared.get("names") or {}).get("plural")
        return self._backend.cache.list(f"/registry/{declared.get('group')}/{plural}/").items

    def _delete(self, kind: Kind, item: CachedObject) -> None:
        if objects.is_deleting(item.object):
            return
        namespace, _, name = item.key.removeprefix(kind.prefix).rpartition("/")
        try:
            deleting.delete(self._backend, Target(kind, namespace, name), {}, _options())
        except NotFound:
            log.debug("%s is gone already", item.key)

    def _change(self, item: _Definition, mutate: writing.Mutation, subresource: str) -> None:
        name = item.key.removeprefix(CUSTOM_RESOURCE_DEFINITION.prefix)
        target = Target(CUSTOM_RESOURCE_DEFINITION, "", name, subresource)
        _ignoring_absence(self._backend, target, mutate)

    # --- the thread ---------------------------------------------------------------------------------

    def _round(self) -> float:
        return ENDING_S if self.look() else LOOK_S

    def _on_event(self, event: CacheEvent) -> None:
        if event.key.startswith((CUSTOM_RESOURCE_DEFINITION.prefix, _LEASES)):
            self._wake.set()


def _stamp(definition: JsonObject) -> _Stamp:
    """Return what a definition's kinds are made of."""
    names = orjson.dumps(objects.status(definition).get("acceptedNames") or {})
    state = conditions.is_served(definition)
    return objects.uid(definition), objects.generation(definition), names, state, objects.is_deleting(definition)


def _revision(lease: CachedObject) -> int:
    text = objects.annotations(lease.object).get(TAKEN_OVER, "0")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0  # noqa: PLR2004 - 63 bits


def _ignoring_absence(backend: Backend, target: Target, mutate: writing.Mutation) -> None:
    try:
        writing.change(backend, target, mutate, _options())
    except NotFound:
        log.debug("%s is gone", target.name)


def _options() -> Options:
    return Options(dry_run=False, validation="Strict", warnings=[])
