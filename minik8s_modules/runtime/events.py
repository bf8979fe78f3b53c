"""Kubernetes Events without ever delaying the caller.

``event`` puts a record into a bounded table of pending records and returns; one thread writes them. The same event
again (object, reason, message, type) raises the pending record's count, or, once written, the count and lastTimestamp
of the Event in the API. While the API is away the table fills; what does not fit is dropped and counted in
``dropped``; so is a storm about one object (``event_storms.py``). The idea is client-go's (``tools/record``); the
table replaces its channel so that a storm costs no memory.
"""

from __future__ import annotations

import logging
import random as random_module
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Literal, NamedTuple

from minik8s_modules.api.errors import NotFound, StatusError
from minik8s_modules.api.kinds import EVENT
from minik8s_modules.api.objects import JsonObject, object_reference
from minik8s_modules.base.backoff import Backoff
from minik8s_modules.base.clock import Clock, SystemClock, rfc3339
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.client.interface import Api
from minik8s_modules.runtime.event_storms import COMBINED, Storms

log = logging.getLogger(__name__)

EventType = Literal["Normal", "Warning"]
KUBELET = "kubelet"
"""Who tells, with the node's name, what happens to pods there in Kubernetes: clients select Events by that."""

PENDING_LIMIT = 1000  # client-go's channel (record/event.go, maxQueuedEvents)
KNOWN_LIMIT = 4096  # client-go's aggregation cache (record/events_cache.go, maxLruCacheEntries)
MESSAGE_LIMIT = 1024  # longer messages are refused by Kubernetes' validation of events.k8s.io
_RETRY = Backoff(initial_s=0.5, maximum_s=10.0)
_HTTP_SERVER_ERROR = 500


class _Subject(NamedTuple):
    namespace: str
    kind: str
    name: str
    uid: str
    field_path: str
    component: str
    host: str
    type: EventType
    reason: str
    message: str


class _Pending(NamedTuple):
    message: str
    reference: JsonObject
    times: int
    first: datetime
    last: datetime


class _Known(NamedTuple):
    name: str
    times: int


