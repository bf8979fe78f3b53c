"""What is around Services: machines and API servers, and the addresses that are theirs, so no Service's. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from minik8s_modules.api import objects, syntax
from minik8s_modules.api.network.balancing import NO_BALANCING, Balancing, Ranges
from minik8s_modules.api.nodes.virtual_nodes import is_virtual
from minik8s_modules.api.objects import JsonObject

SILENT = "minik8s.io/Silent"
"""The condition of a Node that has missed its last heartbeats: others take over what it announces."""
EXCLUDED = "node.kubernetes.io/exclude-from-external-load-balancers"


class Machine(NamedTuple):
    """A Node as load balancers see it."""

    name: str
    address: str
    ready: bool
    silent: bool
    second: str = ""
    """Its address of the other family."""

    def of_family(self, family: str) -> str:
        """Return its address of a family, "" for none."""
        return next((one for one in (self.address, self.second) if one and family_of(one) == family), "")


class World(NamedTuple):
    """What addresses are decided by: the machines, where API servers answer, and what else is somebody's."""

    machines: tuple[Machine, ...] = ()
    servers: frozenset[str] = frozenset()
    ranges: Ranges = Ranges()
    """Of Pods on nodes that have others than the cluster's."""
    told: frozenset[str] = frozenset()
    """All addresses that Nodes tell, those of virtual ones too, which are no load balancers."""

    def taken(self) -> frozenset[str]:
        """Return the addresses that machines have themselves."""
        own = {each for one in self.machines for each in (one.address, one.second) if each}
        return self.servers | self.told | own

    def has_range_of(self, address: str) -> bool:
        """Return whether an address is a Pod's or a Pod's gateway's, of a range that is not the cluster's."""
        return self.ranges.holds(address)


def world_of(nodes: Iterable[JsonObject], slices: Iterable[JsonObject], balancing: Balancing) -> World:
    """Return the machines, and what is theirs; ``slices`` are those of default/kubernetes."""
    known = [*nodes]
    told = frozenset(each for one in known for kind in ("InternalIP", "ExternalIP") for each in addresses_of(one, kind))
    ranges = balancing.further({each for one in known for each in ranges_of(one)})
    return World(machines_of(known), api_servers(slices), ranges, told)


def world_of_one(node: JsonObject | None) -> World:
    """Return what one Node adds to the world, None nothing: what has changed of it counts."""
    return world_of([node] if node is not None else [], (), NO_BALANCING)


def machines_of(nodes: Iterable[JsonObject]) -> tuple[Machine, ...]:
    """Return the machines, by name; those that are to be no load balancers count as not ready."""
    found = []
    for node in sorted(nodes, key=objects.name):
        own = addresses_of(node, "InternalIP")
        if own and not is_virtual(node):
            ready = _is_true(node, "Ready") and EXCLUDED not in objects.labels(node)
            second = next((one for one in own if family_of(one) != family_of(own[0])), "")
            found.append(Machine(objects.name(node), own[0], ready, _is_true(node, SILENT), second))
    return tuple(found)


def addresses_of(node: JsonObject, kind: str) -> list[str]:
    """Return the addresses of a kind that a Node tells, in their shortest form."""
    told = (one for one in objects.status(node).get("addresses") or [] if one.get("type") == kind)
    return [syntax.shortest_ip(str(one["address"])) for one in told]


def ranges_of(node: JsonObject) -> tuple[str, ...]:
    """Return the ranges of a Node's Pods."""
    declared = objects.spec(node)
    return tuple(str(each) for each in (declared.get("podCIDR"), *(declared.get("podCIDRs") or ())) if each)


def _is_true(node: JsonObject, condition: str) -> bool:
    return (objects.condition(node, condition) or {}).get("status") == "True"


def api_servers(slices: Iterable[JsonObject]) -> frozenset[str]:
    """Return the addresses in the slices of default/kubernetes."""
    return frozenset(
        syntax.shortest_ip(str(address))
        for one in slices
        for endpoint in one.get("endpoints") or []
        for address in endpoint.get("addresses") or []
    )


def family_of(address: str) -> str:
    """Return the family of an address."""
    return "IPv6" if ":" in address else "IPv4"
