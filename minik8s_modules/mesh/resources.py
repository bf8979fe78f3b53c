"""From the decision on a port of a Service to what sidecars are told: resources of Envoy, as in its YAML. Pure.

A port of a Service is a listener, which no socket is opened for: Envoy's one outbound listener hands it the connections
that were made to the Service's address. What speaks HTTP there takes a route; everything else goes to a Pod by weight.

    listener web.shop:80 ─HTTP─▶ route web.shop:80 ─▶ cluster web.shop:80 or web.shop:80/SUBSET ─▶ endpoints
                         ─else─▶ cluster web.shop:80, or on to the Service where requests are told apart by their path

A request keeps what the caller wrote, with X-Forwarded-Proto besides, and takes as long as the Pod likes. Only a
connection that could not be made, or one that ended before the request was sent, is tried again, with another Pod; so
is a GET whose connection ended before the answer began, as that of a Pod that is killed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from minik8s_modules.api.network.url_patterns import whole_path
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.mesh.mapping import Branch, Port
from minik8s_modules.mesh.policies import by_method, fault_filters, mirror_policies, retry_policy, route_timeout

API = "type.googleapis.com/envoy."
CLUSTER = f"{API}config.cluster.v3.Cluster"
ENDPOINTS = f"{API}config.endpoint.v3.ClusterLoadAssignment"
LISTENER = f"{API}config.listener.v3.Listener"
ROUTES = f"{API}config.route.v3.RouteConfiguration"
TYPES = (CLUSTER, ENDPOINTS, LISTENER, ROUTES)
"""In the order in which a sidecar is told of what is new: nothing refers to what it does not have yet."""
PASSTHROUGH = "passthrough"
"""A cluster that every sidecar has of itself: on to where the caller wanted to go."""
NO_ENDPOINT = '{"error":"no available endpoint"}'
FROM_PILOT: JsonObject = {"ads": {}, "resource_api_version": "V3"}
_UNLIMITED = 2**32 - 1
AS_ASKED: JsonObject = {"use_downstream_protocol_config": {"http_protocol_options": {}, "http2_protocol_options": {}}}
_SNIFFED_S = "1s"
"""How long a caller may be silent before it is taken for one whose server speaks first."""


class Resource(NamedTuple):
    """One resource, and the address (ADDRESS:PORT) it is about.

    A sidecar is told of a cluster that is ``on_demand`` when it asks for it by name, as for its endpoints.
    """

    type_url: str
    name: str
    body: JsonObject
    place: str
    on_demand: bool = False


def version_of(body: JsonObject) -> str:
    """Return the version of a resource, which pilots agree on: the order of a map in protobuf's bytes is by process."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16]


def resources(namespace: str, place: str, port: Port) -> list[Resource]:
    """Return what sidecars of Pods in ``namespace`` are told of a port of one of its Services."""
    name = f"{port.service}.{namespace}:{port.port}"
    return [Resource(type_url, each, body, place) for type_url, each, body in _of_port(name, port)]


def _of_port(name: str, port: Port) -> Iterator[tuple[str, str, JsonObject]]:
    whole = [branch for branch in port.branches if not branch.subset]
    # a subset that is chosen in several ways is one cluster
    clusters = {_cluster_of(name, each): each for each in (*port.branches, *filter(None, [port.mirror]))}
    for each, branch in clusters.items():
        yield CLUSTER, each, cluster(each, AS_ASKED)
        yield ENDPOINTS, each, assignment(each, branch)
    yield LISTENER, name, service_listener(name, port, name if whole else PASSTHROUGH)
    yield ROUTES, name, _routes(name, port)


def _cluster_of(name: str, branch: Branch) -> str:
    return f"{name}/{branch.subset}" if branch.subset else name


def cluster(name: str, spoken: JsonObject) -> JsonObject:
    """Return a cluster whose endpoints are told apart from it; ``spoken`` is the version of HTTP."""
    return {
        "name": name,
        "type": "EDS",
        "eds_cluster_config": {"eds_config": FROM_PILOT},
        "connect_timeout": "5s",
        "lb_policy": "ROUND_ROBIN",
        "circuit_breakers": {
            "thresholds": [
                {"max_connections": _UNLIMITED, "max_pending_requests": _UNLIMITED, "max_requests": _UNLIMITED,
                 "max_retries": _UNLIMITED}
            ]
        },
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": f"{API}extensions.upstreams.http.v3.HttpProtocolOptions",
                **spoken,
            }
        },
    }  # fmt: skip


def assignment(name: str, branch: Branch) -> JsonObject:
    """Return the endpoints of a cluster."""
    weights: dict[tuple[str, int], int] = {}
    for each in branch.endpoints:  # a Pod of two subsets has both shares
        weights[each.ip, each.port] = weights.get((each.ip, each.port), 0) + each.weight
    endpoints = [_endpoint(*place, weight) for place, weight in weights.items() if weight]
    return {"cluster_name": name, "endpoints": [{"lb_endpoints": endpoints}] if endpoints else []}


def _endpoint(ip: str, port: int, weight: int) -> JsonObject:
    return {"endpoint": {"address": address_of(ip, port)}, "load_balancing_weight": weight}


