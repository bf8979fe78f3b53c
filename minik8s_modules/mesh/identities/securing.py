"""What sidecars are told of mutual TLS, in Envoy's YAML. Pure.

    caller ─▶ cluster of a Namespace that has it ─ endpoint of a Pod that can ─▶ TLS, ALPN minik8s, own certificate
                                                 └ any other endpoint ────────▶ as it is
    callee: 15008 ─ TLS with a certificate of the mesh ─▶ application
                  └ anything else ─▶ application (permissive), or nowhere (strict)

A caller takes an answer of no other namespace than that of the Service: addresses of Pods that are gone are given to
others. Which service accounts may call, and what, is asked where AuthorizationPolicies select the Pod
(mesh/authorizations).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.mutual_tls import MTLS, PERMISSIVE, STRICT, Peer, namespace_identity, peer
from minik8s_modules.mesh.authorizations.filters import delayed, http_filter, network_filters
from minik8s_modules.mesh.authorizations.guards import OWN_PORTS, Guard
from minik8s_modules.mesh.resources import (
    API,
    CLUSTER,
    ENDPOINTS,
    FROM_PILOT,
    LISTENER,
    PASSTHROUGH,
    Resource,
    address_of,
    tcp_proxy,
)

SECRET = f"{API}extensions.transport_sockets.tls.v3.Secret"
INBOUND = "mutual-tls"
"""The listener that a pilot tells each sidecar that can."""
INBOUND_IPV6 = "mutual-tls-ipv6"
"""The same at the Pod's IPv6 address, if it has one: a kernel without IPv6 would have Envoy refuse it."""
PLAIN = "plain"
"""Its chain of what is no TLS of the mesh, which a strict one lacks."""
IDENTITY, ROOTS = "identity", "roots"
"""Names of secrets: a sidecar's own certificate with its key, and what it trusts. No name says whose."""
PORT = 15008
"""Where nodes lead what comes in (module_utils/minik8s/network/interception.py)."""
_ALPN = "minik8s-mesh"
"""Told apart by it: programs that speak TLS themselves go on to, and are passed on as they are."""
_OFFERED: JsonObject = {"alpn_protocols": [_ALPN]}
_ANY, _ANY_IPV6 = "0.0.0.0", "::"  # noqa: S104 - of a Pod
SOCKETS = "transport_socket_matches"
"""Field of a cluster that has endpoints that are called by TLS."""
_MATCH = "envoy.transport_socket_match"
_PEEKED_S = "1s"
"""How long a caller may be silent before it is taken for one whose server speaks first."""


class Peers(NamedTuple):
    """Who speaks TLS.

    Attributes:
        namespaces: Namespaces that have it.
        pods: by namespace and name.
        addresses: of Pods that others are to speak TLS with, each with its Namespace: elsewhere it is no such Pod's.
        cannot: by namespace and name, the labels of Pods that have no sidecar which speaks TLS.
    """

    namespaces: Mapping[str, str] = MappingProxyType({})
    """Their modes."""
    pods: Mapping[str, Mapping[str, Peer]] = MappingProxyType({})
    addresses: frozenset[tuple[str, str]] = frozenset()
    cannot: Mapping[str, Mapping[str, Mapping[str, str]]] = MappingProxyType({})

    def mode(self, namespace: str, pod: str, uid: str = "") -> str:
        """Return how a Pod that can is to take connections; strictly one of a Namespace that has it, until it is known.

        Its own label may say so, whatever its Namespace's does. Whether a Namespace is known to have it is not asked
        here (``mesh.identity``).
        """
        found = self.pods.get(namespace, {}).get(pod)
        if found is not None and found.uid == uid:
            return found.mode
        return STRICT if namespace in self.namespaces else PERMISSIVE

    def has_ipv6(self, namespace: str, pod: str, uid: str = "") -> bool:
        """Return whether a Pod is known to have an address of IPv6."""
        found = self.pods.get(namespace, {}).get(pod)
        return found is not None and found.uid == uid and found.has_ipv6

    def labels(self, namespace: str, pod: str, uid: str = "") -> Mapping[str, str] | None:
        """Return the labels of a Pod that can; None while it is not known."""
        found = self.pods.get(namespace, {}).get(pod)
        return dict(found.labels) if found is not None and found.uid == uid else None

    def other_addresses(self, before: Peers) -> frozenset[tuple[str, str]] | None:
        """Return the addresses that are called otherwise than before; None where any may be, as Namespaces changed."""
        return self.addresses ^ before.addresses if self.namespaces.keys() == before.namespaces.keys() else None

    def other_namespaces(self, before: Peers) -> frozenset[str]:
        """Return the Namespaces whose Pods take connections, or are called, otherwise than before."""
        found = {namespace for namespace, _address in self.addresses ^ before.addresses}
        pairs = ((self.namespaces, before.namespaces), (self.pods, before.pods), (self.cannot, before.cannot))
        for mine, theirs in pairs:
            found |= {each for each in mine.keys() | theirs.keys() if mine.get(each) != theirs.get(each)}
        return frozenset(found)


