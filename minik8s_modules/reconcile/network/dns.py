"""From Services, EndpointSlices and the hosts of DNS objects to the entries of each node's section ``dns``. Pure.

Names follow Kubernetes' DNS specification 1.1.0 (kubernetes/dns ``docs/specification.md``): a Service is
``<service>.<namespace>.svc.<domain>``, a headless one has its endpoints' addresses there and each endpoint below it,
named ports have SRV records, addresses have names. Beside that stand hosts, absolute where a HostGrant gives them to
their namespace, else in the domain that the namespace's own pods search; and, as in the original, Services' bare names:
in a domain that only nodes search, of the namespaces that have a HostGrant for them. Where two of these have the same,
the one in ``default`` has it, else the first by the namespace's name. Nothing of one label is ever absolute, so in pods
a bare name is their own namespace's or nobody's.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from typing import Any

from minik8s_modules.api import objects
from minik8s_modules.api.network.cluster_names import name_within, short_name
from minik8s_modules.api.network.service_ranges import addresses_of
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.module_utils.minik8s.entries.dns import DnsEntry, DnsServerEntry
from minik8s_modules.module_utils.minik8s.names.dns_entries import SERVER
from minik8s_modules.reconcile.values.values import DnsSettings, Entries


def server_entry(settings: DnsSettings, domain: str) -> DnsServerEntry:
    """Return the entry ``server``."""
    return {
        "listen": settings.listen,
        "port": settings.port,
        "domain": domain,
        "forward": list(settings.forward),
        "host_resolver": settings.host_resolver,
    }


def service_entry(service: JsonObject, slices: Iterable[JsonObject]) -> DnsEntry:
    """Return the records of one Service, without its short name; {} when it has no name to tell (yet)."""
    declared = objects.spec(service)
    base = f"{objects.name(service)}.{objects.namespace(service)}.svc"
    if declared.get("type") == "ExternalName":
        return _external(base, str(declared.get("externalName") or "").rstrip("."))
    address = str(declared.get("clusterIP") or "")
    if not address:
        return {}
    if address == "None":
        return _headless(base, slices)
    addresses = addresses_of(declared)
    records: list[list[Any]] = [[base, _type(each), each] for each in addresses]
    records += [
        [f"_{port['name']}._{_protocol(port)}.{base}", "SRV", port["port"], base]
        for port in declared.get("ports") or []
        if port.get("name")
    ]
    return {"records": records, "pointers": [[each, base] for each in addresses]}


def _external(base: str, target: str) -> DnsEntry:
    try:
        ipaddress.IPv4Address(target)
    except ValueError:
        return {"records": [[base, "CNAME", target]]} if target else {}
    return {"records": [[base, "A", target]]}


def _protocol(port: JsonObject) -> str:
    return str(port.get("protocol") or "TCP").lower()


def _headless(base: str, slices: Iterable[JsonObject]) -> DnsEntry:
    """Return the records of a headless Service's ready endpoints (slices call all ready where it wants them all)."""
    hosts: dict[str, str] = {}
    served: set[tuple[str, str, int, str]] = set()
    for one in slices:
        for endpoint in one.get("endpoints") or []:
            if (endpoint.get("conditions") or {}).get("ready") is False:
                continue
            address = str(endpoint["addresses"][0])
            host = str(endpoint.get("hostname") or _label(address))
            hosts.setdefault(address, f"{host}.{base}")
            for port in one.get("ports") or []:
                if port.get("name") and port.get("port"):
                    served.add((port["name"], _protocol(port), int(port["port"]), hosts[address]))
    ordered = sorted(hosts.items())
    records: list[list[Any]] = [[base, _type(address), address] for address, _ in ordered]
    records += [[host, _type(address), address] for address, host in ordered]
    records += [[f"_{name}._{protocol}.{base}", "SRV", port, host] for name, protocol, port, host in sorted(served)]
    return {"records": records, "pointers": [[address, host] for address, host in ordered]} if records else {}


def _label(address: str) -> str:
    """Return the name of an address that has no host name; that of IPv6 in full, for no label ends with a hyphen."""
    if ":" in address:
        address = ipaddress.IPv6Address(address).exploded
    return address.replace(".", "-").replace(":", "-")


def _type(address: str) -> str:
    return "AAAA" if ":" in address else "A"


def host_entry(host: str, namespace: str, address: str) -> DnsEntry:
    """Return the entry of a host that the node's own nginx answers for; in one namespace, unless that is ""."""
    if not namespace:
        return {"names": [[address, host]]}
    return {"records": [[name_within(namespace, host), _type(address), address]]}


class NameBook:
    """All names of the cluster; not thread-safe. ``entries()`` returns the same mapping until something changes."""

    def __init__(self, server: DnsServerEntry | None) -> None:
        self._server = server
        self._services: dict[str, DnsEntry] = {}
        self._bare: dict[str, set[str]] = {}
        self._short: frozenset[str] = frozenset()
        self._hosts: dict[str, DnsEntry] = {}
        self._made: Entries | None = None

    def put_service(self, key: str, entry: DnsEntry) -> None:
        """Take over the records of the Service ``<namespace>/<name>`` ({}: none)."""
        if self._services.get(key, {}) == entry:
            return
        name = key.partition("/")[2]
        holders = self._bare.setdefault(name, set())
        if entry:
            self._services[key] = entry
            holders.add(key)
        else:
            self._services.pop(key, None)
            holders.discard(key)
        self._made = None

    def put_short(self, namespaces: frozenset[str]) -> None:
        """Take over the namespaces whose Services nodes find by their bare names."""
        if namespaces != self._short:
            self._short, self._made = namespaces, None

    def put_hosts(self, hosts: Mapping[str, str], address: str) -> None:
        """Take over all hosts that nginx answers for and that are to resolve, and where: "" is everywhere."""
        made = {f"host/{host}": host_entry(host, namespace, address) for host, namespace in hosts.items()}
        if made != self._hosts:
            self._hosts, self._made = made, None

    def copy(self) -> NameBook:
        """Return a book of its own with the same names, to imagine others in."""
        made = NameBook(self._server)
        made._services, made._hosts, made._short = dict(self._services), self._hosts, self._short
        made._bare = {name: set(holders) for name, holders in self._bare.items()}
        return made

    def entries(self) -> Entries:
        """Return the section, the same on every node."""
        if self._server is None:
            return {}
        if self._made is None:
            services = {f"service/{key}": self._with_bare(key, entry) for key, entry in self._services.items()}
            self._made = {SERVER: self._server, **services, **self._hosts}
        return self._made

    def _with_bare(self, key: str, entry: DnsEntry) -> DnsEntry:
        namespace, _, name = key.partition("/")
        holders = (each for each in self._bare[name] if each.partition("/")[0] in self._short)
        if min(holders, key=_precedence, default="") != key:
            return entry
        base = f"{name}.{namespace}.svc"
        own = (row for row in entry["records"] if row[0] == base and row[1] in {"A", "AAAA"})
        short = [[short_name(name), row[1], row[2]] for row in own]
        return {**entry, "records": [*entry["records"], *short]}


def _precedence(key: str) -> tuple[bool, str]:
    return (not key.startswith("default/"), key)
