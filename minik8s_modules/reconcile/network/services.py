"""From Services and EndpointSlices to the entries of each node's section ``services``. Pure.

A service port is one entry, the same object on every node unless a traffic policy is Local; so a change of one Service
is one changed key a node. Which endpoints count: the ready ones; when none is, those that still serve while they end
(KEP-1669). Source of the rules: kubernetes ``pkg/proxy/topology.go``.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Container, Iterable, Mapping
from typing import Any, NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.network.balancing import Balancing
from minik8s_modules.api.network.load_balancers import NOWHERE, Outside, decide_outside, is_free_port, serving_nodes
from minik8s_modules.api.network.service_ranges import addresses_of
from minik8s_modules.api.network.surroundings import World, family_of
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.places import place
from minik8s_modules.module_utils.minik8s.entries.services import DataplaneEntry, ServiceEntry
from minik8s_modules.reconcile.network.dataplane import DATAPLANE
from minik8s_modules.reconcile.values.values import Entries

SERVICE_NAME = "kubernetes.io/service-name"
ZONE = "topology.kubernetes.io/zone"
OF_IPV6 = "/IPv6"
"""What the keys of ports at addresses of IPv6 end with; those of IPv4 are the same with and without them."""
API_PORT = "default/kubernetes:https"
"""The key of API servers, who also answer for the nodes' kubelets (apiserver/nodes/kubelet_hosts.py)."""
_DEFAULT_AFFINITY_S = 10800
_Place = tuple[str, int]


class _Endpoint(NamedTuple):
    """One address and port behind a service port."""

    place: _Place
    node: str
    ready: bool
    fallback: bool = False
    zones: tuple[str, ...] = ()
    """The zones whose clients it is meant for."""


class ServicePort(NamedTuple):
    """One port of a Service: its entry, and where traffic policies make nodes differ."""

    entry: ServiceEntry
    """With the endpoints of the whole cluster."""
    internal: Mapping[str, list[_Place]] | None
    """The endpoints of each node for internalTrafficPolicy Local, None for Cluster."""
    external: Mapping[str, list[_Place]] | None
    """The same for externalTrafficPolicy; only where it is reached from outside."""
    close: Mapping[str, list[_Place]] | None = None
    """The endpoints that are meant for each zone; None where clients of all zones have all."""

    @property
    def alike(self) -> bool:
        """Whether every node has the same entry."""
        return self.internal is None and self.external is None and self.close is None

    def on(self, node: str, zone: str = "") -> ServiceEntry:
        """Return the entry of one node, which is in a zone; one without endpoints of its own has those of all."""
        close = (self.close or {}).get(zone)
        entry = self.entry | {"endpoints": _listed(close)} if close else self.entry
        everywhere = entry["endpoints"]
        if self.internal is not None:
            entry = entry | {"endpoints": _listed(self.internal.get(node, []))}
        if self.external is not None:
            entry = entry | {"node_endpoints": _listed(self.external.get(node, [])), "keep_source": True}
        elif self.internal is not None and _is_outside(entry):
            entry = entry | {"node_endpoints": everywhere}
        return entry


def _is_outside(entry: ServiceEntry) -> bool:
    """Return whether a port is reached from outside the cluster."""
    return bool(entry.get("node_port") or entry.get("outside") or entry.get("at_nodes"))


class Balancers(NamedTuple):
    """What addresses from outside are decided by."""

    balancing: Balancing = Balancing()
    world: World = World()

    def outside(self, service: JsonObject, slices: Iterable[JsonObject]) -> Outside:
        """Return where a Service is reached from outside."""
        return decide_outside(service, self.world, serving_nodes(slices), self.balancing)


NO_BALANCERS = Balancers()


def service_ports(
    service: JsonObject,
    slices: Iterable[JsonObject],
    leaving: Container[str] = (),
    kubelet_port: int = 0,
    balancers: Balancers = NO_BALANCERS,
) -> dict[str, ServicePort]:
    """Return the entries of one Service by key; {} for one without an address (headless, ExternalName).

    Args:
        service: the Service.
        slices: its EndpointSlices.
        leaving: the UIDs of pods that are known to end, whatever the slices say yet.
        kubelet_port: the port of nodes that leads to API servers, 0 for none.
        balancers: what addresses from outside are decided by.
    """
    declared = objects.spec(service)
    addresses = addresses_of(declared) if declared.get("type") != "ExternalName" else []
    if not addresses:
        return {}
    # as the slices will tell: who asks for pods that are not ready gets those that end, too
    found = list(slices) if declared.get("publishNotReadyAddresses") else [_without(one, leaving) for one in slices]
    outside, ports = balancers.outside(service, found), {}
    for port in declared.get("ports") or []:
        key = f"{objects.namespace(service)}/{objects.name(service)}:{port.get('name') or port['port']}"
        away = outside._replace(at_nodes=outside.at_nodes and is_free_port(port["port"], balancers.balancing))
        for address in addresses:
            family = family_of(address)
            told = f"{key}{OF_IPV6}" if family == "IPv6" else key
            endpoints = _endpoints(port, found, family)
            ports[told] = _service_port(declared, {**port, "address": address}, endpoints, away.of_family(family))
    api = next((key for key in (API_PORT, API_PORT + OF_IPV6) if key in ports), "") if kubelet_port else ""
    if api:
        ports[api].entry.setdefault("node_port", kubelet_port)
    return ports


