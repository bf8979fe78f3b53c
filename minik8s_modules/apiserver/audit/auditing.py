"""Collects from each request what the audit log (audit_log.py) is to tell. The keys are those of WSGI environments."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol

import orjson
from flask import Request, Response

from minik8s_modules.api.kind import Kinds, Registry
from minik8s_modules.apiserver.audit.audit import BODY_BYTES, Entry
from minik8s_modules.apiserver.http.bodies import BODY
from minik8s_modules.apiserver.http.target import parse
from minik8s_modules.base.clock import Clock

AUDIT_ID, BEGAN, VERB = "minik8s.audit-id", "minik8s.began", "minik8s.verb"
TARGET = "minik8s.target"  # of a request that somebody else answers: its kind is not served here
ORIGINAL, ACTING = "minik8s.original-user", "minik8s.user"
NOTES = "minik8s.notes"
_BAD = 400
_TRUNCATED = "audit.k8s.io/truncated"  # Kubernetes' annotation of an event whose body was left out for its size
_LONGEST_MESSAGE = 4096  # what was wrong with a body may repeat all of it


class Recorder(Protocol):
    """Where entries go."""

    def record(self, entry: Entry) -> None:
        """Take an entry without waiting."""


def note_decision(environ: dict[str, Any], why: str) -> None:
    """Note why a request was allowed, "" for one that was not."""
    notes = environ.setdefault(NOTES, {})
    notes["authorization.k8s.io/decision"] = "allow" if why else "forbid"
    notes["authorization.k8s.io/reason"] = why


def recording(recorder: Recorder, clock: Clock, kinds: Kinds) -> Callable[[Request, Response], None]:
    """Return what records an answer."""
    return lambda request, response: recorder.record(_entry(request, response, clock, kinds.registry))


def _entry(request: Request, response: Response, clock: Clock, kinds: Registry) -> Entry:
    environ = request.environ
    ended = clock.now()
    elapsed_s = time.perf_counter() - environ.get(BEGAN, time.perf_counter())
    body: bytes = environ.get(BODY, b"")
    return Entry(
        audit_id=environ.get(AUDIT_ID, ""),
        verb=environ.get(VERB) or request.method.lower(),
        uri=environ.get("RAW_URI") or request.full_path,
        target=environ.get(TARGET) or parse(request.path, kinds),
        user=environ.get(ORIGINAL),
        acting=environ.get(ACTING),
        source=environ.get("REMOTE_ADDR", ""),
        agent=environ.get("HTTP_USER_AGENT", ""),
        code=response.status_code,
        message=_message(response) if response.status_code >= _BAD else "",
        began=ended - timedelta(seconds=elapsed_s),
        ended=ended,
        body=body if len(body) <= BODY_BYTES else b"",
        media=(environ.get("CONTENT_TYPE") or "application/json").split(";", 1)[0].strip().lower(),
        notes={**environ.get(NOTES, {}), **({_TRUNCATED: "true"} if len(body) > BODY_BYTES else {})},
    )


def _message(response: Response) -> str:
    try:
        return str(orjson.loads(response.get_data())["message"])[:_LONGEST_MESSAGE]
    except (ValueError, KeyError, TypeError):
        return ""