NOBODY = Peers()
_ENDED = {"Succeeded", "Failed"}


def peers_of(spaces: Mapping[str, Mapping[str, str]], pods: Iterable[JsonObject]) -> Peers:
    """Return who speaks TLS, by the labels of Namespaces and the Pods in them."""
    by_space: dict[str, dict[str, Peer]] = {}
    addresses: set[tuple[str, str]] = set()
    cannot: dict[str, dict[str, Mapping[str, str]]] = {}
    for pod in pods:
        space = objects.namespace(pod)
        found = peer(pod, spaces.get(space, {}))
        if objects.status(pod).get("phase") in _ENDED:
            continue
        if found is None:
            cannot.setdefault(space, {})[objects.name(pod)] = objects.labels(pod)
            continue
        labels = tuple(sorted(objects.labels(pod).items()))
        by_space.setdefault(space, {})[objects.name(pod)] = found._replace(labels=labels)
        if found.is_called_by_tls:
            addresses |= {(space, str(each["ip"])) for each in objects.status(pod).get("podIPs") or []}
    return Peers({name: labels[MTLS] for name, labels in spaces.items()}, by_space, frozenset(addresses), cannot)


def secured(resources: Iterable[Resource], peers: Peers, own: str) -> list[Resource]:
    """Return resources as they are told where some Namespaces have mutual TLS.

    ``own`` is the Namespace of those that are called by their Services' addresses, as in a crowd.
    """
    if not peers.namespaces:
        return [*resources]
    return [each._replace(body=_secured(each, peers, own)) for each in resources]


def _secured(resource: Resource, peers: Peers, own: str) -> JsonObject:
    body, space = resource.body, _namespace_of(resource.name, own)
    if resource.type_url == CLUSTER and space in peers.namespaces:
        return {**body, SOCKETS: _sockets(space)}
    if resource.type_url == ENDPOINTS and body["endpoints"]:
        return {**body, "endpoints": [{"lb_endpoints": [_marked(each, space, peers) for each in _endpoints(body)]}]}
    return body


def _namespace_of(name: str, own: str) -> str:
    # SERVICE.NAMESPACE:PORT, perhaps with a Subset behind it; in a crowd ADDRESS:PORT
    service, _, namespace = name.partition(":")[0].partition(".")
    return own if service.isdecimal() else namespace


def _endpoints(assignment: JsonObject) -> Iterator[JsonObject]:
    return (one for group in assignment["endpoints"] for one in group["lb_endpoints"])


def _address(endpoint: JsonObject) -> str:
    return str(endpoint["endpoint"]["address"]["socket_address"]["address"])


def _marked(endpoint: JsonObject, namespace: str, peers: Peers) -> JsonObject:
    if (namespace, _address(endpoint)) not in peers.addresses:
        return endpoint
    return {**endpoint, "metadata": {"filter_metadata": {_MATCH: {"mtls": "yes"}}}}


def _sockets(namespace: str) -> list[JsonObject]:
    wanted = {"san_type": "URI", "matcher": {"prefix": namespace_identity(namespace)}}
    context = {
        "@type": f"{API}extensions.transport_sockets.tls.v3.UpstreamTlsContext",
        "common_tls_context": {**_common({"match_typed_subject_alt_names": [wanted]}), **_OFFERED},
    }
    plain = {"@type": f"{API}extensions.transport_sockets.raw_buffer.v3.RawBuffer"}
    return [
        {"name": "mtls", "match": {"mtls": "yes"}, "transport_socket": {"name": "tls", "typed_config": context}},
        {"name": "plain", "match": {}, "transport_socket": {"name": "raw_buffer", "typed_config": plain}},
    ]


