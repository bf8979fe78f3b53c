"""The scheduling queue: pods that are to be tried, that wait out their back-off, that fit nowhere, that are gated.

    add ──PreEnqueue──▶ active ─pop─▶ in flight ─▶ (bound)
             │            ▲               │ refused, and nothing has happened that may help
           gated        backoff ◀──event── unschedulable
                            ▲_____________ failed, or an event came while it was in flight

A refused pod is tried again when something happens that may end the refusal, as the plugins that refused it say, or
after five minutes; a pod that was refused before waits 1 s to 10 s first. Events that come while a pod is being tried
are kept and asked about when it comes back. Source: kubernetes pkg/scheduler/backend/queue/scheduling_queue.go.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from minik8s_modules.api import objects
from minik8s_modules.api.objects import Key
from minik8s_modules.base.clock import Clock
from minik8s_modules.scheduler.framework.infos import PodInfo, scheduler_of
from minik8s_modules.scheduler.framework.points import Event, Queued, Wake

LEFT_OVER_S = 300.0  # scheduling_queue.go, DefaultPodMaxInUnschedulablePodsDuration
Less = Callable[[Queued, Queued], bool]
OnPlace = Callable[[str, str], None]
_FAILED = "ScheduleAttemptFailure"


@dataclass(eq=False)
class Entry:
    """A pod on its way through the queue."""

    pod: PodInfo
    since: float
    attempts: int = 0
    plugins: frozenset[str] = frozenset()
    """Who refused it last."""
    failed_at: float = 0.0
    place: str = ""
    ticket: int = 0
    changed: bool = False
    """Whether the pod itself became another while it was being tried."""

    @property
    def key(self) -> Key:
        """Namespace and name of the pod."""
        return self.pod.key


class _Sorted:
    """An entry as the heap sorts it."""

    __slots__ = ("_less", "entry", "ticket")

    def __init__(self, entry: Entry, ticket: int, less: Less) -> None:
        self.entry, self.ticket, self._less = entry, ticket, less

    def __lt__(self, other: _Sorted) -> bool:
        if self._less(self.entry, other.entry):
            return True
        return not self._less(other.entry, self.entry) and self.ticket < other.ticket


class SchedulingQueue:
    """Pods to schedule; thread-safe.

    Args:
        clock: tells when back-offs end.
        less: the order, by the QueueSort plugin.
        gate: returns why only a change of the pod itself can make it be tried ("" when it may be); never waits.
        wakes: by which events a refusal of a pod by a plugin may end.
        on_place: called with the place that a pod comes to, and the event that brought it there; never waits.
        backoff_s: the first back-off and the longest.
    """

    def __init__(
        self,
        clock: Clock,
        less: Less,
        gate: Callable[[PodInfo], str],
        wakes: Callable[[PodInfo, str], Sequence[Wake]],
        backoff_s: tuple[float, float] = (1.0, 10.0),
        on_place: OnPlace = lambda _place, _event: None,
    ) -> None:
        self._on_place = on_place
        self._clock, self._less, self._gate, self._wakes, self._backoff_s = clock, less, gate, wakes, backoff_s
        # re-entrant: one public method calls another under the lock
        self._changed = threading.Condition(threading.RLock())
        self._entries: dict[Key, Entry] = {}
        self._active: list[_Sorted] = []
        self._backoff: list[tuple[float, int, Entry]] = []
        self._waiting: dict[Key, Entry] = {}
        self._flying: dict[Entry, int] = {}
        self._events: deque[tuple[Event, Any, Any]] = deque()
        self._first_event = 0
        self._tickets = itertools.count(1)
        self._down = False

    def add(self, pod: PodInfo) -> str:
        """Take a pod that is to be scheduled; return why it is not tried yet, or ""."""
        with self._changed:
            now = self._clock.monotonic()
            known = self._entries.get(pod.key)
            if known is not None and objects.uid(known.pod.pod) != objects.uid(pod.pod):
                self.delete(pod.key)
                known = None
            entry = known or Entry(pod, now)
            entry.pod = pod
            self._entries[pod.key] = entry
            if entry.place == "flying":
                return ""
            if why := self._gate(pod):
                self._leave(entry)
                entry.place = "gated"
                self._on_place("gated", "PodAdd")
                return why
            if entry.place in {"", "gated"}:
                self._activate(entry, "PodAdd")
            return ""

    def update(self, pod: PodInfo) -> str:
        """Take what a pod has become that may help it; return why it is not tried yet, or ""."""
        with self._changed:
            entry = self._entries.get(pod.key)
            if entry is None or entry.place == "gated":
                return self.add(pod)
            entry.pod = pod
            if entry.place == "waiting":
                self._requeue(entry, "PodUpdate")
            elif entry.place == "flying":
                entry.changed = True
            return ""

    def delete(self, key: Key) -> None:
        """Forget a pod; one that is being tried stays in flight until its attempt has ended."""
        with self._changed:
            entry = self._entries.pop(key, None)
            if entry is not None:
                self._leave(entry)

    def pop(self, timeout_s: float) -> Entry | None:
        """Return the next pod to try; None when there was none within ``timeout_s``, or the queue is closed."""
        with self._changed:
            end = self._clock.monotonic() + timeout_s
            while not self._down:
                entry = self._next()
                if entry is not None:
                    entry.place, entry.attempts, entry.changed = "flying", entry.attempts + 1, False
                    entry.plugins = frozenset()
                    # events from here on are kept for it: what happens while it is tried may be just what it lacks
                    self._flying[entry] = self._first_event + len(self._events)
                    return entry
                rest = end - self._clock.monotonic()
                if rest <= 0:
                    return None
                due = self._backoff[0][0] - self._clock.monotonic() if self._backoff else rest
                self._changed.wait(max(min(rest, due), 0.001))
            return None

    def is_busy(self) -> bool:
        """Return whether a pod is being tried, or on its way to its node; while none is, only ``pop`` begins it."""
        with self._changed:
            return bool(self._flying)

    def has(self, entry: Entry) -> bool:
        """Return whether the pod is still to be scheduled."""
        with self._changed:
            return self._entries.get(entry.key) is entry

    def placed(self, entry: Entry) -> None:
        """Take note that a node was found: nothing that happens now matters any more, unless the pod comes back."""
        with self._changed:
            self._land(entry)

    def refuse(self, entry: Entry, plugins: frozenset[str], place: str = "waiting") -> None:
        """Take back a pod that fitted nowhere; it waits for what may help, which may have happened already.

        One that PreEnqueue plugins kept back is ``gated``, and waits alike.
        """
        with self._changed:
            happened = self._land(entry)
            if self._entries.get(entry.key) is not entry:
                return
            entry.plugins, entry.failed_at = plugins, self._clock.monotonic()
            if entry.changed or any(self._helps(entry, *event) for event in happened):
                self._requeue(entry, _FAILED)
            else:
                entry.place = place
                self._waiting[entry.key] = entry
                self._on_place("unschedulable" if place == "waiting" else place, _FAILED)

    def again(self, entry: Entry) -> None:
        """Take back a pod whose attempt failed; it is tried again after its back-off."""
        with self._changed:
            self._land(entry)
            if self._entries.get(entry.key) is entry:
                entry.failed_at = self._clock.monotonic()
                self._requeue(entry, _FAILED)

    def move(self, event: Event, old: Any, new: Any) -> None:
        """Try the pods again that ``event`` may help."""
        with self._changed:
            if self._flying:
                self._events.append((event, old, new))
            for entry in [one for one in self._waiting.values() if self._helps(one, event, old, new)]:
                self._requeue(entry, f"{event.resource}{event.action}")

    def freed(self, pod: PodInfo, nodes: Iterable[str]) -> None:
        """Try the pods again that the room may help which ``pod`` held on ``nodes`` without being bound there."""
        for node in nodes:
            gone = {**pod.pod, "spec": {**objects.spec(pod.pod), "nodeName": node}}
            self.move(Event("AssignedPod", "Delete"), gone, None)

    def activate(self, key: Key) -> None:
        """Try a pod that waits at once."""
        with self._changed:
            entry = self._entries.get(key)
            if entry is not None and entry.place in {"waiting", "backoff"}:
                self._activate(entry, "ForceActivate")

    def retry(self, key: Key) -> None:
        """Try a pod that waits after its back-off."""
        with self._changed:
            entry = self._waiting.get(key)
            if entry is not None:
                self._requeue(entry, "ForceActivate")

    def flush(self) -> None:
        """Try the pods again that have waited for five minutes."""
        with self._changed:
            now = self._clock.monotonic()
            for entry in [one for one in self._waiting.values() if now - one.failed_at >= LEFT_OVER_S]:
                self._requeue(entry, "UnschedulableTimeout")

    def close(self) -> None:
        """Hand out no more."""
        with self._changed:
            self._down = True
            self._changed.notify_all()

    def counts(self) -> dict[str, int]:
        """Return how many pods there are, by place."""
        with self._changed:
            found = {"active": 0, "backoff": 0, "unschedulable": 0, "gated": 0}
            names = {"waiting": "unschedulable", "flying": "active"}
            for entry in self._entries.values():
                found[names.get(entry.place, entry.place)] += 1
            return found

    def refusals(self) -> Counter[tuple[str, str]]:
        """Return how many pods were refused by a plugin and not tried since, by plugin and profile."""
        with self._changed:
            return Counter(
                (plugin, scheduler_of(entry.pod.pod))
                for entry in self._entries.values()
                for plugin in entry.plugins
                if plugin
            )

    def _next(self) -> Entry | None:
        now = self._clock.monotonic()
        while self._backoff and self._backoff[0][0] <= now:
            _, ticket, entry = heapq.heappop(self._backoff)
            # an old ticket is of a place that it has left: heaps cannot lose an entry from their middle
            if entry.place == "backoff" and entry.ticket == ticket:
                self._activate(entry, "BackoffComplete")
        while self._active:
            found = heapq.heappop(self._active)
            if found.entry.place == "active" and found.entry.ticket == found.ticket:
                return found.entry
        return None

    def _activate(self, entry: Entry, event: str) -> None:
        self._leave(entry)
        self._on_place("active", event)
        entry.place, entry.ticket = "active", next(self._tickets)
        heapq.heappush(self._active, _Sorted(entry, entry.ticket, self._less))
        self._changed.notify_all()

    def _requeue(self, entry: Entry, event: str) -> None:
        """Queue a pod that was tried before, once its back-off has passed."""
        self._leave(entry)
        first, most = self._backoff_s
        due = entry.failed_at + min(first * 2 ** min(entry.attempts - 1, 30), most)
        if due <= self._clock.monotonic():
            self._activate(entry, event)
            return
        self._on_place("backoff", event)
        entry.place, entry.ticket = "backoff", next(self._tickets)
        heapq.heappush(self._backoff, (due, entry.ticket, entry))
        self._changed.notify_all()

    def _leave(self, entry: Entry) -> None:
        """Take an entry out of where it is; those in heaps are passed over when their time comes."""
        self._waiting.pop(entry.key, None)
        entry.ticket = 0

    def _land(self, entry: Entry) -> list[tuple[Event, Any, Any]]:
        """End a pod's flight, and return what has happened during it."""
        first = self._flying.pop(entry, None)
        happened = [] if first is None else list(itertools.islice(self._events, first - self._first_event, None))
        oldest = next(iter(self._flying.values()), self._first_event + len(self._events))
        while self._first_event < oldest:
            self._events.popleft()
            self._first_event += 1
        return happened

    def _helps(self, entry: Entry, event: Event, old: Any, new: Any) -> bool:
        """Return whether an event may end a refusal; a hint that fails says yes."""
        # no plugin refused it: there was no node at all
        if not entry.plugins:
            return event.resource == "Node"
        for plugin in entry.plugins:
            for wake in self._wakes(entry.pod, plugin):
                if wake.event.covers(event) and _hinted(wake, entry.pod, old, new):
                    return True
        return False


def _hinted(wake: Wake, pod: PodInfo, old: Any, new: Any) -> bool:
    try:
        return wake.hint is None or bool(wake.hint(pod, old, new))
    except Exception:  # noqa: BLE001 - a plugin's mistake must lose no pod
        return True
