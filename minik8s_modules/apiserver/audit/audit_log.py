"""The writer of the audit log: a bounded queue, a thread of its own, and an account of what was lost.

``record`` is called in the request's thread and only puts facts into the queue; requests never wait for the disk. What
cannot be queued or written is counted, told in the server's log, and told in the audit log itself by an event that
names how many events of whom are missing. One user's events fill at most half of the queue, and reads leave an eighth
of it to writes, so a flood of requests does not take the others' events with it.

Events that have gathered are written in one step, since each system call gives the interpreter away. Where that does
not work, each is made and written by itself: one that cannot be written loses none but itself. One that cannot be told
in full is told without its body.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import partial

import orjson

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.apiserver.audit.audit import READS, Entry, Level, event, level_of
from minik8s_modules.apiserver.audit.audit_files import LogFile
from minik8s_modules.base.clock import Clock, rfc3339_micro
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.base.ids import random_uid
from minik8s_modules.base.metrics import Registry

log = logging.getLogger(__name__)

QUEUED = 2_000
_FLUSH_S = 5.0
# how often old files are looked for where nothing happens, and how often losses are told in the server's log
_TIDY_S = 600.0
_REPORT_EVERY_S = 60.0
# events are written together: a wake-up for each cost every request two switches between threads. So long the events
# of an idle server wait, which a kill -9 may lose; those of a busy one until there are enough
_GATHER_S = 0.25
_TOGETHER = 64
_MOST_NAMED = 10  # users that one event about lost events names


class _Queue:
    """Entries that wait for the writer, with a bound for all, for each user and for reads."""

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._entries: deque[Entry] = deque()
        self._users: Counter[str] = Counter()
        self._changed = threading.Condition()
        self._ended = False

    def put(self, entry: Entry) -> bool:
        """Return whether there was room; never waits for the writer."""
        name = _user(entry)
        with self._changed:
            length = len(self._entries)
            read_bound = self._bound - self._bound // 8
            full = length >= (read_bound if entry.verb in READS else self._bound)
            if full or self._users[name] >= max(1, self._bound // 2):
                return False
            self._entries.append(entry)
            self._users[name] += 1
            if length + 1 in {1, _TOGETHER}:
                self._changed.notify()
        return True

    def wait(self, timeout_s: float, entries: int = 1) -> None:
        """Wait until there are so many ``entries``, or for the end, up to ``timeout_s``."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._entries) >= entries or self._ended, timeout_s)

    def take(self) -> list[Entry]:
        """Return the next entries, none where there are none."""
        with self._changed:
            taken = [self._entries.popleft() for _ in range(min(_TOGETHER, len(self._entries)))]
            for name in map(_user, taken):
                self._users[name] -= 1
                if not self._users[name]:
                    del self._users[name]
            return taken

    @property
    def over(self) -> bool:
        """Return whether nothing is left and nothing comes."""
        with self._changed:
            return self._ended and not self._entries

    def end(self) -> None:
        """Let ``take`` return without waiting from now on."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()


def _user(entry: Entry) -> str:
    return entry.user.name if entry.user else ""


class _Losses:
    """What was lost since it was last told."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._users: Counter[str] = Counter()
        self._reason = self._since = ""

    def add(self, user: str, reason: str) -> None:
        """Note a lost event."""
        with self._lock:
            self._since = self._since or rfc3339_micro(self._clock.now())
            self._reason = reason
            self._users[user] += 1

    def take(self) -> JsonObject | None:
        """Return an event that tells of what was lost, and forget it; None when nothing was."""
        with self._lock:
            if not self._users:
                return None
            named = ", ".join(f"{user or 'unknown'}: {count}" for user, count in self._users.most_common(_MOST_NAMED))
            record = _event_of_losses(self._users.total(), named, self._reason, self._since, self._clock)
            self._users.clear()
            self._since = ""
            return record


def _event_of_losses(count: int, users: str, reason: str, since: str, clock: Clock) -> JsonObject:
    now = rfc3339_micro(clock.now())
    return {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "Metadata",
        "auditID": random_uid(),
        "stage": "Panic",
        "requestURI": "",
        "verb": "",
        "user": {"username": "system:minik8s:apiserver"},
        "requestReceivedTimestamp": since,
        "stageTimestamp": now,
        "annotations": {
            "minik8s.io/audit-events-lost": f"{count} between {since} and {now} ({reason})",
            "minik8s.io/audit-events-lost-by-user": users,
        },
    }