class EventRecorder:
    """Writes core/v1 Events as ``component``; ``host`` is the node's name, for components of a node."""

    def __init__(
        self,
        client: Api,
        component: str,
        host: str = "",
        clock: Clock | None = None,
        random: Callable[[], float] = random_module.random,
    ) -> None:
        self._client = client
        self._source = {"component": component, **({"host": host} if host else {})}
        self._clock = clock or SystemClock()
        self._random = random
        self._changed = threading.Condition()
        self._pending: OrderedDict[_Subject, _Pending] = OrderedDict()
        self._known: OrderedDict[_Subject, _Known] = OrderedDict()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"events-{component}", daemon=True)
        self._storms = Storms()
        self.dropped = 0

    def start(self) -> None:
        """Start the writing thread; events recorded before are kept."""
        self._thread.start()

    def stop(self, timeout_s: float = 2.0) -> None:
        """Write what is pending if the API answers, for at most ``timeout_s`` seconds, and end."""
        self._stop.set()
        with self._changed:
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def event(
        self,
        obj: Mapping[str, Any],
        kind: EventType,
        reason: str,
        message: str,
        *,
        field_path: str = "",
        component: str = "",
        host: str = "",
    ) -> None:
        """Record that ``reason`` happened to ``obj``; never blocks, never raises.

        Args:
            obj: an API object, or a v1 ObjectReference.
            kind: Normal or Warning.
            reason: CamelCase, as Kubernetes words it.
            message: for people; cut at 1024 bytes of text.
            field_path: the part of the object, such as ``spec.containers{app}``.
            component: who says so, where it is not the recorder's own.
            host: on which node, where it is not the recorder's own.
        """
        reference = _reference(obj, field_path)
        subject = _Subject(
            reference.get("namespace") or "default",
            reference.get("kind", ""),
            reference.get("name", ""),
            reference.get("uid", ""),
            reference.get("fieldPath", ""),
            component or self._source["component"],
            host or self._source.get("host", ""),
            kind,
            reason,
            message[:MESSAGE_LIMIT],
        )
        now = self._clock.now()
        with self._changed:
            shown = self._storms.judge(subject._replace(message=""), subject.message, self._clock.monotonic())
            if shown is None:
                self.dropped += 1
                return
            text = subject.message
            if not shown:
                subject, text = subject._replace(message=COMBINED), f"{COMBINED}{text}"[:MESSAGE_LIMIT]
            known = self._pending.get(subject)
            if known is None and len(self._pending) >= PENDING_LIMIT:
                self.dropped += 1
                return
            self._pending[subject] = (
                known._replace(times=known.times + 1, last=now, message=text)
                if known
                else _Pending(text, reference, 1, now, now)
            )
            self._changed.notify()

    def write_one(self) -> bool:
        """Write the oldest pending record; return whether there was one.

        Raises:
            TemporaryError: the API did not answer; the record is pending again.
            StatusError: the API cannot answer now (5xx, 429); the record is pending again.
        """
        with self._changed:
            if not self._pending:
                return False
            subject, pending = self._pending.popitem(last=False)
        try:
            self._write(subject, pending)
        except StatusError as error:
            if not _passing(error):
                self._refused(subject, error)
                return True
            self._put_back(subject, pending)
            raise
        except TemporaryError:
            self._put_back(subject, pending)
            raise
        return True

    def _write(self, subject: _Subject, pending: _Pending) -> None:
        known = self._known.pop(subject, None)
        written: _Known | None = None
        if known is not None:
            written = self._raise_count(subject, pending, known)
        if written is None:
            event = new_event(subject, pending, self._random)
            self._client.create(EVENT, event)
            written = _Known(event["metadata"]["name"], pending.times)
        self._known[subject] = written
        if len(self._known) > KNOWN_LIMIT:
            self._known.popitem(last=False)

    def _raise_count(self, subject: _Subject, pending: _Pending, known: _Known) -> _Known | None:
        count = known.times + pending.times
        try:
            body: JsonObject = {"count": count, "lastTimestamp": rfc3339(pending.last)}
            if subject.message == COMBINED:
                body["message"] = pending.message
            self._client.patch(EVENT, known.name, subject.namespace, body)
        except NotFound:
            return None  # it has outlived its time; a new one is written
        except (TemporaryError, StatusError):
            self._known[subject] = known
            raise
        return _Known(known.name, count)

    def _put_back(self, subject: _Subject, pending: _Pending) -> None:
        with self._changed:
            newer = self._pending.pop(subject, None)
            if newer is not None:
                pending = pending._replace(times=pending.times + newer.times, last=newer.last)
            self._pending[subject] = pending
            self._pending.move_to_end(subject, last=False)

    def _refused(self, subject: _Subject, error: StatusError) -> None:
        with self._changed:
            self.dropped += 1
        log.info("event %s of %s %s dropped: %s", subject.reason, subject.kind, subject.name, error)

    def _run(self) -> None:
        failures = 0
        while True:
            with self._changed:
                while not self._pending and not self._stop.is_set():
                    self._changed.wait()
                if self._stop.is_set() and (not self._pending or failures):
                    return
            try:
                self.write_one()
                failures = 0
            except (TemporaryError, StatusError) as error:
                failures += 1
                log.debug("events wait: %s", error)
                self._clock.wait(self._stop, _RETRY.delay_s(failures) * (0.5 + self._random()))
            except Exception:  # the loop's edge
                log.exception("an event was not written")


def new_event(subject: _Subject, pending: _Pending, random: Callable[[], float]) -> JsonObject:
    """Return the v1 Event of a pending record, named ``<object>.<16 hex digits>`` as client-go names it."""
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{subject.name}.{int(random() * 2**64):016x}"[-253:],
            "namespace": subject.namespace,
        },
        "involvedObject": pending.reference,
        "reason": subject.reason,
        "message": pending.message,
        "source": {"component": subject.component, **({"host": subject.host} if subject.host else {})},
        "reportingComponent": subject.component,
        "reportingInstance": subject.host,
        "firstTimestamp": rfc3339(pending.first),
        "lastTimestamp": rfc3339(pending.last),
        "count": pending.times,
        "type": subject.type,
        "eventTime": None,
    }


def _reference(obj: Mapping[str, Any], field_path: str) -> JsonObject:
    fields = object_reference(obj) if "metadata" in obj else dict(obj)
    return {**fields, "fieldPath": field_path} if field_path else fields


def _passing(error: StatusError) -> bool:
    return error.code >= _HTTP_SERVER_ERROR or error.reason == "TooManyRequests"
