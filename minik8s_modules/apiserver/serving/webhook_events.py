"""Events about webhook configurations: which of their webhooks cannot be asked, and which are slow.

`minik8s why` and `kubectl describe` show them. There is one a webhook and reason, counted up; they are written beside
the requests, so that a broken webhook costs the writes that it sees no more than its timeout.
"""

from __future__ import annotations

import hashlib

from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.kinds import EVENT
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.incoming import Options
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.verbs import writing
from minik8s_modules.apiserver.webhooks.troubles import Trouble
from minik8s_modules.base.clock import rfc3339

_NAMESPACE = "default"  # of Events about what is in no namespace
_LONGEST = 1024


def record(backend: Backend) -> None:
    """Write what happened since the last time."""
    for trouble in backend.webhooks.troubles.take():
        _write(backend, trouble)


def _write(backend: Backend, trouble: Trouble) -> None:
    now, called = rfc3339(backend.clock.now()), _name(trouble)
    options = Options(dry_run=False, validation="Ignore", warnings=[])

    def counted(old: JsonObject) -> JsonObject:
        count = int(old.get("count") or 0) + trouble.times
        return {**old, "count": count, "lastTimestamp": now, "message": trouble.message[:_LONGEST]}

    try:
        writing.change(backend, Target(EVENT, _NAMESPACE, called), counted, options)
    except NotFound:
        writing.create(backend, Target(EVENT, _NAMESPACE), _event(trouble, called, now), options)


def _name(trouble: Trouble) -> str:
    digest = hashlib.sha256(f"{trouble.hook.key}{trouble.reason}".encode()).hexdigest()[:16]
    return f"{trouble.hook.configuration[:200].rstrip('.-')}.{digest}"


def _event(trouble: Trouble, called: str, now: str) -> JsonObject:
    hook = trouble.hook
    about = {"apiVersion": hook.about.api_version, "kind": hook.about.kind}
    return {
        "metadata": {"name": called, "namespace": _NAMESPACE},
        "involvedObject": {**about, "name": hook.configuration, "uid": hook.key[0]},
        "type": "Warning",
        "reason": trouble.reason,
        "message": trouble.message[:_LONGEST],
        "source": {"component": "minik8s-apiserver"},
        "count": trouble.times,
        "firstTimestamp": now,
        "lastTimestamp": now,
    }
