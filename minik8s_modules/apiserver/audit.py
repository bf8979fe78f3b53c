"""The audit log: one JSON line (audit.k8s.io/v1 Event) for each request, written by a thread of its own.

``record`` is called in the request's thread and only puts facts into a bounded queue; when the disk is too slow or
full, events are dropped and counted, requests never wait. Everything that costs (bodies, JSON, the file) is the
writer's. A file that has grown beyond its size becomes ``FILE.1``, and so on up to the number kept.

``POLICY`` says what is logged, first match first. Bodies of writes are logged, except those of secrets, tokens and
streams, and of anything that may carry a Secret: for them the metadata must do. Source of the event's form:
k8s.io/apiserver ``pkg/apis/audit/v1/types.go``.
"""

from __future__ import annotations

import errno
import logging
import os
import queue
import threading
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal, NamedTuple

import orjson

from minik8s_modules.api.errors import StatusError
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.apiserver import bodies
from minik8s_modules.apiserver.identity import User
from minik8s_modules.apiserver.target import Target
from minik8s_modules.base.clock import rfc3339_micro
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.base.metrics import Registry

log = logging.getLogger(__name__)

QUEUED = 2_000
# larger bodies are left out; the event then says Metadata
BODY_BYTES = 32 * 1024  # with a full queue: 64 MB
_BATCH = 500
_FLUSH_S = 5.0

Level = Literal["None", "Metadata", "Request"]


class Entry(NamedTuple):
    """What a request leaves behind; ``body`` is b"" where there was none."""

    audit_id: str
    verb: str
    uri: str
    target: Target | None
    user: User | None
    acting: User | None
    source: str
    agent: str
    code: int
    message: str
    began: datetime
    ended: datetime
    body: bytes
    media: str
    notes: JsonObject


class Rule(NamedTuple):
    """One line of the policy; an empty field fits everything, ``prefix`` is the beginning of the user's name."""

    level: Level
    resources: frozenset[str] = frozenset()
    verbs: frozenset[str] = frozenset()
    prefix: str = ""
    paths: tuple[str, ...] = ()

    def fits(self, entry: Entry, resource: str) -> bool:
        """Return whether the rule is about the request."""
        return (
            (not self.resources or resource in self.resources)
            and (not self.verbs or entry.verb in self.verbs)
            and (not self.prefix or (entry.user is not None and entry.user.name.startswith(self.prefix)))
            and (not self.paths or entry.uri.startswith(self.paths))
        )


_READS = frozenset({"get", "list", "watch"})
POLICY: tuple[Rule, ...] = (
    Rule("None", paths=("/healthz", "/livez", "/readyz", "/version")),
    Rule("None", resources=frozenset({"events"})),
    # heartbeats and elections of the cluster's own processes, some every few seconds
    Rule("None", resources=frozenset({"leases"}), prefix="system:"),
    Rule("None", verbs=_READS, prefix="system:kube-"),
    Rule("None", verbs=_READS, prefix="system:minik8s:"),
    Rule(
        "Metadata",
        resources=frozenset(
            {
                "secrets", "serviceaccounts/token", "tokenreviews", "plans", "pods/exec", "pods/attach",
                "pods/portforward", "pods/proxy", "pods/log", "services/proxy", "nodes/proxy",
            }
        ),
    ),
    Rule("Metadata", verbs=_READS),
    Rule("Request"),
)  # fmt: skip
_SECRET_KINDS = frozenset({"Secret", "SecretList", "List", "TokenRequest", "TokenReview", "Plan"})


def level_of(entry: Entry) -> Level:
    """Return how much of a request is logged."""
    resource = _resource(entry.target)
    return next((rule.level for rule in POLICY if rule.fits(entry, resource)), "Metadata")


def _resource(target: Target | None) -> str:
    if target is None:
        return ""
    return f"{target.kind.plural}/{target.subresource}" if target.subresource else target.kind.plural


def event(entry: Entry, level: Level) -> JsonObject:
    """Return the audit.k8s.io/v1 Event of a request."""
    body = _body(entry) if level == "Request" else None
    found: JsonObject = {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "Request" if body is not None else "Metadata",
        "auditID": entry.audit_id,
        # a watch goes on; its event tells of its beginning
        "stage": "ResponseStarted" if entry.verb == "watch" else "ResponseComplete",
        "requestURI": entry.uri,
        "verb": entry.verb,
        "user": entry.user.info() if entry.user else {},
        "sourceIPs": [entry.source],
        "userAgent": entry.agent,
        "responseStatus": {"metadata": {}, "code": entry.code},
        "requestReceivedTimestamp": rfc3339_micro(entry.began),
        "stageTimestamp": rfc3339_micro(entry.ended),
    }
    if entry.acting is not None and entry.acting != entry.user:
        found["impersonatedUser"] = entry.acting.info()
    if entry.target is not None:
        found["objectRef"] = _reference(entry.target)
    if entry.message and (level == "Request" or entry.verb in _READS):
        found["responseStatus"] |= {"status": "Failure", "message": entry.message}
    if body is not None:
        found["requestObject"] = body
    if entry.notes:
        found["annotations"] = entry.notes
    return found


