"""A local copy of one kind's objects, kept current by list and watch in a thread of its own.

The loop: list once; watch from the list's revision, remembering each event's and bookmark's revision; when
the watch ends or is cut, watch again from the last revision; when that revision is gone (410) or the server
refuses it, list again and tell handlers only the differences. A lost connection therefore loses and doubles
nothing.

Objects are shared and never changed in place: an update is a new object. Handlers run in the informer's
thread and must only enqueue; the next step lives in ``runtime/queue.py``.
"""

from __future__ import annotations

import logging
import random as random_module
import threading
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus

from minik8s_modules.api.errors import StatusError
from minik8s_modules.api.kinds import Kind
from minik8s_modules.api.objects import JsonObject, Key, key, readable, resource_version
from minik8s_modules.base.backoff import Backoff
from minik8s_modules.base.clock import Clock, SystemClock
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.client.errors import ApiUnreachable
from minik8s_modules.client.interface import WATCH_TIMEOUT_S, Keep, Source
from minik8s_modules.client.watches import EventStream, WatchEvent

log = logging.getLogger(__name__)

Handler = Callable[[JsonObject | None, JsonObject | None], None]
Index = Callable[[JsonObject], str | Iterable[str]]
"""The value, or the values, under which ``by_index`` finds an object."""

PAGE = 1000  # objects of a list that are there as they came, five times their bytes, until little of them is kept
# a server that keeps failing with 5xx on one revision gets a fresh list after as many tries
_TRIES_BEFORE_RELIST = 5
# A restarting API server is back within seconds and should be noticed at once; a refused connection costs 1 ms of CPU
_RECONNECT = Backoff(initial_s=0.1, maximum_s=1.0)
_WATCH_LIVED_S = 1.0


