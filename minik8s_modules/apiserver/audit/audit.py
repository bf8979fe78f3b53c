"""What the audit log tells of a request: a policy, and one audit.k8s.io/v1 Event. ``audit_log`` writes them.

``POLICY`` says what is logged, first match first. Bodies of writes are logged, except those of secrets, tokens and
streams, and of anything that may carry a Secret: for them the metadata must do. Source of the event's form:
k8s.io/apiserver ``pkg/apis/audit/v1/types.go``.
"""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from typing import Literal, NamedTuple

from minik8s_modules.api.errors import StatusError
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.apiserver.authorization.identity import User
from minik8s_modules.apiserver.http import bodies
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.base.clock import rfc3339_micro

# larger bodies are left out; the event then says Metadata
BODY_BYTES = 32 * 1024  # with a full queue: 64 MB

_SWITCHED, _FAILURES = 101, 400
_STREAMS = frozenset({"exec", "attach", "portforward", "proxy"})

Level = Literal["None", "Metadata", "Request"]


class Entry(NamedTuple):
    """What a request leaves behind; ``body`` is b"" and ``code`` 0 where there was none."""

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
    """One line of the policy; an empty field fits everything.

    ``users`` are names, or beginnings of names that end in a colon; ``paths`` fit themselves and what is below them.
    """

    level: Level
    resources: frozenset[str] = frozenset()
    verbs: frozenset[str] = frozenset()
    users: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()

    def fits(self, resource: str, verb: str, user: str | None, path: str) -> bool:
        """Return whether the rule is about a request; ``path`` is "" where it is for a resource."""
        return (
            (not self.resources or resource in self.resources)
            and (not self.verbs or verb in self.verbs)
            and (not self.users or (user is not None and _is_one_of(user, self.users)))
            and (not self.paths or path in self.paths)
        )


def _is_one_of(name: str, users: tuple[str, ...]) -> bool:
    return any(name.startswith(each) if each.endswith(":") else name == each for each in users)


def _first_part(uri: str) -> str:
    return "/" + uri.partition("?")[0].removeprefix("/").partition("/")[0]


READS = frozenset({"get", "list", "watch"})
# the cluster's own processes; service accounts (system:serviceaccount:) are none of them
_CENTRAL = ("system:kube-controller-manager", "system:kube-scheduler", "system:minik8s:")
_DAEMONS = (*_CENTRAL, "system:node:")
# what heartbeats, elections and the daemons' Events consist of, some every few seconds
_BEATS = READS | {"create", "update", "patch"}
POLICY: tuple[Rule, ...] = (
    Rule("None", paths=("/healthz", "/livez", "/readyz", "/version")),
    Rule("None", resources=frozenset({"events", "leases"}), verbs=_BEATS, users=_DAEMONS),
    Rule("Metadata", resources=frozenset({"events"})),
    Rule("None", verbs=READS, users=_CENTRAL),
    Rule(
        "Metadata",
        resources=frozenset(
            {
                "secrets", "serviceaccounts/token", "tokenreviews", "plans", "pods/exec", "pods/attach",
                "pods/portforward", "pods/proxy", "pods/log", "services/proxy", "nodes/proxy",
            }
        ),
    ),
    Rule("Metadata", verbs=READS),
    Rule("Request"),
)  # fmt: skip
_SECRET_KINDS = frozenset({"Secret", "SecretList", "List", "TokenRequest", "TokenReview", "Plan"})


def level_of(entry: Entry) -> Level:
    """Return how much of a request is logged."""
    path = _first_part(entry.uri) if entry.target is None else ""
    return _level(_resource(entry.target), entry.verb, entry.user.name if entry.user else None, path)


@lru_cache(maxsize=512)  # a few users ask the same again and again, and each request is asked about twice
def _level(resource: str, verb: str, user: str | None, path: str) -> Level:
    return next((rule.level for rule in POLICY if rule.fits(resource, verb, user, path)), "Metadata")


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
        "stage": "ResponseStarted" if _goes_on(entry) else "ResponseComplete",
        "requestURI": entry.uri,
        "verb": entry.verb,
        "user": entry.user.info() if entry.user else {},
        "sourceIPs": [entry.source],
        "userAgent": entry.agent,
        "responseStatus": {"metadata": {}, **({"code": entry.code} if entry.code else {})},
        "requestReceivedTimestamp": rfc3339_micro(entry.began),
        "stageTimestamp": rfc3339_micro(entry.ended),
    }
    if entry.acting is not None and entry.acting != entry.user:
        found["impersonatedUser"] = entry.acting.info()
    if entry.target is not None:
        found["objectRef"] = _reference(entry.target)
    if entry.message and (level == "Request" or entry.verb in READS):
        found["responseStatus"] |= {"status": "Failure", "message": entry.message}
    if body is not None:
        found["requestObject"] = body
    if entry.notes:
        found["annotations"] = entry.notes
    return found


def _goes_on(entry: Entry) -> bool:
    """Return whether the event tells of the beginning of a watch or stream."""
    if not entry.code:  # of an extension that gave no answer until the client left
        return False
    streamed = entry.target is not None and (
        entry.target.subresource in _STREAMS
        or (_is_elsewhere(entry.target) and (entry.code == _SWITCHED or entry.target.subresource == "log"))
    )
    return entry.verb == "watch" or (streamed and entry.code < _FAILURES)


def _is_elsewhere(target: Target) -> bool:
    """Return whether an extension answers."""
    return not target.kind.kind


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
    kind = found.get("kind") if isinstance(found, dict) else None
    if isinstance(kind, str) and kind in _SECRET_KINDS:
        return None
    return found