class AuditLog:
    """See the top of this file.

    Raises:
        ConfigurationError: the file cannot be opened.
    """

    def __init__(
        self, open_file: Callable[[], LogFile], metrics: Registry, clock: Clock, *, queued: int = QUEUED
    ) -> None:
        self._queue = _Queue(queued)
        try:
            self._file = open_file()
        except OSError as error:
            raise ConfigurationError(
                f"apiserver: audit.path: cannot open {error.filename}: {error.strerror}"
            ) from error
        self._clock = clock
        self._events = metrics.counter("apiserver_audit_event_total", "Audit events written.")
        self._lost = metrics.counter("apiserver_audit_error_total", "Audit events that were lost.", ("reason",))
        self._losses = _Losses(clock)
        self._thread = threading.Thread(target=self._run, name="audit-log", daemon=True)
        self._reported_s = self._tidied_s = float("-inf")

    def start(self) -> None:
        """Start the writer."""
        self._thread.start()

    def stop(self) -> None:
        """Write what is queued, then end; gives up after a few seconds."""
        self._queue.end()
        self._thread.join(timeout=_FLUSH_S)

    def record(self, entry: Entry) -> None:
        """Queue a request's event; never waits."""
        if level_of(entry) != "None" and not self._queue.put(entry):
            self._lose(entry, "queue full")

    def _run(self) -> None:
        while not self._queue.over:
            self._queue.wait(_TIDY_S)
            self._queue.wait(_GATHER_S, _TOGETHER)
            self._guarded(self._tidy)
            while entries := self._queue.take():
                self._write_together(entries)
        self._file.close()

    def _guarded(self, step: Callable[[], None], entry: Entry | None = None) -> None:
        try:
            step()
        except Exception as error:  # noqa: BLE001 - a loop's edge; told by _alarm, with its traceback
            if entry is not None:
                self._lose(entry, type(error).__name__)
            self._alarm(error)

    def _write_together(self, entries: Sequence[Entry]) -> None:
        try:
            written = self._file.write_together([line_of(entry, level_of(entry)) for entry in entries])
        except Exception as error:  # noqa: BLE001 - it comes again with the entry that it is about
            log.debug("audit events are written one by one: %s", error)
            written = False
        if written:
            self._events.inc(len(entries))
            self._guarded(self._tell_losses)
            return
        for entry in entries:
            self._guarded(partial(self._write, entry), entry)

    def _write(self, entry: Entry) -> None:
        self._file.write(line_of(entry, level_of(entry)))
        self._events.inc()
        self._tell_losses()

    def _tell_losses(self) -> None:
        lost = self._losses.take()
        if lost is not None:
            self._file.write(orjson.dumps(lost) + b"\n")

    def _tidy(self) -> None:
        now_s = self._clock.monotonic()
        if now_s - self._tidied_s >= _TIDY_S:
            self._tidied_s = now_s
            self._file.tidy()

    def _lose(self, entry: Entry, reason: str) -> None:
        self._lost.labels(reason).inc()
        self._losses.add(_user(entry), reason)

    def _alarm(self, error: Exception) -> None:
        now_s = self._clock.monotonic()
        if now_s - self._reported_s >= _REPORT_EVERY_S:
            self._reported_s = now_s
            log.error("audit events are lost (apiserver_audit_error_total counts them)", exc_info=error)


def line_of(entry: Entry, level: Level) -> bytes:
    """Return a request's event as a line; without its body and in ASCII where it cannot be told otherwise."""
    try:
        return orjson.dumps(event(entry, level)) + b"\n"
    except Exception as error:  # noqa: BLE001 - whatever a client found to make its event fail must not hide it
        bare = event(entry._replace(body=b""), "Metadata")
        bare["annotations"] = {**bare.get("annotations", {}), "minik8s.io/audit-error": type(error).__name__}
        return json.dumps(bare, default=str).encode() + b"\n"
