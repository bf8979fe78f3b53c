"""Events live for an hour after they last happened, as kube-apiserver's ``--event-ttl``.

etcd's leases could do that, at the price of a lease per Event and of changes the store did not make; one list every
two minutes is cheaper. It comes in pages, of which little is kept: there is an Event for each Pod of the last hour.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.errors import Conflict, NotFound, StatusError
from minik8s_modules.api.kinds import EVENT
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import Clock, SystemClock, parse_rfc3339
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.client.informer import PAGE
from minik8s_modules.client.interface import Api

log = logging.getLogger(__name__)

TTL = timedelta(hours=1)
INTERVAL_S = 120.0
_TIMES = ("lastTimestamp", "eventTime", "series")


class Expired(NamedTuple):
    """An Event to delete, if it is still at this revision."""

    namespace: str
    name: str
    resource_version: str


def decide_events(events: Iterable[JsonObject], now: datetime) -> list[Expired]:
    """Return the Events that last happened more than an hour before ``now``."""
    return [
        Expired(objects.namespace(event), objects.name(event), objects.resource_version(event))
        for event in events
        if (happened := last_happened(event)) is not None and now - happened > TTL
    ]


def dated(event: JsonObject) -> JsonObject:
    """Return which Event it is, and when it happened."""
    meta = objects.metadata(event)
    kept = {name: meta.get(name) for name in ("name", "namespace", "resourceVersion", "creationTimestamp")}
    return {"metadata": kept, **{name: event.get(name) for name in _TIMES}}


def last_happened(event: JsonObject) -> datetime | None:
    """Return the latest of the times an Event tells; None when it tells none that can be read."""
    times = (
        event.get("lastTimestamp"),
        event.get("eventTime"),
        (event.get("series") or {}).get("lastObservedTime"),
        (event.get("metadata") or {}).get("creationTimestamp"),
    )
    return max((moment for text in times if (moment := _parsed(text)) is not None), default=None)


def _parsed(text: object) -> datetime | None:
    try:
        return parse_rfc3339(str(text)) if text else None
    except ValueError:
        return None


class EventController:
    """Deletes Events that are over."""

    def __init__(self, client: Api, clock: Clock | None = None) -> None:
        self._client = client
        self._clock = clock or SystemClock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="event-ttl", daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5.0)

    def sweep(self) -> int:
        """Delete what is over; return how many that were.

        Raises:
            StatusError: the API refused.
            TemporaryError: it did not answer.
        """
        found = self._client.list(EVENT, limit=PAGE, keep=dated)
        expired = decide_events(found.items, self._clock.now())
        for event in expired:
            if self._stop.is_set():
                break
            try:
                self._client.delete(EVENT, event.name, event.namespace, resource_version=event.resource_version)
            except (Conflict, NotFound):
                continue  # it has happened again, or is gone
        return len(expired)

    def _run(self) -> None:
        while not self._clock.wait(self._stop, INTERVAL_S):
            try:
                self.sweep()
            except (TemporaryError, StatusError) as error:
                log.info("events were not swept: %s", error)
            except Exception:
                log.exception("sweeping events failed")
