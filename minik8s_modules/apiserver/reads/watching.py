"""watch: from a request to a ``Join`` for the hub.

Where it begins: with a resourceVersion, after it; without one (or with "0") the present objects come first
as ADDED events; with ``sendInitialEvents`` they come first too and a bookmark annotated
``k8s.io/initial-events-end`` closes them. A resourceVersion the cache's history does not reach is answered
by one ERROR event with code 410, and the client lists again. Semantics: Kubernetes API concepts, "Efficient
detection of changes" and "Streaming lists".
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Literal, NamedTuple

import orjson

from minik8s_modules.api.errors import BadRequest, InternalError, StatusError
from minik8s_modules.api.errors import Expired as ExpiredStatus
from minik8s_modules.api.kinds import Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.apiserver.http import presenting
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.negotiation import Form
from minik8s_modules.apiserver.reads.reading import revision_of, whole_number
from minik8s_modules.apiserver.reads.selection import Selection
from minik8s_modules.base.clock import Clock
from minik8s_modules.store.cached import CachedObject, CacheEvent
from minik8s_modules.store.errors import Expired

# kube-apiserver ends a watch that names no timeout after 30 to 60 minutes
DEFAULT_TIMEOUT_S = 1800.0
# a client may not hold a watch longer than a day; it resumes without a gap
MAX_TIMEOUT_S = 86400.0
_TRUE = frozenset({"1", "true", "True"})
INITIAL_END = "k8s.io/initial-events-end"
EventType = Literal["ADDED", "MODIFIED", "DELETED"]


class EventStream:
    """Turns cache events into the JSON lines of one selection and form; a ``watchers.Stream``."""

    def __init__(self, selection: Selection, form: Form, clock: Clock) -> None:
        self._selection = selection
        self._form = form
        self._clock = clock
        self._kind: Kind = selection.kind
        self.resource = selection.kind.prefix
        self.topic = selection.prefix
        self.key: Hashable = (selection, form)
        self.lane = f"{self.resource}{self._kind.version}" if self._kind.converted else ""

    def prepare(self, events: Sequence[CacheEvent]) -> None:
        """Have the events' objects converted, if a webhook does that. Raises StatusError."""
        if self.lane:
            older = () if self._selection.everything else [event.previous for event in events if event.previous]
            presenting.prepare(self._kind, [*(event.current for event in events), *older])

    def encode(self, event: CacheEvent) -> bytes:
        """Return the event as this stream's watchers see it; an object that stops matching is DELETED."""
        kind = event.type if self._selection.everything else self._seen_as(event)
        return self.line(kind, event.current) if kind else b""

    def _seen_as(self, event: CacheEvent) -> EventType | None:
        matches = self._selection.matches(event.current)
        matched = event.previous is not None and self._selection.matches(event.previous)
        if event.type == "DELETED":
            return "DELETED" if matched else None
        if matches:
            return "MODIFIED" if matched else "ADDED"
        return "DELETED" if matched else None

    def line(self, event_type: str, item: CachedObject) -> bytes:
        """Return one event."""
        body = presenting.one(self._kind, self._form, item, self._clock.now())
        return b'{"type":"%s","object":%s}\n' % (event_type.encode(), body)

    def bookmark(self, revision: int) -> bytes:
        """Return a bookmark."""
        return self._bookmark({"resourceVersion": str(revision)})

    def initial_end(self, revision: int) -> bytes:
        """Return the bookmark that closes the initial events."""
        return self._bookmark({"resourceVersion": str(revision), "annotations": {INITIAL_END: "true"}})

    def _bookmark(self, meta: JsonObject) -> bytes:
        if self._form.name == "table":
            body = presenting.table(self._kind, self._form, [], meta, self._clock.now())
        elif self._form.name == "metadata":
            body = presenting.partial({"metadata": meta})
        else:
            body = {"kind": self._kind.kind, "apiVersion": self._kind.api_version, "metadata": meta}
        return orjson.dumps({"type": "BOOKMARK", "object": body}) + b"\n"

    @staticmethod
    def expired(message: str) -> bytes:
        """Return the ERROR event for a history that is gone."""
        return orjson.dumps({"type": "ERROR", "object": ExpiredStatus(message).status()}) + b"\n"

    @staticmethod
    def failed(error: Exception) -> bytes:
        """Return the ERROR event for what could not be converted."""
        shown = error if isinstance(error, StatusError) else InternalError(type(error).__name__)
        return orjson.dumps({"type": "ERROR", "object": shown.status()}) + b"\n"


class Start(NamedTuple):
    """How a watch begins: the events to send first, and the revision it goes on from; ``over`` ends it at once."""

    events: bytes
    after: int
    over: bool = False


def begin(backend: Backend, selection: Selection, stream: EventStream, arguments: Mapping[str, str]) -> Start:
    """Return how the watch that ``arguments`` ask for begins.

    Raises:
        BadRequest: the parameters contradict each other.
        Timeout: the resourceVersion lies in the future and does not come.
    """
    revision = revision_of(arguments)
    initial = _send_initial(arguments)
    if initial or (initial is None and not revision):
        if revision:
            backend.freshen(revision)
        return _initial(backend, selection, stream, closed=bool(initial) and wants_bookmarks(arguments))
    if not revision:
        return Start(b"", backend.cache.revision)
    backend.freshen(revision)
    try:
        backend.cache.history(selection.prefix, revision)
    except Expired as error:
        return Start(stream.expired(f"too old resource version: {revision} ({error})"), revision, over=True)
    return Start(b"", revision)


def _initial(backend: Backend, selection: Selection, stream: EventStream, *, closed: bool) -> Start:
    items, revision = backend.cache.list(selection.prefix)
    chosen = selection.chosen(items)
    presenting.prepare(selection.kind, chosen)
    lines = [stream.line("ADDED", item) for item in chosen]
    if closed:
        lines.append(stream.initial_end(revision))
    return Start(b"".join(lines), revision)


def _send_initial(arguments: Mapping[str, str]) -> bool | None:
    """Return what ``sendInitialEvents`` says, None when it is not given; with the rules of apiserver's validation."""
    text = arguments.get("sendInitialEvents")
    match = arguments.get("resourceVersionMatch")
    if text is None:
        if match:
            raise BadRequest("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided")
        return None
    if match != "NotOlderThan":
        raise BadRequest('sendInitialEvents requires setting resourceVersionMatch to "NotOlderThan"')
    return text in _TRUE


def wants_bookmarks(arguments: Mapping[str, str]) -> bool:
    """Return whether the client asked for bookmarks."""
    return arguments.get("allowWatchBookmarks") in _TRUE


def is_watch(arguments: Mapping[str, str]) -> bool:
    """Return whether a GET is a watch."""
    return arguments.get("watch") in _TRUE


def timeout_s(arguments: Mapping[str, str]) -> float:
    """Return how many seconds the watch lasts."""
    seconds = whole_number(arguments, "timeoutSeconds")
    return min(float(seconds), MAX_TIMEOUT_S) or DEFAULT_TIMEOUT_S