def _reference(target: Target) -> JsonObject:
    fields = {
        "resource": target.kind.plural,
        "namespace": target.namespace,
        "name": target.name,
        "apiGroup": target.kind.group,
        "apiVersion": target.kind.version,
        "subresource": target.subresource,
    }
    return {field: value for field, value in fields.items() if value}


def _body(entry: Entry) -> object | None:
    """Return a body that may be logged, None where there is none, or it cannot be read, or may hold a secret."""
    if not entry.body:
        return None
    try:
        found: object = bodies.parse(entry.body, entry.media)
    except StatusError:
        return None
    if isinstance(found, dict) and found.get("kind") in _SECRET_KINDS:
        return None
    return found


class LogFile:
    """A file that is rotated by size: at most ``backups`` former files are kept beside it, all with mode 0600."""

    def __init__(self, path: Path, max_bytes: int, backups: int) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._backups = backups
        self._file = self._open()
        self._torn = False  # the last line was cut by a full disk

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def write(self, lines: Sequence[bytes]) -> None:
        """Append whole lines; a line is never spread over two files. Raises OSError; what did not fit is lost."""
        size = os.fstat(self._file).st_size
        for line in lines:
            if size and size + len(line) > self._max_bytes:
                self._rotate()
                size = 0
            size += self._append(line)

    def _append(self, line: bytes) -> int:
        written = os.write(self._file, b"\n" + line if self._torn else line)
        self._torn = written < len(line) + self._torn
        if self._torn:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
        return written

    def _rotate(self) -> None:
        os.close(self._file)
        for number in range(self._backups - 1, 0, -1):
            former = self._numbered(number)
            if former.exists():
                former.replace(self._numbered(number + 1))
        if self._backups:
            self._path.replace(self._numbered(1))
        else:
            self._path.unlink()
        self._file = self._open()

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


class AuditLog:
    """See the top of this file.

    Raises:
        ConfigurationError: the file cannot be opened.
    """

    def __init__(self, open_file: Callable[[], LogFile], metrics: Registry, *, queued: int = QUEUED) -> None:
        self._queue: queue.Queue[Entry | None] = queue.Queue(queued)
        try:
            self._file = open_file()
        except OSError as error:
            raise ConfigurationError(
                f"apiserver: audit.path: cannot open {error.filename}: {error.strerror}"
            ) from error
        self._events = metrics.counter("apiserver_audit_event_total", "Audit events written.")
        self._lost = metrics.counter("apiserver_audit_error_total", "Audit events that were lost.", ("reason",))
        self._thread = threading.Thread(target=self._run, name="audit-log", daemon=True)
        self._failed = False

    def start(self) -> None:
        """Start the writer."""
        self._thread.start()

    def stop(self) -> None:
        """Write what is queued, then end; gives up after a few seconds."""
        try:
            self._queue.put(None, timeout=_FLUSH_S)
        except queue.Full:
            return
        self._thread.join(timeout=_FLUSH_S)

    def record(self, entry: Entry) -> None:
        """Queue a request's event; never waits."""
        if level_of(entry) == "None":
            return
        try:
            self._queue.put_nowait(entry)
        except queue.Full:
            self._lost.inc("queue full")

    def _run(self) -> None:
        ended = False
        while not ended:
            entries: list[Entry | None] = [self._queue.get()]
            while len(entries) < _BATCH and not self._queue.empty():
                entries.append(self._queue.get_nowait())
            ended = None in entries
            self._write([entry for entry in entries if entry is not None])
        self._file.close()

    def _write(self, entries: Sequence[Entry]) -> None:
        try:
            self._file.write([orjson.dumps(event(entry, level_of(entry))) + b"\n" for entry in entries])
        except Exception as error:  # a loop's edge: a full disk must not end the log
            if not self._failed:
                log.exception("audit events are lost")
            self._failed = True
            self._lost.inc(type(error).__name__, by=float(len(entries)))
        else:
            self._failed = False
            self._events.inc(by=float(len(entries)))
