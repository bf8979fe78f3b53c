"""From a Gateway's listeners and the routes attached to them to what its Envoys are told. Pure.

    listener of a port ─┬─ HTTP ─▶ routes NS/NAME:PORT ────────────────┬─▶ a host each: matches in order ─▶ clusters
                        └─ TLS, a chain a hostname ─▶ routes …/LISTENER ┘

A host is answered by the listener that says most about it, also where it has no route (404). What a rule's reference
does not resolve to is a cluster that there is not, and so 500 for its share; a Service without endpoints is 503.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.network.gateway_api import duration_ms
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.mesh.gateways.attaching import ANY, Attachment, owner_of
from minik8s_modules.mesh.gateways.backends import HTTP2
from minik8s_modules.mesh.gateways.filters import fraction_of, header_fields, redirect_of, rewrite_of
from minik8s_modules.mesh.gateways.listeners import HTTPS, Listener
from minik8s_modules.mesh.gateways.matching import ALL, Order, envoy_match, order_of
from minik8s_modules.mesh.gateways.rules import Routed, Rule
from minik8s_modules.mesh.policies import by_method, retry_policy
from minik8s_modules.mesh.resources import (
    CLUSTER,
    ENDPOINTS,
    LISTENER,
    ROUTES,
    Resource,
    access_log,
    address_of,
    assignment,
    cluster,
    connection_manager,
)

_API = "type.googleapis.com/envoy."
_INVALID = "no-such-backend"
"""A cluster that is never told of: requests that are led to it are answered 500."""
_SUITES = (
    "ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-ECDSA-CHACHA20-POLY1305", "ECDHE-RSA-CHACHA20-POLY1305",
)  # fmt: skip
"""Those of base/tls.py, in Envoy's words."""
_SPOKEN: dict[bool, JsonObject] = {
    False: {"http_protocol_options": {}},
    True: {"http2_protocol_options": {}},
}


class Place(NamedTuple):
    """Where requests were made to, as far as redirects lead back there."""

    port: int
    scheme: str


def gateway_resources(
    gateway: Key,
    listeners: Sequence[Listener],
    attached: Sequence[Attachment],
    routes: Mapping[Key, Routed],
    *,
    ipv6: bool = False,
) -> list[Resource]:
    """Return what a Gateway's Envoys are told; with ``ipv6`` they listen at their Pods' IPv6 addresses, too."""
    ports: dict[int, list[Listener]] = defaultdict(list)
    for each in listeners:
        if each.is_served:
            ports[each.port].append(each)
    found = [Resource(kind, name, body, str(gateway)) for kind, name, body in _clusters(routes.values())]
    for port, of_port in sorted(ports.items()):
        for kind, name, body in _of_port(gateway, port, of_port, attached, routes):
            found.append(Resource(kind, name, body, str(gateway)))
            if ipv6 and kind == LISTENER:  # one of its own: a kernel without IPv6 would have Envoy refuse both
                second = {**body, "name": f"{name}/ipv6", "address": address_of("::", port)}
                found.append(Resource(kind, f"{name}/ipv6", second, str(gateway)))
    return found


def _clusters(routes: Iterable[Routed]) -> Iterator[tuple[str, str, JsonObject]]:
    found = {
        backend.cluster: backend
        for routed in routes
        for rule in routed.rules
        for backend in (*rule.backends, *rule.mirrors)
        if backend is not None
    }
    for name, backend in sorted(found.items()):
        yield CLUSTER, name, cluster(name, {"explicit_http_config": _SPOKEN[backend.protocol == HTTP2]})
        yield ENDPOINTS, name, assignment(name, backend.branch)


def _of_port(
    gateway: Key,
    port: int,
    listeners: Sequence[Listener],
    attached: Sequence[Attachment],
    routes: Mapping[Key, Routed],
) -> Iterator[tuple[str, str, JsonObject]]:
    name = f"{gateway}:{port}"
    if listeners[0].protocol == HTTPS:
        chains = [_chain(f"{name}/{each.name}", each) for each in listeners]
        groups = [(f"{name}/{each.name}", [each]) for each in listeners]
        inspector = {
            "name": "tls_inspector",
            "typed_config": {"@type": f"{_API}extensions.filters.listener.tls_inspector.v3.TlsInspector"},
        }
    else:
        chains, groups, inspector = [{"filters": [_http(name)]}], [(name, [*listeners])], None
    yield (
        LISTENER,
        name,
        {
            "name": name,
            "address": address_of("0.0.0.0", port),  # noqa: S104 - of a Pod
            "per_connection_buffer_limit_bytes": 32768,
            "filter_chains": chains,
            **({"listener_filters": [inspector]} if inspector else {}),
        },
    )
    for route_name, group in groups:
        yield ROUTES, route_name, _routes(route_name, group, attached, routes)


def _chain(name: str, listener: Listener) -> JsonObject:
    match = {"filter_chain_match": {"server_names": [listener.hostname]}} if listener.hostname else {}
    certificates = [
        {"certificate_chain": {"inline_string": each.chain}, "private_key": {"inline_string": each.key}}
        for each in listener.certificates
    ]
    context = {
        "@type": f"{_API}extensions.transport_sockets.tls.v3.DownstreamTlsContext",
        "common_tls_context": {
            "tls_certificates": certificates,
            "alpn_protocols": ["h2", "http/1.1"],
            "tls_params": {"tls_minimum_protocol_version": "TLSv1_2", "cipher_suites": [*_SUITES]},
        },
    }
    return {**match, "filters": [_http(name)], "transport_socket": {"name": "tls", "typed_config": context}}


