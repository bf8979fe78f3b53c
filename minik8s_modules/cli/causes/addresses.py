"""Whose an address is: a Service's, inside the cluster or outside, or a machine's, and there whose a port is.

Addresses are compared as texts in their shortest form: what others wrote may be none.
"""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Collection, Iterator
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import NODE, SERVICE
from minik8s_modules.api.network.load_balancers import external_ips, virtual_addresses
from minik8s_modules.api.network.service_ranges import addresses_of
from minik8s_modules.api.nodes.virtual_nodes import is_virtual
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.syntax import shortest_ip
from minik8s_modules.cli.causes.sight import Sight

_REACHED = frozenset({"InternalIP", "ExternalIP"})


class Entry(NamedTuple):
    """A port of a machine that is a Service's: which port of it, and by what."""

    service: JsonObject
    port: str
    how: str


def address_of(host: str) -> str:
    """Return an address in its shortest form, "" for what is none."""
    with contextlib.suppress(ValueError):
        return str(ipaddress.ip_address(host))
    return ""


def number_of(service: JsonObject, port: str) -> int | None:
    """Return the number of a Service's port that is written as a number or by its name."""
    declared = objects.spec(service).get("ports") or ()
    return next((int(one["port"]) for one in declared if port in (one.get("name"), str(one.get("port")))), None)


def service_at(sight: Sight, host: str, port: str) -> JsonObject | None:
    """Return the Service that has an address, with this as its first: it is called.

    Nodes take over no address outside that a machine has. Of several Services that name one, that with the port is
    meant.
    """
    address, services = shortest_ip(host), sight.all(SERVICE)
    found = [one for one in services if address in map(shortest_ip, addresses_of(objects.spec(one)))]
    if not found:
        found = [one for one in services if address in (*external_ips(one), *virtual_addresses(one))]
        if found and beside(sight, address):
            return None
        found = _outside(sight, found, port)
    return _called(found, address, port)


def balanced_at(sight: Sight, host: str, port: str) -> JsonObject | None:
    """Return the Service to which another load balancer sends on from its own address, with this as its first."""
    address = shortest_ip(host)
    found = [one for one in sight.all(SERVICE) if address in map(_ip, _sent_on(one))]
    return _called(_outside(sight, found, port), address, port)


def _outside(sight: Sight, found: list[JsonObject], port: str) -> list[JsonObject]:
    """Return those of Services with an address outside that may be called at it.

    Where Nodes may not be read, it may be a machine's, and a port that they have not another's.
    """
    is_sure = not port or not sight.hides(NODE)
    return found if is_sure else [one for one in found if number_of(one, port) is not None]


def _called(found: list[JsonObject], address: str, port: str) -> JsonObject | None:
    service = next((one for one in found if number_of(one, port) is not None), found[0] if found else None)
    return service and {**service, "spec": {**objects.spec(service), "clusterIP": address}}


def sent_on(sight: Sight, own: Collection[str], port: str) -> Entry | None:
    """Return by which load balancer a Service has a port of the machine with these addresses."""
    for service in sight.all(SERVICE):
        declared = objects.spec(service).get("ports") or ()
        for point in _sent_on(service):
            if _ip(point) in own and port in map(_number, point.get("ports") or declared):
                return Entry(service, port, "load balancer")
    return None


def node_port(sight: Sight, port: str) -> Entry | None:
    """Return the Service that has a port of every machine."""
    for service in sight.all(SERVICE):
        for one in objects.spec(service).get("ports") or ():
            if _number(one, "nodePort") == port:
                return Entry(service, str(one["port"]), f"node port of port {one['port']}")
    return None


def _number(port: JsonObject, field: str = "port") -> str | None:
    """Return the number of a port as it is written; None where it has none or is not of TCP, as requests are."""
    number = port.get(field) if port.get("protocol", "TCP") == "TCP" else None
    return str(number) if number else None


def _sent_on(service: JsonObject) -> list[JsonObject]:
    """Return the points of a load balancer whose packets reach the Service with another destination than theirs."""
    if objects.spec(service).get("type") != "LoadBalancer":
        return []
    points = objects.dig(service, "status", "loadBalancer", "ingress") or []
    return [one for one in points if one.get("ipMode") == "Proxy"]


def _ip(point: JsonObject) -> str:
    return shortest_ip(str(point.get("ip") or ""))


def beside(sight: Sight, host: str) -> list[str]:
    """Return all addresses of the machine that has this one, none where no machine has it."""
    address = shortest_ip(host)
    machines = ([*_of(node, _REACHED)] for node in sight.all(NODE) if not is_virtual(node))
    return next((own for own in machines if address in own), [])


def of_nginx(sight: Sight) -> list[str]:
    """Return the addresses of the machines whose nginx serves hosts and paths."""
    machines = (node for node in sight.all(NODE) if not is_virtual(node))
    return [own for node in machines for own in _of(node, frozenset({"InternalIP"}))]


def _of(node: JsonObject, types: Collection[str]) -> Iterator[str]:
    found = objects.status(node).get("addresses") or []
    yield from (shortest_ip(str(one.get("address"))) for one in found if one.get("type") in types)
