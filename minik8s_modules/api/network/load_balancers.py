"""Services of type LoadBalancer: whose they are, which addresses they have, and which node announces one. Pure.

Two classes are ours. ``minik8s.io/nodes`` is reached at the nodes' own addresses and the Service's ports, as with k3s;
``minik8s.io/pool`` has an address of the pool, which one node answers for. Both are of each family that the Service
has, as far as nodes or pool have addresses of it. Nothing is remembered: the address stands in the Service's status,
and the announcer follows from the Nodes, so that a controller, every shard and a plan find the same. An address of a
machine, of an API server, of the name server or of the cluster's own ranges is nobody's, whatever a status says,
however it is written.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from ipaddress import ip_address
from typing import NamedTuple

from minik8s_modules.api import objects, syntax
from minik8s_modules.api.network.balancing import Balancing
from minik8s_modules.api.network.surroundings import Machine, World, family_of
from minik8s_modules.api.objects import JsonObject

CLASSES = {"minik8s.io/nodes": "nodes", "minik8s.io/pool": "pool"}
FINALIZER = "service.kubernetes.io/load-balancer-cleanup"
NODE_PORTS = range(30000, 32768)
_EVERYBODY = ipaddress.IPv4Address("255.255.255.255")
IPV6 = 6
IN_USE, OUT_OF_RANGE, NOT_AVAILABLE = "AddressInUse", "AddressNotInPool", "AddressNotAvailable"
PORT_KEPT, PORT_IN_USE, NO_NODES, REFUSED = "PortKept", "PortInUse", "NoNodes", "AddressRefused"
WITHOUT_ADDRESS = frozenset({IN_USE, OUT_OF_RANGE, NOT_AVAILABLE, PORT_KEPT, PORT_IN_USE, NO_NODES})
"""Reasons, also of Events, for which a Service has no address."""


class Given(NamedTuple):
    """What a Service gets: points of its status, or a reason and words why it has none."""

    points: tuple[JsonObject, ...] = ()
    """As ``status.loadBalancer.ingress`` has them."""
    reason: str = ""
    message: str = ""

    @property
    def addresses(self) -> list[str]:
        """The addresses."""
        return [str(point["ip"]) for point in self.points]


class Outside(NamedTuple):
    """Where a Service is reached from outside: addresses (who announces each), and whether at the nodes' own."""

    addresses: Mapping[str, str | None] = {}
    """The node that announces an address, "" while there is none, None where others see to it."""
    at_nodes: bool = False
    refused: tuple[str, ...] = ()
    """Addresses that its status or spec names, and that are not to be taken over."""

    def of_family(self, family: str) -> Outside:
        """Return what of it is of one family; nodes have addresses of both, as far as they have any."""
        own = {address: node for address, node in self.addresses.items() if family_of(address) == family}
        return Outside(own, self.at_nodes)


NOWHERE = Outside()
Serving = Callable[[JsonObject], AbstractSet[str]]


def way_of(service: JsonObject, balancing: Balancing) -> str:
    """Return how we serve a Service: ``nodes``, ``pool``, or "" where it is not ours."""
    declared = objects.spec(service)
    if declared.get("type") != "LoadBalancer":
        return ""
    if named := declared.get("loadBalancerClass"):
        return CLASSES.get(named, "")
    return balancing.default if balancing.default != "none" else ""


def serving_nodes(slices: Iterable[JsonObject]) -> frozenset[str]:
    """Return the nodes that have a ready endpoint in these slices."""
    return frozenset(
        str(endpoint.get("nodeName") or "")
        for one in slices
        for endpoint in one.get("endpoints") or []
        if (endpoint.get("conditions") or {}).get("ready") is not False
    ) - {""}


def is_local(service: JsonObject) -> bool:
    """Return whether only nodes with Pods of the Service take what comes from outside."""
    return bool(objects.spec(service).get("externalTrafficPolicy") == "Local")


def is_outside(service: JsonObject) -> bool:
    """Return whether a Service may have addresses from outside."""
    declared = objects.spec(service)
    return bool(declared.get("type") == "LoadBalancer" or declared.get("externalIPs"))


def ingress_of(service: JsonObject) -> list[str]:
    """Return the addresses that a Service's status has."""
    found = objects.dig(service, "status", "loadBalancer", "ingress") or []
    return [syntax.shortest_ip(str(one["ip"])) for one in found if one.get("ip")]


def by_age(services: Iterable[JsonObject]) -> list[JsonObject]:
    """Return Services in the order in which they are given what is free."""
    return sorted(
        services, key=lambda one: (str(objects.metadata(one).get("creationTimestamp") or ""), objects.key(one))
    )