def pods_of_slice(endpoint_slice: JsonObject) -> list[str]:
    """Return the UIDs of the pods that a slice lists."""
    refs = [endpoint.get("targetRef") or {} for endpoint in endpoint_slice.get("endpoints") or []]
    return [str(ref["uid"]) for ref in refs if ref.get("kind") == "Pod" and ref.get("uid")]


def _without(endpoint_slice: JsonObject, leaving: Container[str]) -> JsonObject:
    if not any(uid in leaving for uid in pods_of_slice(endpoint_slice)):
        return endpoint_slice
    return {**endpoint_slice, "endpoints": [_ended(one, leaving) for one in endpoint_slice["endpoints"]]}


def _ended(endpoint: JsonObject, leaving: Container[str]) -> JsonObject:
    """Return an endpoint as its pod's deletion makes it."""
    if (endpoint.get("targetRef") or {}).get("uid") not in leaving:
        return endpoint
    conditions = endpoint.get("conditions") or {}
    serving = conditions.get("ready") is not False or bool(conditions.get("serving"))
    return {**endpoint, "conditions": {"ready": False, "serving": serving, "terminating": True}}


def _service_port(
    declared: JsonObject, port: JsonObject, endpoints: list[_Endpoint], outside: Outside = NOWHERE
) -> ServicePort:
    entry: ServiceEntry = {
        "protocol": port.get("protocol") or "TCP",
        "address": port["address"],
        "port": port["port"],
        "endpoints": _listed(_usable(endpoints)),
    }
    node_port = port.get("nodePort") if declared.get("type") in ("NodePort", "LoadBalancer") else None
    if node_port:
        entry["node_port"] = node_port
    _take_outside(entry, outside, declared)
    if declared.get("sessionAffinity") == "ClientIP":
        entry["affinity_s"] = (
            objects.dig(declared, "sessionAffinityConfig", "clientIP", "timeoutSeconds") or _DEFAULT_AFFINITY_S
        )
    local = declared.get("internalTrafficPolicy") == "Local"
    kept = _is_outside(entry) and declared.get("externalTrafficPolicy") == "Local"
    by_node = _by_node(endpoints) if local or kept else None
    return ServicePort(entry, by_node if local else None, by_node if kept else None, _by_zone(endpoints))


def _take_outside(entry: ServiceEntry, outside: Outside, declared: JsonObject) -> None:
    if outside.addresses:
        entry["outside"] = sorted(outside.addresses)
    if announced := {one: node for one, node in sorted(outside.addresses.items()) if node is not None}:
        entry["announced"] = announced
    if outside.at_nodes:
        entry["at_nodes"] = True
    sources = declared.get("loadBalancerSourceRanges") if declared.get("type") == "LoadBalancer" else None
    if sources and (outside.addresses or outside.at_nodes):
        ranges = (ipaddress.ip_network(one.strip(), strict=False) for one in sources)
        family = family_of(entry["address"])  # of another family it admits nobody: no client has an address in it
        entry["sources"] = sorted({str(one) for one in ranges if family_of(str(one)) == family})


def _endpoints(port: JsonObject, slices: Iterable[JsonObject], family: str) -> list[_Endpoint]:
    """Return the endpoints that the slices of a family tell for one service port, each once."""
    name, protocol = port.get("name") or "", port.get("protocol") or "TCP"
    found: dict[_Place, _Endpoint] = {}
    for one in slices:
        if (one.get("addressType") or "IPv4") != family:
            continue
        numbers = [
            each.get("port")
            for each in one.get("ports") or []
            if (each.get("name") or "") == name and (each.get("protocol") or "TCP") == protocol
        ]
        for number in numbers:
            for endpoint in one.get("endpoints") or []:
                _take(found, endpoint, int(number or 0))
    return sorted(found.values())


def _take(found: dict[_Place, _Endpoint], endpoint: JsonObject, number: int) -> None:
    if not number:
        return
    conditions = endpoint.get("conditions") or {}
    ready = conditions.get("ready") is not False
    serving = conditions.get("serving") is not False if conditions.get("serving") is not None else ready
    made = _Endpoint((endpoint["addresses"][0], number), endpoint.get("nodeName") or "", ready)
    hints = (endpoint.get("hints") or {}).get("forZones") or []
    made = made._replace(zones=tuple(sorted(str(one["name"]) for one in hints)))
    if not ready:
        made = made._replace(fallback=serving and bool(conditions.get("terminating")))
    known = found.get(made.place)
    if known is None or (made.ready, made.fallback) > (known.ready, known.fallback):
        found[made.place] = made