def _http(name: str) -> JsonObject:
    # an edge: the caller's address is recorded, paths are made plain, and who sends no headers is let go
    own = {
        "use_remote_address": True,
        "normalize_path": True,
        "merge_slashes": True,
        "request_headers_timeout": "30s",
        "access_log": [access_log()],
    }
    return {"name": "http", "typed_config": {**connection_manager(name, []), **own}}


def _routes(
    name: str, listeners: Sequence[Listener], attached: Sequence[Attachment], routes: Mapping[Key, Routed]
) -> JsonObject:
    of_name = {each.name: each for each in listeners}
    by_hostname: dict[str, list[tuple[Order, JsonObject]]] = {each.hostname: [] for each in listeners}
    for each in attached:
        listener = of_name.get(each.listener)
        for hostname in each.hostnames if listener is not None else ():
            if owner_of(hostname, listeners) == each.listener:
                matched = by_hostname.setdefault(hostname, [])
                matched += matched_routes(routes[each.route], _place(listener or listeners[0]))
    hosts = [host_of(hostname, matched) for hostname, matched in sorted(by_hostname.items())]
    return {"name": name, "virtual_hosts": hosts, "ignore_port_in_host_matching": True}


def _place(listener: Listener) -> Place:
    return Place(listener.port, "https" if listener.protocol == HTTPS else "http")


def host_of(hostname: str, matched: Iterable[tuple[Order, JsonObject]]) -> JsonObject:
    """Return what answers requests to a hostname: routes in the order in which they are tried."""
    ordered = [route for _order, route in sorted(matched, key=lambda each: each[0])]
    domain = "*" if hostname == ANY else hostname
    return {"name": domain, "domains": [domain], "routes": ordered, "retry_policy": retry_policy({})}


def matched_routes(routed: Routed, place: Place) -> Iterator[tuple[Order, JsonObject]]:
    """Yield Envoy's routes for each match of an HTTPRoute, with their place among those of others."""
    for number, rule in enumerate(routed.rules):
        for turn, match in enumerate(rule.declared.get("matches") or [ALL]):
            name = str(objects.key(routed.route))
            for route in _tried_again({"name": name, **_route(rule, match, place)}):
                yield order_of(match, routed.route, number, turn), route


def _tried_again(route: JsonObject) -> list[JsonObject]:
    """Return a route, and before it the same one for requests that may be sent twice, where both lead to Pods."""
    action = route.get("route")
    return by_method(route, {}) if action and "retry_policy" not in action else [route]


def _route(rule: Rule, match: JsonObject, place: Place) -> JsonObject:
    filters = rule.declared.get("filters") or []
    route = {"match": envoy_match(match), **header_fields(filters)}
    redirect = redirect_of(filters, match, *place)
    if redirect is not None:
        return {**route, "redirect": redirect}
    weights = _weights(rule)
    if not any(each["weight"] for each in weights):
        return {**route, "direct_response": {"status": 500}}
    action = {
        "weighted_clusters": {"clusters": weights},
        "cluster_not_found_response_code": "INTERNAL_SERVER_ERROR",
        **rewrite_of(filters, match),
        **_timeouts(rule.declared.get("timeouts") or {}),
        **_mirrors(rule, filters),
    }
    return {**route, "route": action}


def _weights(rule: Rule) -> list[JsonObject]:
    refs = rule.declared.get("backendRefs") or []
    return [
        {
            "name": backend.cluster if backend is not None else _INVALID,
            "weight": 1 if ref.get("weight") is None else ref["weight"],
            **header_fields(ref.get("filters") or []),
        }
        for ref, backend in zip(refs, rule.backends, strict=True)
    ]


def _mirrors(rule: Rule, filters: Sequence[JsonObject]) -> JsonObject:
    asked = [each["requestMirror"] for each in filters if each.get("requestMirror")]
    mirrors = [
        {
            "cluster": backend.cluster,
            "runtime_fraction": {"default_value": fraction_of(mirror)},
            "disable_shadow_host_suffix_append": True,
        }
        for mirror, backend in zip(asked, rule.mirrors, strict=True)
        if backend is not None
    ]
    return {"request_mirror_policies": mirrors} if mirrors else {}


def _timeouts(declared: JsonObject) -> JsonObject:
    """Return how long an answer, and a single try for it, may take; without a limit, as long as the Pod likes."""
    whole, single = (duration_ms(declared.get(each) or "0s") for each in ("request", "backendRequest"))
    timeouts: JsonObject = {"timeout": _seconds(whole)}
    return timeouts | ({"retry_policy": {**retry_policy({}), "per_try_timeout": _seconds(single)}} if single else {})


def _seconds(time_ms: int) -> str:
    whole, rest = divmod(time_ms, 1000)
    return f"{whole}.{rest:03}s" if rest else f"{whole}s"