def decide_addresses(
    services: Sequence[JsonObject], world: World, serving: Serving, balancing: Balancing
) -> dict[str, Given]:
    """Return what each Service of ours gets, by ``<namespace>/<name>``.

    Whoever has an address or a port by its status keeps it; what is free goes to the first that wants it. A Service
    that is being deleted gets nothing, and holds what it has until it is gone.

    Args:
        services: all Services, in the order in which they are served.
        world: the machines.
        serving: returns the nodes with ready endpoints of a Service.
        balancing: the settings.
    """
    ours = [(way, one) for one in services if (way := way_of(one, balancing))]
    pool = _Pool(world, balancing, [one for way, one in ours if way == "pool"])
    ports = _Ports(world, balancing, [one for way, one in ours if way == "nodes"])
    found = {}
    for way, service in ours:
        if objects.is_deleting(service):
            found[str(objects.key(service))] = Given()
        else:
            given = pool.give(service) if way == "pool" else ports.give(service, serving)
            found[str(objects.key(service))] = given
    return found


class _Pool:
    """Gives out the addresses of the pool."""

    def __init__(self, world: World, balancing: Balancing, services: Iterable[JsonObject]) -> None:
        self._balancing, self._world, self._machines = balancing, world, world.taken()
        self._holders: dict[str, str] = {}
        for service in services:
            for address in ingress_of(service):
                self._holders.setdefault(address, str(objects.key(service)))

    def give(self, service: JsonObject) -> Given:
        key = str(objects.key(service))
        if not self._balancing.pool:
            return Given((), NOT_AVAILABLE, "there is no pool: minik8s_load_balancer_addresses is empty")
        asked = str(objects.spec(service).get("loadBalancerIP") or "")
        families = objects.spec(service).get("ipFamilies") or ["IPv4"]
        if asked:
            reason, message = self._why_not(asked, key)
            if not reason and family_of(asked) not in families:
                reason, message = OUT_OF_RANGE, f"address {asked} is not of {families[0]}, as the Service is"
            if reason:
                return Given((), reason, message)
        known = [family for family in families if self._balancing.pool_of(family)]
        if not known:
            return Given((), NOT_AVAILABLE, f"the pool has no addresses of {families[0]}, as the Service is")
        found = {family: self._of_family(service, key, family, asked) for family in known}
        self._holders |= dict.fromkeys((one for one in found.values() if one), key)
        points = tuple({"ip": one, "ipMode": "VIP"} for one in found.values() if one)
        missing = [family for family in known if not found[family]]
        what = f" of {missing[0]}" if missing and points else ""
        return (
            Given(points, NOT_AVAILABLE, f"every address{what} of the pool is given out") if missing else Given(points)
        )

    def _of_family(self, service: JsonObject, key: str, family: str, asked: str) -> str:
        if asked and family_of(asked) == family:
            return str(ip_address(asked))
        had = (one for one in ingress_of(service) if not self._why_not(one, key)[0] and family_of(one) == family)
        return next(had, "") or next(self._free(family), "")

    def _why_not(self, address: str, key: str) -> tuple[str, str]:
        if syntax.ip(address) or not self._balancing.in_pool(address):
            return OUT_OF_RANGE, f"address {address} is not in the pool"
        if self._is_taken(syntax.shortest_ip(address)):
            return IN_USE, f"address {address} is a machine's own"
        holder = self._holders.get(str(ip_address(address)), key)
        return ("", "") if holder == key else (IN_USE, f"address {address} is Service {holder}'s")

    def _is_taken(self, address: str) -> bool:
        return address in self._machines or self._world.has_range_of(address)

    def _free(self, family: str) -> Iterator[str]:
        for span in self._balancing.pool_of(family):
            for address in span.addresses():
                if address not in self._holders and not self._is_taken(address) and not self._balancing.is_own(address):
                    yield address


class _Ports:
    """Gives out ports of the nodes' own addresses; a status tells which of them a Service has."""

    def __init__(self, world: World, balancing: Balancing, services: Iterable[JsonObject]) -> None:
        self._machines, self._balancing = world.machines, balancing
        self._holders: dict[tuple[str, int], str] = {}
        for service in services:
            for point in objects.dig(service, "status", "loadBalancer", "ingress") or []:
                for place in _places(point.get("ports") or []):
                    self._holders.setdefault(place, str(objects.key(service)))

    def give(self, service: JsonObject, serving: Serving) -> Given:
        key, declared = str(objects.key(service)), objects.spec(service)
        if asked := declared.get("loadBalancerIP"):
            detail = f"address {asked} cannot be had: the class has the nodes' own addresses; use minik8s.io/pool"
            return Given((), OUT_OF_RANGE, detail)
        families = declared.get("ipFamilies") or ["IPv4"]
        if self._machines and not _own_addresses(self._machines, families):
            return Given((), NOT_AVAILABLE, f"no node has an address of {families[0]}, as the Service is")
        places = _places(declared.get("ports") or [])
        for place in places:
            reason, message = self._why_not(*place, key)
            if reason:
                return Given((), reason, message)
        self._holders |= dict.fromkeys(places, key)
        local = serving(service) if is_local(service) else None
        able = (one for one in self._machines if one.ready and (local is None or one.name in local))
        ready = [one for one in able if _own_addresses([one], families)]
        if not ready:
            who = "no node is Ready" if local is None else "no Ready node has a ready Pod of it"
            return Given((), NO_NODES, who)
        ports = [{"port": port, "protocol": protocol} for protocol, port in places]
        addresses = _own_addresses(ready, families)
        return Given(tuple({"ip": each, "ipMode": "Proxy", "ports": ports} for each in addresses))

    def _why_not(self, protocol: str, port: int, key: str) -> tuple[str, str]:
        if not is_free_port(port, self._balancing):
            return (
                PORT_KEPT,
                f"port {port} of the nodes is kept for the machines themselves; use another port, or a pool",
            )
        holder = self._holders.get((protocol, port), key)
        return (
            ("", "") if holder == key else (PORT_IN_USE, f"port {port}/{protocol} of the nodes is Service {holder}'s")
        )