def _usable(endpoints: Iterable[_Endpoint]) -> list[_Place]:
    known = list(endpoints)
    return [one.place for one in known if one.ready] or [one.place for one in known if one.fallback]


def _by_zone(endpoints: Iterable[_Endpoint]) -> dict[str, list[_Place]] | None:
    """Return the ready endpoints by the zones that they are meant for; None unless each is meant for some.

    Source: kubernetes ``pkg/proxy/topology.go``, ``canUseTopology``.
    """
    ready = [one for one in endpoints if one.ready]
    if not ready or not all(one.zones for one in ready):
        return None
    zones: dict[str, list[_Place]] = {}
    for one in ready:
        for zone in one.zones:
            zones.setdefault(zone, []).append(one.place)
    return zones


def _by_node(endpoints: Iterable[_Endpoint]) -> dict[str, list[_Place]]:
    nodes: dict[str, list[_Endpoint]] = {}
    for one in endpoints:
        nodes.setdefault(one.node, []).append(one)
    return {node: _usable(found) for node, found in nodes.items()}


def _listed(places: Iterable[_Place]) -> list[list[Any]]:
    return [list(place) for place in places]


def without_ipv6(entries: Entries) -> Entries:
    """Return a section without the addresses of IPv6: that of a node whose Pods have none."""
    return {key: entry for key, entry in entries.items() if not key.endswith(OF_IPV6)}


def zone_of(node: JsonObject) -> str:
    """Return the zone that a Node is in, "" for none."""
    return objects.labels(node).get(ZONE, "")


def kubernetes_address(service_cidr: str) -> str:
    """Return HOST:PORT of default/kubernetes, which always has the first address of the range (startup.py).

    It makes pods' ``KUBERNETES_SERVICE_HOST`` the cluster IP; the API server's certificate holds that address, too.
    """
    return place(str(next(ipaddress.ip_network(service_cidr).hosts())), 443)


class ServiceBook:
    """All service ports of the cluster, and what each node gets of them; not thread-safe.

    ``entries(node)`` returns the same mapping until something changes, so that comparing it costs nothing.
    """

    def __init__(self) -> None:
        self._ports: dict[str, dict[str, ServicePort]] = {}
        self._alike: dict[str, ServiceEntry] = {}
        self._differing: dict[str, ServicePort] = {}
        self._made: dict[str, tuple[tuple[DataplaneEntry, str], Entries]] = {}
        self._announcers: dict[str, dict[str, str]] = {}

    def announcers(self) -> frozenset[str]:
        """Return the nodes that announce an address."""
        return frozenset(node for found in self._announcers.values() for node in found.values() if node)

    def announced(self, node: str) -> int:
        """Return how many addresses a node announces."""
        return sum(name == node for found in self._announcers.values() for name in found.values())

    def put(self, service: str, ports: Mapping[str, ServicePort]) -> bool:
        """Take over the ports of a Service ``<namespace>/<name>`` ({}: none); return whether anything changed."""
        before = self._ports.get(service, {})
        if before == ports:
            return False
        for key in before.keys() - ports.keys():
            self._alike.pop(key, None)
            self._differing.pop(key, None)
        for key, port in ports.items():
            self._put_port(key, port)
        self._ports[service] = dict(ports)
        if not ports:
            del self._ports[service]
        self._announcers.pop(service, None)
        told = (port.entry.get("announced") or {} for port in ports.values())
        if found := {address: node for each in told for address, node in each.items()}:
            self._announcers[service] = found
        self._made.clear()
        return True

    def _put_port(self, key: str, port: ServicePort) -> None:
        self._alike.pop(key, None)
        self._differing.pop(key, None)
        if port.alike:
            self._alike[key] = port.entry
        else:
            self._differing[key] = port

    def services(self) -> set[str]:
        """Return the Services that have ports."""
        return set(self._ports)

    def entries(self, node: str, dataplane: DataplaneEntry | None, zone: str = "") -> Entries:
        """Return the section of one node, which is in a zone; {} for a node without a dataplane."""
        if dataplane is None:
            return {}
        known = self._made.get(node)
        if known is None or known[0] != (dataplane, zone):
            differing = {key: port.on(node, zone) for key, port in self._differing.items()}
            made: Entries = {DATAPLANE: dataplane, **self._alike, **differing}
            made = made if "ipv6" in dataplane else without_ipv6(made)
            known = self._made[node] = ((dataplane, zone), made)
        return known[1]