def address_of(ip: str, port: int) -> JsonObject:
    """Return an address as Envoy has it."""
    return {"socket_address": {"address": ip, "port_value": port}}


def service_listener(name: str, port: Port, otherwise: str) -> JsonObject:
    """Return the listener of a port; ``otherwise`` is the cluster of what is no HTTP."""
    return {
        "name": name,
        "address": address_of(port.address, port.port),
        "bind_to_port": False,
        **sniffing(),
        "filter_chains": [
            {
                "filter_chain_match": {"application_protocols": ["http/1.0", "http/1.1", "h2c"]},
                "filters": [{"name": "http", "typed_config": plain_http(name, fault_filters(port.policy or {}))}],
            },
            {"filters": [{"name": "tcp", "typed_config": tcp_proxy(name, otherwise)}]},
        ],
    }


def sniffing() -> JsonObject:
    """Return the fields of a listener that tell HTTP by its first bytes."""
    sniffer = f"{API}extensions.filters.listener.http_inspector.v3.HttpInspector"
    return {
        "listener_filters": [{"name": "http_inspector", "typed_config": {"@type": sniffer}}],
        "listener_filters_timeout": _SNIFFED_S,
        "continue_on_listener_filters_timeout": True,
    }


def tcp_proxy(name: str, to: str) -> JsonObject:
    """Return what leads connections to a cluster."""
    return {
        "@type": f"{API}extensions.filters.network.tcp_proxy.v3.TcpProxy",
        "stat_prefix": name,
        "cluster": to,
        "idle_timeout": "0s",
    }


def plain_http(name: str, filters: Sequence[JsonObject]) -> JsonObject:
    """Return what serves HTTP in a sidecar, by the routes ``name``."""
    own = {"stream_idle_timeout": "0s", "skip_xff_append": True, "access_log": [access_log()]}
    return {**connection_manager(name, filters), **own}


def connection_manager(name: str, filters: Sequence[JsonObject]) -> JsonObject:
    """Return what serves HTTP by the routes ``name``, with filters before the one that follows them."""
    router = {"@type": f"{API}extensions.filters.http.router.v3.Router", "suppress_envoy_headers": True}
    nobody = {
        "filter": {"response_flag_filter": {"flags": ["UH"]}},
        "body": {"inline_string": NO_ENDPOINT},
        "body_format_override": {
            "text_format_source": {"inline_string": "%LOCAL_REPLY_BODY%"},
            "content_type": "application/json",
        },
    }
    return {
        "@type": f"{API}extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": name,
        "rds": {"config_source": FROM_PILOT, "route_config_name": name},
        "http_filters": [*filters, {"name": "router", "typed_config": router}],
        "http_protocol_options": {"accept_http_10": True},
        "upgrade_configs": [{"upgrade_type": "websocket"}],
        "generate_request_id": False,
        "server_header_transformation": "PASS_THROUGH",
        "local_reply_config": {"mappers": [nobody]},
    }


def access_log() -> JsonObject:
    """Return the log of requests: JSON, a line each, on standard output."""
    fields: Mapping[str, str] = {
        "time": "%START_TIME%",
        "service": "%ROUTE_NAME%",
        "method": "%REQ(:METHOD)%",
        "path": "%PATH(NQ)%",
        "code": "%RESPONSE_CODE%",
        "flags": "%RESPONSE_FLAGS%",
        "duration_ms": "%DURATION%",
        "bytes_in": "%BYTES_RECEIVED%",
        "bytes_out": "%BYTES_SENT%",
        "cluster": "%UPSTREAM_CLUSTER%",
        "pod": "%UPSTREAM_HOST%",
    }
    return {
        "name": "stdout",
        "typed_config": {
            "@type": f"{API}extensions.access_loggers.stream.v3.StdoutAccessLog",
            "log_format": {"json_format": fields},
        },
    }


def _routes(name: str, port: Port) -> JsonObject:
    policy = port.policy or {}
    routes = [each for branch in port.branches for each in by_method(_route(name, branch, port), policy)]
    if all(branch.subset for branch in port.branches):
        routes.append(_nowhere(name))
    again = retry_policy(policy)
    return {"name": name, "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes, "retry_policy": again}]}


def _route(name: str, branch: Branch, port: Port) -> JsonObject:
    policy = port.policy or {}
    match: JsonObject = {"prefix": "/"} if branch.url is None else {"safe_regex": {"regex": whole_path(branch.url)}}
    if branch.headers:
        match["headers"] = [{"name": each, "string_match": {"exact": value}} for each, value in branch.headers]
    copies = mirror_policies(policy, _cluster_of(name, port.mirror)) if port.mirror is not None else {}
    route = {"cluster": _cluster_of(name, branch), "timeout": route_timeout(policy), **copies}
    return {"name": name, "match": match, "route": route}


def _nowhere(name: str) -> JsonObject:
    kind = {
        "header": {"key": "content-type", "value": "application/json"},
        "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
    }
    return {
        "name": name,
        "match": {"prefix": "/"},
        "direct_response": {"status": 503, "body": {"inline_string": NO_ENDPOINT}},
        "response_headers_to_add": [kind],
    }
