"""Istio's AuthorizationPolicy as this cluster has it: a custom kind (roles/mesh/vars/authorization.yml). Pure.

Policies of a namespace select its Pods by labels. Of those that select one, DENY comes first; then, if any is of ALLOW,
one of them has to match. A policy without rules matches nothing. What is declared is checked by the kind's schema.

``access`` says what the Envoys that enforce them (mesh/authorizations) would: of a caller and a port all requests pass,
none, or it depends on the request. Where both would differ, Envoy's word counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.kind import Kind
from minik8s_modules.api.network.path_patterns import path_expression
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.mutual_tls import TRUST_DOMAIN

GROUP = "security.istio.io"
AUTHORIZATION_POLICY = Kind(GROUP, "v1", "AuthorizationPolicy", "authorizationpolicies", "AuthorizationPolicy")
ALLOW, DENY = "ALLOW", "DENY"
OF_HTTP = ("hosts", "methods", "paths")
"""Fields of an operation that only a request has. Each, and each other list, has a negation: hosts and notHosts."""
_HTTP_NAMES = ("http", "http2", "grpc", "h2c", "ws")
_HTTP_PROTOCOLS = frozenset({*_HTTP_NAMES, "kubernetes.io/h2c", "kubernetes.io/ws", "grpc-web"})


class Caller(NamedTuple):
    """Who calls: a service account, or with empty fields somebody without an identity, as whoever speaks no TLS is."""

    namespace: str = ""
    account: str = ""

    @property
    def principal(self) -> str:
        """The name by which policies know it; "" for none."""
        return f"{TRUST_DOMAIN}/ns/{self.namespace}/sa/{self.account}" if self.namespace else ""

    def __str__(self) -> str:
        """Return it as people write it."""
        return f"{self.namespace}/{self.account}" if self.namespace else "callers without mutual TLS"


class Request(NamedTuple):
    """A request of HTTP: its path is one after normalization, without a query."""

    method: str
    path: str
    host: str


class Access(NamedTuple):
    """What may pass: ``ALL``, ``SOME`` or ``NONE``; and the policy that decides, "" where there is none."""

    passes: int
    policy: str = ""


NONE, SOME, ALL = 0, 1, 2
"""How much of what a caller may ask matches, or passes; the negation of one is ``ALL`` without it."""


def is_policy(obj: JsonObject) -> bool:
    """Return whether an object is one, in whichever version it is written."""
    group, _, _ = str(obj.get("apiVersion") or "").rpartition("/")
    return (group, obj.get("kind")) == (GROUP, AUTHORIZATION_POLICY.kind)


def action_of(policy: JsonObject) -> str:
    """Return whether a policy allows or denies."""
    return str(objects.spec(policy).get("action") or ALLOW)


def selecting(policies: Iterable[JsonObject], namespace: str, labels: Mapping[str, str]) -> list[JsonObject]:
    """Return the policies that select a Pod of these labels, by name."""
    found = (each for each in policies if objects.namespace(each) == namespace and selects(each, labels))
    return sorted(found, key=objects.name)


def selects(policy: JsonObject, labels: Mapping[str, str]) -> bool:
    """Return whether a policy selects a Pod of these labels in its namespace; without a selector it selects all."""
    wanted = (objects.spec(policy).get("selector") or {}).get("matchLabels") or {}
    return bool(wanted.items() <= labels.items())


def operations_of(rule: JsonObject) -> list[JsonObject]:
    """Return the operations of a rule; one without any is for all."""
    return [each.get("operation") or {} for each in rule.get("to") or [{}]]


def sources_of(rule: JsonObject) -> list[JsonObject]:
    """Return the sources of a rule; one without any is from all."""
    return [each.get("source") or {} for each in rule.get("from") or [{}]]


def negated(field: str) -> str:
    """Return the name of a list's negation: notPaths of paths."""
    return f"not{field[0].upper()}{field[1:]}"


def asks_http(operation: JsonObject) -> bool:
    """Return whether an operation asks for what only a request of HTTP has."""
    return any(operation.get(each) or operation.get(negated(each)) for each in OF_HTTP)


def needs_http(policies: Iterable[JsonObject]) -> bool:
    """Return whether a policy asks for what only a request of HTTP has."""
    rules = (rule for each in policies for rule in objects.spec(each).get("rules") or [])
    return any(asks_http(operation) for rule in rules for operation in operations_of(rule))


