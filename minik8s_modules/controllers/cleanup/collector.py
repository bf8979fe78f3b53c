"""The garbage collector's shell: metadata of all kinds in, ``decide_garbage`` for one uid at a time, its steps out.

    informers of every kind ─▶ graph ─uids to look at─▶ queue ─▶ worker: states of the owners, decide, patch and delete

What extension API servers keep is collected, too. Their uids are their own words: one that names somebody else's object
counts for nothing; and an owner is gone only when who keeps it says so.

An owner that the graph lacks is asked for by name before it counts as gone: copies of different kinds are at different
revisions. One that nobody saw go is asked for twice, a second apart: of several API servers one may be behind another.
Every write names the uid and resourceVersion that was decided on, so one that comes too late is refused.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from minik8s_modules.api import objects
from minik8s_modules.api.errors import Conflict, NotFound, StatusError
from minik8s_modules.api.kinds import API_SERVICE, KINDS, Kind
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.client.silences import Silences
from minik8s_modules.controllers.cleanup.extensions import Extended, is_sound
from minik8s_modules.controllers.cleanup.garbage import Item, OwnerState, decide_garbage, is_waiting
from minik8s_modules.controllers.cleanup.garbage_graph import Graph
from minik8s_modules.controllers.core.steps import Delete, Patch, Step
from minik8s_modules.runtime.controller import Context
from minik8s_modules.runtime.informers import wait_synced
from minik8s_modules.runtime.queue import WorkQueue
from minik8s_modules.runtime.workers import Workers

log = logging.getLogger(__name__)

_WORKERS = 4
# owners known to be gone; uids never come back (garbagecollector.go keeps 500)
_ABSENT_KEPT = 5_000
_DOUBT_S = 1.0
# how soon a new extension's objects are looked at
_LOOK_S = 10.0
_VERBS = frozenset({"watch", "delete", "patch"})
_NAME = "garbage"
_Place = tuple[str, str, Key]  # uid, prefix of the kind in the store, name


def collected_kinds() -> tuple[Kind, ...]:
    """Return the kinds that may own or be owned: all that are stored, watched and deleted, but Events."""
    return tuple(
        kind
        for kind in KINDS.all()
        if kind.stored and kind.storage is None and {*kind.verbs} >= _VERBS and kind.kind != "Event"
    )


def _kind_of(reference: JsonObject) -> tuple[str, str]:
    """Return apiVersion and kind of an owner reference."""
    return str(reference.get("apiVersion")), str(reference.get("kind"))


class GarbageCollector:
    """Deletes what its owners leave behind; built last of all controllers, so that it shares their copies.

    ``extensions`` tells what extension API servers keep.
    """

    def __init__(self, context: Context, extensions: Callable[[], Extended] | None = None) -> None:
        self._extensions = extensions
        self._extended: dict[tuple[str, str], Kind] = {}
        self._followed: dict[str, Kind] = {}
        self._services: set[tuple[str, str]] = set()
        self._may_change = True
        self._context = context
        self._client = context.client
        self._silences = Silences(context.clock)
        self._graph = Graph()
        self._queue: WorkQueue[str] = WorkQueue(
            context.clock, random=context.random, counts=context.metrics.queue(_NAME)
        )
        self._workers = Workers(self._queue, self.sync, _NAME, _WORKERS)
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._absent: OrderedDict[_Place, None] = OrderedDict()
        self._missing: dict[_Place, float] = {}
        self._informers = {kind: context.informers.metadata_of(kind) for kind in collected_kinds()}
        for kind, informer in self._informers.items():
            informer.add_handler(self._handler(kind))
        context.informers.custom.follow(self._on_custom)
        self._starter = threading.Thread(target=self._begin, name=f"{_NAME}-start", daemon=True)

    def start(self) -> None:
        """Begin when the first lists of all kinds are complete; returns at once."""
        self._starter.start()

    def stop(self) -> None:
        """End; waits for the syncs under way."""
        self._stop.set()
        self._workers.stop(drop=True)

    def sync(self, uid: str) -> None:
        """Look at one object.

        Raises:
            StatusError: a step was refused; Conflict where the copies are behind.
            TemporaryError: the API did not answer.
        """
        item = self._graph.get(uid)
        if item is None or self._stop.is_set():
            return
        owners = {str(each.get("uid", "")): self._state(item, each) for each in objects.owner_references(item.obj)}
        steps = decide_garbage(item, owners, self._graph.dependents(uid))
        for step in steps:
            self._take(step, alone=len(steps) == 1)
        if not steps and is_waiting(item.obj):
            for dependent in self._graph.dependents(uid):
                if not objects.is_deleting(dependent.obj):
                    self._queue.add(dependent.uid)

    def _on_custom(self, kind: Kind, present: bool) -> None:  # noqa: FBT001 - a follower's signature
        """Look at the objects of a custom kind too, as long as it is served."""
        if present:
            self._context.informers.metadata_of(kind).add_handler(self._handler(kind))
        else:
            self._context.informers.forget(kind)

    def _begin(self) -> None:
        if not wait_synced(self._informers.values(), self._stop):
            return
        self._workers.start()
        while self._extensions is not None and not self._stop.is_set():
            try:
                self.look_for(self._extensions)
            except (TemporaryError, StatusError) as error:
                log.warning("what extensions keep is not known yet: %s", error)
            except Exception:  # the loop's edge
                log.exception("what extensions keep could not be read")
            self._stop.wait(_LOOK_S)

    def look_for(self, extensions: Callable[[], Extended]) -> None:
        """Ask what extensions keep, unless there are none and no APIService has changed. Raises as ``extensions``."""
        found = self._informers[API_SERVICE].list()
        services = {(objects.uid(each), objects.resource_version(each)) for each in found}
        have_changed = services != self._services
        if have_changed or self._may_change:
            extended = extensions()
            self._look(extended)
            # after a change two answers count: of several API servers the one that was asked may be behind
            self._services, self._may_change = services, extended.may_change or have_changed

    def _look(self, extended: Extended) -> None:
        """Follow the objects of extensions; who is away keeps what it has, and who is gone has nothing here."""
        found = {(kind.api_version, kind.kind): kind for kind in extended.kinds if {*kind.verbs} >= _VERBS}
        kept = {name: kind for name, kind in self._extended.items() if kind.api_version in extended.unknown}
        new = found.keys() - self._extended.keys()
        self._extended = {**kept, **found}
        served = {kind.prefix: kind for kind in reversed(self._extended.values())}  # of versions, the first
        for prefix, kind in [*self._followed.items()]:
            if prefix not in served:
                del self._followed[prefix]
                self._context.informers.forget(kind)
        for prefix, kind in served.items():
            if prefix not in self._followed:
                self._followed[prefix] = kind
                self._context.informers.metadata_of(kind).add_handler(self._foreign(kind))
        for item in self._graph.all() if new else []:  # whose owners could not be looked for before
            if any(_kind_of(each) in new for each in objects.owner_references(item.obj)):
                self._queue.add(item.uid)

    def _foreign(self, kind: Kind) -> Callable[[JsonObject | None, JsonObject | None], None]:
        handle = self._handler(kind)

        def counts(obj: JsonObject | None) -> bool:
            known = self._graph.get(objects.uid(obj)) if obj is not None and is_sound(obj) else None
            return obj is not None and is_sound(obj) and (known is None or known.kind.prefix == kind.prefix)

        return lambda old, new: handle(old if counts(old) else None, new if counts(new) else None)

    def _handler(self, kind: Kind) -> Callable[[JsonObject | None, JsonObject | None], None]:
        def handler(old: JsonObject | None, new: JsonObject | None) -> None:
            for uid in self._graph.changed(kind, old, new):
                self._queue.add(uid)

        return handler

    def _state(self, item: Item, reference: JsonObject) -> OwnerState:
        named = _kind_of(reference)
        kind = self._context.informers.custom.registry.by_api_version(*named) or self._extended.get(named)
        if kind is None or not kind.stored:
            return OwnerState.UNKNOWN
        if kind.namespaced and not item.kind.namespaced:
            self._tell(item, reference)
            return OwnerState.UNKNOWN
        uid = str(reference.get("uid", ""))
        key = Key(objects.namespace(item.obj) if kind.namespaced else "", str(reference.get("name", "")))
        owner = self._graph.get(uid)
        if owner is not None and owner.kind.prefix == kind.prefix and objects.key(owner.obj) == key:
            return OwnerState.WAITING if is_waiting(owner.obj) else OwnerState.PRESENT
        if owner is not None:
            self._tell(item, reference)
        if self._is_absent(uid, kind, key):
            return OwnerState.ABSENT
        # the graph has not seen it yet, and may never do; or it is doubted that it is missing
        self._queue.add_after(item.uid, _DOUBT_S)
        return OwnerState.PRESENT

    def _is_absent(self, uid: str, kind: Kind, key: Key) -> bool:
        place = (uid, kind.prefix, key)
        with self._lock:
            if place in self._absent:
                return True
        try:
            with self._asking(kind):
                found = self._client.get(kind, key.name, key.namespace)
        except NotFound as error:
            if kind.prefix in self._followed and error.details.get("name") != key.name:
                raise  # nobody answers for this kind any more, which says nothing of its objects
            found = {}
        with self._lock:
            if objects.uid(found) == uid:
                self._missing.pop(place, None)
                return False
            if not self._graph.has_left(uid):
                first_s = self._missing.setdefault(place, self._context.clock.monotonic())
                if self._context.clock.monotonic() - first_s < _DOUBT_S:
                    return False
            self._missing.pop(place, None)
            self._absent[place] = None
            while len(self._absent) > _ABSENT_KEPT:
                self._absent.popitem(last=False)
        return True

    def _asking(self, kind: Kind) -> AbstractContextManager[None]:
        if kind.prefix not in self._followed:
            return nullcontext()
        return self._silences.asking(kind.api_version, kind.resource)

    def _tell(self, item: Item, reference: JsonObject) -> None:
        """Say that a reference names an owner where it cannot be (``ownerRefInvalidNamespace``)."""
        about = {**item.obj, "apiVersion": item.kind.api_version, "kind": item.kind.kind}
        named = f"{reference.get('apiVersion')}/{reference.get('kind')}, name: {reference.get('name')}"
        text = (
            f"ownerRef [{named}, uid: {reference.get('uid')}] does not exist in namespace "
            f'"{objects.namespace(item.obj)}"'
        )
        self._context.recorder.event(
            about, "Warning", "OwnerRefInvalidNamespace", text, component="garbage-collector-controller"
        )

    def _take(self, step: Step, *, alone: bool) -> None:
        match step:
            case Delete(kind, obj, _, _, propagation):
                with self._asking(kind):
                    self._delete(kind, obj, propagation, revision=objects.resource_version(obj) if alone else None)
            case Patch(kind, obj, body):
                with self._asking(kind):
                    self._patch(kind, obj, body)

    def _delete(self, kind: Kind, obj: JsonObject, propagation: str | None, revision: str | None) -> None:
        key = objects.key(obj)
        try:
            self._client.delete(
                kind,
                key.name,
                key.namespace,
                uid=objects.uid(obj),
                resource_version=revision,
                propagation=propagation,
            )
        except NotFound:
            return
        log.info("%s %s is deleted: its owners are gone", kind.singular_name, key)

    def _patch(self, kind: Kind, obj: JsonObject, body: JsonObject) -> None:
        key = objects.key(obj)
        seen = {"uid": objects.uid(obj), "resourceVersion": objects.resource_version(obj)}
        try:
            self._client.patch(kind, key.name, key.namespace, {**body, "metadata": {**body["metadata"], **seen}})
        except NotFound:
            return
        except Conflict as error:
            log.debug("%s %s has changed: %s", kind.singular_name, key, error)
            raise
