"""Where the rules of HTTPRoutes lead: Services with their endpoints, or why a reference leads nowhere. Pure.

Endpoints are those that sidecars have, Pods that a RollingUpdate withholds left out. VirtualServices decide about
requests of their own namespace's Pods alone, so not about these.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.network.gateway_api import GATEWAY_KINDS
from minik8s_modules.api.network.references import Reference, permitted
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.mesh.endpoints import Endpoint
from minik8s_modules.mesh.gateways.listeners import Why
from minik8s_modules.mesh.mapping import SERVICE_NAME, Branch, Declared, decide_mapping

HTTP1, HTTP2 = "http1", "http2"
_PROTOCOLS = {
    None: HTTP1,
    "http": HTTP1,
    "kubernetes.io/ws": HTTP1,
    "kubernetes.io/h2c": HTTP2,
    "grpc": HTTP2,
}
_NO_ADDRESS = "0.0.0.0"  # noqa: S104 - a Service without an address is looked up by one that nobody has


class Backend(NamedTuple):
    """A port of a Service: its cluster's name, what it speaks, and its endpoints."""

    cluster: str
    protocol: str
    branch: Branch


class Backends:
    """The Services of the cluster, as rules refer to them."""

    def __init__(
        self,
        services: Iterable[JsonObject],
        slices: Iterable[JsonObject],
        updates: Iterable[JsonObject],
        grants: Sequence[JsonObject],
    ) -> None:
        self._services = {objects.key(each): each for each in services}
        self._slices: dict[Key, list[JsonObject]] = defaultdict(list)
        for each in slices:
            self._slices[Key(objects.namespace(each), objects.labels(each).get(SERVICE_NAME, ""))].append(each)
        self._updates: dict[str, list[JsonObject]] = defaultdict(list)
        for each in updates:
            self._updates[objects.namespace(each)].append(each)
        self._grants = grants
        self._found: dict[tuple[Key, int], Backend | Why] = {}

    def service(self, key: Key) -> JsonObject | None:
        """Return a Service; None where there is none."""
        return self._services.get(key)

    def resolve(self, ref: JsonObject, route: JsonObject, own: Key | None = None) -> Backend | Why:
        """Return what a backendRef of a route refers to, or why it leads nowhere.

        ``own`` is a Service that needs no grant: the one whose requests the route leads within the mesh.
        """
        group, kind, space = ref.get("group") or "", ref.get("kind") or "Service", objects.namespace(route)
        if (group, kind) != ("", "Service"):
            return "InvalidKind", f"requests go to Services, not to a {kind} of group {group!r}"
        key = Key(ref.get("namespace") or space, ref["name"])
        wanted = Reference(GATEWAY_KINDS.routes.kind, space, "", "Service", *key)
        if key != own and not permitted(wanted, self._grants):
            message = (
                f"no ReferenceGrant of namespace {key.namespace} lets HTTPRoutes of {space} lead to Service {key.name}"
            )
            return "RefNotPermitted", message
        place = (key, ref.get("port") or 0)
        if place not in self._found:
            self._found[place] = self._look(*place)
        return self._found[place]

    def _look(self, key: Key, number: int) -> Backend | Why:
        service = self._services.get(key)
        if service is None:
            return "BackendNotFound", f"there is no Service {key}"
        declared = objects.spec(service)
        if declared.get("type") == "ExternalName":
            return "InvalidKind", f"Service {key} is a name (ExternalName), which has no endpoints"
        ports = [each for each in declared.get("ports") or [] if each["port"] == number and is_tcp(each)]
        if not ports:
            return "BackendNotFound", f"Service {key} has no TCP port {number}"
        protocol = _PROTOCOLS.get(ports[0].get("appProtocol"))
        if protocol is None:
            return "UnsupportedProtocol", f"port {number} of Service {key} speaks {ports[0]['appProtocol']}"
        return Backend(f"{key.name}.{key.namespace}:{number}", protocol, self.branch(key, ports[0]))

    def branch(self, key: Key, port: JsonObject) -> Branch:
        """Return the way to all Pods of a port of a Service that there is."""
        return Branch("", None, tuple(self._endpoints(key, self._services[key], port)))

    def _endpoints(self, key: Key, service: JsonObject, port: JsonObject) -> Iterator[Endpoint]:
        declared = objects.spec(service)
        address = declared.get("clusterIP") or "None"
        plain = {"clusterIP": _NO_ADDRESS if address == "None" else address, "ports": [port]}
        updates = [each for each in self._updates[key.namespace] if objects.spec(each).get("serviceRef") == key.name]
        mapped = decide_mapping(Declared([{**service, "spec": plain}], self._slices[key], (), (), updates))
        return (each for found in mapped.ports.values() for each in found.branches[0].endpoints)


def is_tcp(port: Mapping[str, str]) -> bool:
    """Return whether a port of a Service is one of TCP; one of UDP may have the same number."""
    return (port.get("protocol") or "TCP") == "TCP"