def speaks_http(port: JsonObject) -> bool:
    """Return whether a port of a Service or EndpointSlice says that it is one of HTTP: as Istio, by field or name."""
    protocol = str(port.get("appProtocol") or "").lower()
    if protocol:
        return protocol in _HTTP_PROTOCOLS
    return str(port.get("name") or "").lower().partition("-")[0] in _HTTP_NAMES


def access(
    policies: Sequence[JsonObject], caller: Caller, port: int, *, http: bool, request: Request | None = None
) -> Access:
    """Return what may pass to a port of a Pod that exactly these policies select.

    Args:
        policies: those that select the Pod.
        caller: who calls.
        port: of the Pod.
        http: whether the port is known to be one of HTTP.
        request: which request; None for any.
    """
    denying = [each for each in policies if action_of(each) == DENY]
    allowing = [each for each in policies if action_of(each) == ALLOW]
    denied, by = _strongest(denying, caller, port, http=http, request=request)
    if denied == ALL:
        return Access(NONE, by)
    if not allowing:
        return Access(ALL - denied, by)
    allowed, of = _strongest(allowing, caller, port, http=http, request=request)
    return Access(min(allowed, ALL - denied), by if denied and allowed else of)


def _strongest(
    policies: Sequence[JsonObject], caller: Caller, port: int, *, http: bool, request: Request | None
) -> tuple[int, str]:
    found = [(_matched(each, caller, port, http=http, request=request), objects.name(each)) for each in policies]
    best = max(found, default=(NONE, ""), key=lambda each: each[0])
    return best if best[0] else (NONE, "")


def _matched(policy: JsonObject, caller: Caller, port: int, *, http: bool, request: Request | None) -> int:
    denies = action_of(policy) == DENY
    rules = objects.spec(policy).get("rules") or []
    return max(
        (
            min(
                max(_from(source, caller, denies=denies) for source in sources_of(rule)),
                max(_to(each, port, http=http, request=request, denies=denies) for each in operations_of(rule)),
            )
            for rule in rules
        ),
        default=NONE,
    )


def _from(source: JsonObject, caller: Caller, *, denies: bool) -> int:
    names = {"principals": caller.principal, "namespaces": caller.namespace}
    if not denies and source and not caller.namespace:
        return NONE  # who has no identity is allowed nothing by identity, also not by who he is not
    return ALL if all(_agrees(source, field, value) for field, value in names.items()) else NONE


def _agrees(declared: JsonObject, field: str, value: str) -> bool:
    wanted, unwanted = declared.get(field), declared.get(negated(field))
    return (not wanted or _any(wanted, value)) and not (unwanted and _any(unwanted, value))


def _any(patterns: Iterable[str], value: str) -> bool:
    return bool(value) and any(matches(each, value) for each in patterns)


def _to(operation: JsonObject, port: int, *, http: bool, request: Request | None, denies: bool) -> int:
    if not _agrees(operation, "ports", str(port)):
        return NONE
    if not asks_http(operation):
        return ALL
    if not http:
        return ALL if denies else NONE
    if request is None:
        return SOME
    return ALL if all(_asked(operation, field, request, denies=denies) for field in OF_HTTP) else NONE


def _asked(operation: JsonObject, field: str, request: Request, *, denies: bool) -> bool:
    wanted, unwanted = operation.get(field) or [], operation.get(negated(field)) or []
    return (not wanted or any(_has(field, each, request, wide=denies) for each in wanted)) and not any(
        _has(field, each, request, wide=not denies) for each in unwanted
    )


def _has(field: str, pattern: str, request: Request, *, wide: bool) -> bool:
    """Return whether a request has what a pattern says; a ``wide`` one, which denies, leaves out the case of paths."""
    if field == "methods":
        return matches(pattern, request.method)
    if field == "hosts":
        return re.fullmatch(host_expression(pattern), request.host) is not None
    return pattern == "*" or re.fullmatch(path_expression(pattern, wide=wide), request.path) is not None


def matches(pattern: str, value: str) -> bool:
    """Return whether a value matches: ``x`` itself, ``x*`` its beginning, ``*x`` its end, ``*`` whatever there is."""
    if pattern.startswith("*"):
        return bool(value) and value.endswith(pattern[1:])
    return value.startswith(pattern[:-1]) if pattern.endswith("*") else value == pattern


def host_expression(pattern: str) -> str:
    """Return the regular expression of a host; case, a dot behind it, and a port that it does not name do not count."""
    body = ".+" if pattern == "*" else ".*".join(re.escape(part) for part in pattern.split("*"))
    return f"(?i){body}" if re.search(r":[0-9]+$", pattern) else rf"(?i){body}\.?(?::[0-9]*)?"