def _common(validation: JsonObject) -> JsonObject:
    return {
        "tls_params": {"tls_minimum_protocol_version": "TLSv1_3", "tls_maximum_protocol_version": "TLSv1_3"},
        "tls_certificate_sds_secret_configs": [_told(IDENTITY)],
        "combined_validation_context": {
            "default_validation_context": validation,
            "validation_context_sds_secret_config": _told(ROOTS),
        },
    }


def _told(name: str) -> JsonObject:
    # for ever: what waits for a certificate is not there before, instead of there without one
    return {"name": name, "sds_config": {**FROM_PILOT, "initial_fetch_timeout": "0s"}}


def inbound(mode: str, *, ipv6: bool = False, guard: Guard | None = None) -> Resource:
    """Return the listener of what comes in to a Pod, and what ``guard`` lets pass.

    Listener filters are those of both modes: a change of the mode is one of chains, which ends no connection that stays
    allowed. What goes to the Pod's own IPv6 address comes here by no rule: it needs no address of its own to go from.
    """
    name, address, application = (INBOUND_IPV6, _ANY_IPV6, PASSTHROUGH) if ipv6 else (INBOUND, _ANY, "application")
    own = [
        {"name": f"own-{port}", "filter_chain_match": {"destination_port": port}, "filters": [_to("nowhere")]}
        for port in OWN_PORTS
    ]
    chains = [*_chains(mode, [*network_filters(guard), _to(application, **delayed(guard))])]
    if guard is not None:
        for port in guard.http_ports:
            chains += _chains(mode, [http_filter(guard, application)], port)
    filters = f"{API}extensions.filters.listener."
    body = {
        "name": name,
        "traffic_direction": "INBOUND",
        "address": address_of(address, PORT),
        "listener_filters": [
            {"name": "original_dst", "typed_config": {"@type": f"{filters}original_dst.v3.OriginalDst"}},
            {"name": "tls_inspector", "typed_config": {"@type": f"{filters}tls_inspector.v3.TlsInspector"}},
        ],
        "listener_filters_timeout": _PEEKED_S,
        "continue_on_listener_filters_timeout": True,
        "filter_chains": [*own, *chains],
    }
    return Resource(LISTENER, name, body, "")


def _chains(mode: str, filters: Sequence[JsonObject], port: int = 0) -> Iterator[JsonObject]:
    """Yield the ways in, of one port or of those that have none of their own.

    At a port of HTTP, nothing is taken of what the caller offers: Envoy takes a protocol that was agreed on and is not
    h2 for HTTP/1.1, and looks at the first bytes only where none was.
    """
    context = {
        "@type": f"{API}extensions.transport_sockets.tls.v3.DownstreamTlsContext",
        "require_client_certificate": True,
        "common_tls_context": {**_common({}), **({} if port else _OFFERED)},
    }
    number, at = (f"-{port}", {"destination_port": port}) if port else ("", {})
    yield {
        "name": f"tls{number}",
        "filter_chain_match": {**at, "transport_protocol": "tls", "application_protocols": [_ALPN]},
        "filters": [*filters],
        "transport_socket": {"name": "tls", "typed_config": context},
    }
    if mode != STRICT:
        yield {"name": f"{PLAIN}{number}", **({"filter_chain_match": at} if at else {}), "filters": [*filters]}


def _to(cluster: str, **more: Any) -> JsonObject:
    return {"name": "tcp", "typed_config": {**tcp_proxy("inbound", cluster), **more}}


def secrets(chain: str, key: str, roots: str) -> list[Resource]:
    """Return a sidecar's secrets: its certificate and private key, and what it trusts, all PEM."""
    own = {"certificate_chain": {"inline_string": chain}, "private_key": {"inline_string": key}}
    return [
        Resource(SECRET, IDENTITY, {"name": IDENTITY, "tls_certificate": own}, ""),
        Resource(SECRET, ROOTS, {"name": ROOTS, "validation_context": {"trusted_ca": {"inline_string": roots}}}, ""),
    ]