class Informer:
    """Cache of one kind's objects, optionally of one namespace, selected by fields or labels.

    Args:
        client: an ``ApiClient``.
        kind: the kind to keep.
        namespace: empty for all namespaces.
        field_selector: as in a list.
        label_selector: as in a list.
        clock: for waiting between attempts.
        random: returns a number in [0, 1) that jitters those waits.
        indexes: name to function; ``by_index(name, value)`` finds the objects for which it returns ``value``.
        transform: makes what is kept of what came, such as an object without its managedFields.
        read: raises one of ``MISREAD`` for objects that are left out, as if they were not there; the log names them.
        on_synced: called once, in the informer's thread, when the first list is complete: it may have brought nothing,
            and so no change.
    """

    def __init__(
        self,
        client: Source,
        kind: Kind,
        namespace: str = "",
        field_selector: str = "",
        label_selector: str = "",
        clock: Clock | None = None,
        random: Callable[[], float] = random_module.random,
        indexes: Mapping[str, Index] | None = None,
        transform: Keep | None = None,
        read: Callable[[JsonObject], object] | None = None,
        on_synced: Callable[[], None] = lambda: None,
    ) -> None:
        self._client = client
        self._kind = kind
        self._namespace = namespace
        self._field_selector = field_selector
        self._label_selector = label_selector
        self._clock = clock or SystemClock()
        self._random = random
        self._index_of = dict(indexes or {})
        self._transform = transform
        self._read = read
        self._on_synced = on_synced
        self._lock = threading.RLock()
        self._objects: dict[Key, JsonObject] = {}
        self._indexes: dict[str, dict[str, dict[Key, JsonObject]]] = {name: {} for name in self._index_of}
        self._handlers: list[Handler] = []
        self._revision = ""
        self._failures = 0
        self._healthy_since: float | None = None
        self._synced = threading.Event()
        self._stop = threading.Event()
        self._watch: EventStream | None = None
        self._thread = threading.Thread(target=self._run, name=f"informer-{kind.plural}", daemon=True)

    def start(self) -> None:
        """Start the thread; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """End the watch and the thread; waits for it at most 5 s (a connect may be under way)."""
        self._stop.set()
        with self._lock:
            watch = self._watch
        if watch is not None:
            watch.close()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout=5.0)

    def add_handler(self, handler: Handler) -> None:
        """Call ``handler(old, new)`` for every change; None stands for "not there".

        Objects that are known already are given at once, as ``(None, object)``, in the caller's thread.
        """
        with self._lock:
            self._handlers.append(handler)
            for obj in self._objects.values():
                self._tell(handler, None, obj)

    def add_index(self, name: str, index: Index) -> None:
        """Keep ``index`` too; one that is kept under ``name`` already stays as it is."""
        with self._lock:
            if name not in self._index_of:
                self._index_of[name] = index
                self._indexes[name] = {}
                for identity, obj in self._objects.items():
                    self._put_in_index(name, identity, obj)

    def wait_synced(self, timeout_s: float) -> bool:
        """Return whether the first list was complete within ``timeout_s`` seconds."""
        return self._synced.wait(timeout_s)

    def get(self, namespace: str, name: str) -> JsonObject | None:
        """Return the object, or None; ``namespace`` is empty for cluster-scoped kinds. Do not change it."""
        with self._lock:
            return self._objects.get(Key(namespace, name))

    def by_index(self, index: str, value: str) -> list[JsonObject]:
        """Return the objects whose ``index`` function gave ``value``. Do not change them."""
        with self._lock:
            return [*self._indexes[index].get(value, {}).values()]

    def list(self) -> list[JsonObject]:  # mypy resolves the annotation to the builtin
        """Return all objects, in no order. Do not change them."""
        with self._lock:
            return [*self._objects.values()]

    @property
    def resource_version(self) -> str:
        """The revision this copy has reached; empty before the first list."""
        with self._lock:
            return self._revision

    def has_reached(self, revision: int) -> bool:
        """Return whether this copy shows every change of its kind up to ``revision``."""
        with self._lock:
            return self._revision.isdigit() and int(self._revision) >= revision

    def healthy_for_s(self) -> float:
        """Return for how many seconds this copy has followed the API without a failure; 0 while it cannot."""
        since = self._healthy_since
        return 0.0 if since is None else self._clock.monotonic() - since

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._list_if_needed()
                self._follow()
            except TemporaryError as error:
                self._pause(error)
            except StatusError as error:
                self._on_refusal(error)
            except Exception as error:  # the loop's edge
                log.exception("informer of %s", self._kind.plural)
                self._forget_revision()
                self._pause(error)

    def _list_if_needed(self) -> None:
        if self._revision:
            return
        found = self._client.list(
            self._kind, self._namespace, self._label_selector, self._field_selector, limit=PAGE, keep=self._kept
        )
        with self._lock:
            self._replace({key(obj): obj for obj in found.items if obj})
            self._revision = found.resource_version
        if not self._synced.is_set():
            self._synced.set()
            self._on_synced()

    def _replace(self, objects: dict[Key, JsonObject]) -> None:
        for gone in [known for known in self._objects if known not in objects]:
            self._apply(gone, None)
        for identity, obj in objects.items():
            known = self._objects.get(identity)
            if known is None or resource_version(known) != resource_version(obj):
                self._apply(identity, obj)

    def _follow(self) -> None:
        watch = self._client.watch(
            self._kind,
            self._namespace,
            resource_version=self._revision,
            field_selector=self._field_selector,
            label_selector=self._label_selector,
            # spread, so that the watches of all informers do not end, and begin again, in one moment
            timeout_s=int(WATCH_TIMEOUT_S * (1.0 + self._random())),
        )
        began = self._clock.monotonic()
        with self._lock:
            self._watch = watch
        if self._healthy_since is None:
            self._healthy_since = began
        try:
            if self._stop.is_set():
                return
            for event in watch:
                self._failures = 0
                self._on_event(event)
            if self._clock.monotonic() - began < _WATCH_LIVED_S and not self._stop.is_set():
                # not at once again: a server that ends every watch would be asked without a pause
                raise ApiUnreachable("the watch ended as soon as it had started")
            self._failures = 0
        finally:
            watch.close()
            with self._lock:
                self._watch = None

    def _on_event(self, event: WatchEvent) -> None:
        with self._lock:
            if event.type != "BOOKMARK":
                self._apply(key(event.object), None if event.type == "DELETED" else self._kept(event.object) or None)
            # after the handlers: whoever waits for the revision finds them told
            self._revision = resource_version(event.object)

    def _apply(self, identity: Key, new: JsonObject | None) -> None:
        """Store ``new`` (None deletes), keep the indexes, tell the handlers; the lock is held."""
        old = self._objects.pop(identity, None)
        if new is not None:
            self._objects[identity] = new
        for name in self._index_of:
            if old is not None:
                for value in self._values(name, old):
                    self._unindex(name, value, identity)
            if new is not None:
                self._put_in_index(name, identity, new)
        if old is not None or new is not None:
            for handler in self._handlers:
                self._tell(handler, old, new)

    def _tell(self, handler: Handler, old: JsonObject | None, new: JsonObject | None) -> None:
        try:
            handler(old, new)
        except Exception:  # what one handler cannot read of one object stops neither others nor other objects
            log.exception("a change of %s %s was not understood", self._kind.kind, key(new or old or {}))

    def _put_in_index(self, name: str, identity: Key, obj: JsonObject) -> None:
        for value in self._values(name, obj):
            self._indexes[name].setdefault(value, {})[identity] = obj

    def _values(self, name: str, obj: JsonObject) -> Iterable[str]:
        """Return under which values an index has an object: none, where it cannot be read."""
        try:
            found = self._index_of[name](obj)
            return (found,) if isinstance(found, str) else [*found]
        except Exception:  # as for handlers
            log.exception("%s %s is in no index %s", self._kind.kind, key(obj), name)
            return ()

    def _unindex(self, name: str, value: str, identity: Key) -> None:
        bucket = self._indexes[name].get(value, {})
        bucket.pop(identity, None)
        if not bucket:
            self._indexes[name].pop(value, None)

    def _kept(self, obj: JsonObject) -> JsonObject:
        """Return what is kept of an object, {} of one that is left out."""
        if self._read is not None and not readable([obj], self._read):
            return {}
        try:
            return self._transform(obj) if self._transform is not None else obj
        except Exception:  # as for handlers
            log.exception("%s %s is kept as it came", self._kind.kind, key(obj))
            return obj

    def _on_refusal(self, error: StatusError) -> None:
        """List again where the revision is the reason (410, or any 4xx), or when nothing else helped."""
        if error.code < HTTPStatus.INTERNAL_SERVER_ERROR or self._failures >= _TRIES_BEFORE_RELIST:
            self._forget_revision()
        # the first time without a pause: after a long cut, or a compaction, this is the ordinary way on
        if error.code == HTTPStatus.GONE and not self._failures:
            log.info("%s: revision expired, listing again", self._kind.plural)
            self._failures = 1
            return
        self._pause(error)

    def _forget_revision(self) -> None:
        with self._lock:
            self._revision = ""

    def _pause(self, error: Exception) -> None:
        self._failures += 1
        self._healthy_since = None
        delay_s = _RECONNECT.delay_s(self._failures) * (0.5 + self._random())
        level = logging.WARNING if self._failures == 1 else logging.DEBUG
        log.log(level, "%s: %s; again in %.1f s", self._kind.plural, error, delay_s)
        self._clock.wait(self._stop, delay_s)