def _own_addresses(machines: Sequence[Machine], families: Iterable[str]) -> list[str]:
    """Return the machines' addresses of some families, those of the first one first."""
    found = [{own for one in machines if (own := one.of_family(family))} for family in families]
    return [own for each in found for own in sorted(each, key=lambda own: int(ip_address(own)))]


def _places(ports: Iterable[JsonObject]) -> list[tuple[str, int]]:
    return [(str(one.get("protocol") or "TCP"), int(one["port"])) for one in ports]


def is_free_port(port: int, balancing: Balancing) -> bool:
    """Return whether Services may have a port of the nodes' own addresses."""
    return port not in balancing.kept_ports and port not in NODE_PORTS


def decide_announcer(address: str, machines: Iterable[Machine], local: AbstractSet[str] | None) -> str:
    """Return the node that announces an address, "" for none.

    It stays the same while it can, and falls to another when it cannot: the highest of a hash of both (rendezvous
    hashing). Where all that could are silent, whoever listens to them is cut off, not they.

    Args:
        address: the address.
        machines: all machines.
        local: the nodes that may, None for all.
    """
    able = [one for one in machines if one.ready and (local is None or one.name in local)]
    calm = [one.name for one in able if not one.silent] or [one.name for one in able]
    return max(calm, key=lambda name: hashlib.sha256(f"{address} {name}".encode()).digest(), default="")


def decide_outside(service: JsonObject, world: World, local: AbstractSet[str], balancing: Balancing) -> Outside:
    """Return where a Service is reached from outside, beside its node ports.

    What other load balancers wrote into its status counts as with kube-proxy, as long as it is no machine's.
    """
    if objects.is_deleting(service):
        return NOWHERE
    way, named = way_of(service, balancing), ingress_of(service)
    external = external_ips(service) if balancing.external_ips else []
    others = [*external, *([] if way else virtual_addresses(service))]
    families = (objects.spec(service).get("ipFamilies") or ["IPv4"]) if way == "pool" else []
    ours = [one for one in named if family_of(one) in families and balancing.in_pool(one)]
    refused = [one for one in others if not _is_foreign(one, world, balancing)]
    refused += [one for one in ours if one in world.taken() or world.has_range_of(one)]
    may = frozenset(local) if is_local(service) else None
    found: dict[str, str | None] = {one: None for one in others if one not in refused}
    found |= {one: decide_announcer(one, world.machines, may) for one in ours if one not in refused}
    return Outside(found, way == "nodes" and bool(named), tuple(dict.fromkeys(refused)))


def external_ips(service: JsonObject) -> list[str]:
    """Return the addresses of others that a Service names."""
    return [syntax.shortest_ip(str(one)) for one in objects.spec(service).get("externalIPs") or []]


def virtual_addresses(service: JsonObject) -> list[str]:
    """Return the addresses of a LoadBalancer's status whose packets keep it as their destination."""
    if objects.spec(service).get("type") != "LoadBalancer":
        return []
    found = objects.dig(service, "status", "loadBalancer", "ingress") or []
    return [syntax.shortest_ip(str(one["ip"])) for one in found if one.get("ip") and one.get("ipMode") != "Proxy"]


def _is_foreign(address: str, world: World, balancing: Balancing) -> bool:
    """Return whether an address may be somebody's outside: no machine's, the cluster's or the pool's."""
    if syntax.non_special_ip(address) or address in world.taken() or balancing.in_pool(address):
        return False
    parsed = ip_address(address)
    # what IPv6 keeps for other ends has addresses of IPv4 within it
    if parsed.is_multicast or parsed == _EVERYBODY or (parsed.version == IPV6 and parsed.is_reserved):
        return False
    return not (balancing.is_own(address) or world.has_range_of(address))
