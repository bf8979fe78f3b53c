"""The filters by which an Envoy enforces what is declared of its Pod, in its YAML. Pure.

    connection ─▶ DENY ─▶ ALLOW ─▶ application          a port that no Service calls one of HTTP
    request ─▶ normalized ─▶ DENY ─▶ ALLOW ─▶ application     a port of HTTP, if a policy asks for a request's fields

Whoever is called compares the caller's certificate, which Envoy has checked: no header says who calls. What only a
request has, a connection has not: it is never allowed by that, and denied whatever the request says. The application
hears of a connection when its first byte has been allowed, so programs whose server speaks first wait for ever.

A rule that denies matches more than it says, and one that allows no more: applications differ in what they take for the
same path, so its case, and which of its signs are encoded, count only where it allows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from minik8s_modules.api.network.authorization import (
    ALLOW,
    DENY,
    OF_HTTP,
    asks_http,
    host_expression,
    negated,
    operations_of,
    sources_of,
)
from minik8s_modules.api.network.path_patterns import REFUSED, is_plain, path_expression
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.mutual_tls import TRUST_DOMAIN, namespace_identity
from minik8s_modules.mesh.authorizations.guards import Guard
from minik8s_modules.mesh.resources import API, connection_manager

_FILTERS = f"{API}extensions.filters."
_SCHEME = "spiffe://"
_ANYBODY, _ANYTHING = {"any": True}, {"any": True}
_IDENTIFIED: JsonObject = {"authenticated": {"principal_name": {"prefix": f"{_SCHEME}{TRUST_DOMAIN}/"}}}
_FIRST_BYTES = 65536
"""How much of what a caller says is kept until the application is there."""
ENCODED = "encoded"
"""Name of the rule against paths in which letters are written as %41, or NUL; no policy's, which have a slash."""


def network_filters(guard: Guard | None) -> list[JsonObject]:
    """Return what a connection passes."""
    return [_network_filter(action, rules) for action, rules in _by_action(guard, http=False)] if guard else []


def delayed(guard: Guard | None) -> JsonObject:
    """Return the fields of what leads a connection on when it is allowed, and not before."""
    if guard is None:
        return {}
    return {"upstream_connect_mode": "ON_DOWNSTREAM_DATA", "max_early_data_bytes": _FIRST_BYTES}


def http_filter(guard: Guard, application: str) -> JsonObject:
    """Return what serves requests to a port of HTTP."""
    filters = [_http_filter(action, rules) for action, rules in _by_action(guard, http=True)]
    route = {
        "match": {"prefix": "/"},
        "route": {
            "cluster": application,
            "timeout": "0s",
            "retry_policy": {"retry_on": "connect-failure,refused-stream,reset-before-request", "num_retries": 1},
        },
    }
    hosts = [{"name": "all", "domains": ["*"], "routes": [route]}]
    made = connection_manager("inbound", filters)
    del made["rds"]
    own = {
        "route_config": {"name": "inbound", "virtual_hosts": hosts, "validate_clusters": False},
        "stream_idle_timeout": "0s",
        "skip_xff_append": True,
        # what a rule is compared with is what the application gets
        "normalize_path": True,
        "merge_slashes": True,
        "path_with_escaped_slashes_action": "REJECT_REQUEST",
        "forward_client_cert_details": "SANITIZE",
    }
    return {"name": "http", "typed_config": {**made, **own}}


def _by_action(guard: Guard, *, http: bool) -> Iterable[tuple[str, JsonObject]]:
    """Yield the actions that are declared, DENY first, and what each has of Envoy's policies."""
    specs = guard.specs()
    for action in (DENY, ALLOW):
        of = [(name, spec) for name, spec in specs if (spec.get("action") or ALLOW) == action]
        rules = dict(_rules(action, of, http=http))
        if http and action == DENY:
            of, rules = of or [("", {})], {**rules, ENCODED: _encoded()}
        if of:
            yield action, rules


def _encoded() -> JsonObject:
    path = {"safe_regex": {"regex": f".*{REFUSED}.*"}}
    return {"permissions": [{"url_path": {"path": path}}], "principals": [_ANYBODY]}


def _rules(action: str, specs: Iterable[tuple[str, JsonObject]], *, http: bool) -> Iterable[tuple[str, JsonObject]]:
    for name, spec in specs:
        for number, rule in enumerate(spec.get("rules") or ()):
            operations = [each for each in operations_of(rule) if http or action == DENY or not asks_http(each)]
            if operations:
                permissions = [_permission(each, http=http, denies=action == DENY) for each in operations]
                principals = [_principal(each, denies=action == DENY) for each in sources_of(rule)]
                yield f"{name}/{number}", {"permissions": permissions, "principals": principals}


def _permission(operation: JsonObject, *, http: bool, denies: bool) -> JsonObject:
    fields = ("ports", *OF_HTTP) if http else ("ports",)
    parts = [part for field in fields for part in _listed(operation, field, denies=denies)]
    return {"and_rules": {"rules": parts}} if parts else _ANYTHING


def _listed(operation: JsonObject, field: str, *, denies: bool) -> Iterable[JsonObject]:
    make = _MATCHERS[field]
    if wanted := operation.get(field):
        yield {"or_rules": {"rules": [make(each, denies) for each in wanted]}}
    if unwanted := operation.get(negated(field)):
        yield {"not_rule": {"or_rules": {"rules": [make(each, not denies) for each in unwanted]}}}


def _port(pattern: str, _wide: bool) -> JsonObject:  # noqa: FBT001 - one signature for all
    return {"destination_port": int(pattern)}


def _method(pattern: str, _wide: bool) -> JsonObject:  # noqa: FBT001
    return {"header": {"name": ":method", "string_match": _text(pattern)}} if pattern != "*" else _ANYTHING


def _host(pattern: str, _wide: bool) -> JsonObject:  # noqa: FBT001
    return {"header": {"name": ":authority", "string_match": {"safe_regex": {"regex": host_expression(pattern)}}}}


def _path(pattern: str, wide: bool) -> JsonObject:  # noqa: FBT001
    if pattern == "*":
        return _ANYTHING
    if is_plain(pattern):
        return {"url_path": {"path": {**_text(pattern), "ignore_case": wide}}}
    return {"url_path": {"path": {"safe_regex": {"regex": path_expression(pattern, wide=wide)}}}}


_MATCHERS: Mapping[str, Callable[[str, bool], JsonObject]] = {
    "ports": _port,
    "methods": _method,
    "hosts": _host,
    "paths": _path,
}


def _text(pattern: str, before: str = "") -> JsonObject:
    if pattern.startswith("*"):
        return {"suffix": pattern[1:]}
    return {"prefix": before + pattern[:-1]} if pattern.endswith("*") else {"exact": before + pattern}


def _principal(source: JsonObject, *, denies: bool) -> JsonObject:
    parts: list[JsonObject] = []
    for field, make in (("principals", _name), ("namespaces", _namespace)):
        if wanted := source.get(field):
            parts.append({"or_ids": {"ids": [_shown(make(each)) for each in wanted]}})
        if unwanted := source.get(negated(field)):
            parts.append({"not_id": {"or_ids": {"ids": [_shown(make(each)) for each in unwanted]}}})
    if parts and not denies:
        parts.append(_IDENTIFIED)  # who has none is not allowed by who he is not
    return {"and_ids": {"ids": parts}} if parts else _ANYBODY


def _shown(matcher: JsonObject) -> JsonObject:
    return {"authenticated": {"principal_name": matcher}}


def _name(pattern: str) -> JsonObject:
    return {"prefix": _SCHEME} if pattern == "*" else _text(pattern, _SCHEME)


def _namespace(pattern: str) -> JsonObject:
    start = f"{_SCHEME}{TRUST_DOMAIN}/ns/"
    if pattern == "*":
        return {"prefix": start}
    if pattern.startswith("*"):
        return {"safe_regex": {"regex": f"{re.escape(start)}[^/]*{re.escape(pattern[1:])}/sa/.*"}}
    return {"prefix": start + pattern[:-1]} if pattern.endswith("*") else {"prefix": namespace_identity(pattern)}


def _network_filter(action: str, policies: Mapping[str, JsonObject]) -> JsonObject:
    return _filter("network", "stat_prefix", action, policies)


def _http_filter(action: str, policies: Mapping[str, JsonObject]) -> JsonObject:
    return _filter("http", "rules_stat_prefix", action, policies)


def _filter(layer: str, prefix: str, action: str, policies: Mapping[str, JsonObject]) -> JsonObject:
    name = action.lower()
    config = {
        "@type": f"{_FILTERS}{layer}.rbac.v3.RBAC",
        prefix: f"authorization.{name}.",
        "rules": {"action": action, "policies": policies},
    }
    return {"name": f"authorization-{name}", "typed_config": config}
