"""Cluster IPs and node ports of Services: who has which, decided by etcd.

What is in use is claimed by a key below ``ADDRESSES`` or ``PORTS`` that is made before the Service is written and
removed after it has gone, or has let go of it. Creating a key fails where it exists, so two servers cannot give one
address to two Services. A crash in between leaves a claim without a Service, which ``repair`` removes when it is older
than ``ORPHAN_S``, or a Service without its claim, which ``repair`` makes. It looks each minute, so a fixed address or
node port that a dead server had claimed is refused for up to two minutes.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Iterable

import orjson

from minik8s_modules.api.errors import Cause, InternalError, Invalid
from minik8s_modules.api.kinds import SERVICE
from minik8s_modules.api.lifecycle.service_strategy import HEALTH_PORT, needs_health_port, needs_node_ports
from minik8s_modules.api.network.load_balancers import NODE_PORTS
from minik8s_modules.api.network.service_ranges import Network, addresses_of, candidates, port_candidates
from minik8s_modules.api.objects import JsonObject, name, namespace, spec, uid
from minik8s_modules.apiserver.admission.service_families import IPV4, IPV6, settle_families
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.store import readable
from minik8s_modules.store.errors import KeyExists, KeyMissing, StaleWrite

log = logging.getLogger(__name__)

ADDRESSES = "/minik8s/service-addresses/"
PORTS = "/minik8s/service-node-ports/"
ORPHAN_S = 60
HEADLESS = "None"
_PORT_SPAN = f"{NODE_PORTS.start}-{NODE_PORTS.stop - 1}"
# the latter may name ports of its own, and ask for no others
_WITH_PORTS = frozenset({"NodePort", "LoadBalancer"})


def needs_address(service: JsonObject) -> bool:
    """Return whether a Service of this type has a cluster IP."""
    return spec(service).get("type") != "ExternalName" and spec(service).get("clusterIP") != HEADLESS


def address_key(address: str) -> str:
    """Return the key that claims an address, however it is written."""
    return ADDRESSES + str(ipaddress.ip_address(address))


def held(service: JsonObject | None) -> set[str]:
    """Return the keys that the Service as it stands has to have claimed."""
    if service is None:
        return set()
    keys = set()
    if needs_address(service):
        keys |= {address_key(address) for address in addresses_of(spec(service))}
    if spec(service).get("type") in _WITH_PORTS:
        keys |= {f"{PORTS}{port['nodePort']}" for port in spec(service).get("ports") or [] if port.get("nodePort")}
    if needs_health_port(spec(service)) and (port := spec(service).get(HEALTH_PORT)):
        keys.add(f"{PORTS}{port}")
    return keys


class Claims:
    """What one write of a Service claims: in place, before it is stored."""

    def __init__(self, backend: Backend, service: JsonObject, old: JsonObject | None, *, dry_run: bool) -> None:
        self._backend, self._service, self._old, self._dry_run = backend, service, old, dry_run
        self._had = held(old)
        self.made: list[str] = []

    def make(self) -> list[str]:
        """Give the Service its address and node ports; those of its former self it keeps.

        Returns:
            What of that leads nowhere, as the cluster has its range no more.

        Raises:
            Invalid: what it names is out of range, or another Service's; it requires families that it cannot have.
            InternalError: a range is used up.
        """
        settle_families(self._service, self._old, configured=self._families())
        if needs_address(self._service):
            self._addresses()
        checked = needs_health_port(spec(self._service))
        if checked and (number := spec(self._service).get(HEALTH_PORT)):  # before any other takes it for itself
            self._named_port(f"spec.{HEALTH_PORT}", number)
        if spec(self._service).get("type") in _WITH_PORTS:
            self._node_ports()
        if checked and not spec(self._service).get(HEALTH_PORT):
            self._service["spec"][HEALTH_PORT] = self._any_port()
        return self._lost()

    def undo(self) -> None:
        """Give back what was claimed: the Service could not be stored."""
        if not self._dry_run:  # which has made nothing, and meanwhile another write may have
            release(self._backend, self.made, uid(self._service))

    def done(self) -> None:
        """Give back what the Service had and has no more."""
        if not self._dry_run:
            release(self._backend, self._had - held(self._service), uid(self._service))

    def _families(self) -> list[str]:
        if self._backend.service_cidr.version == 6:  # noqa: PLR2004 - Pods have IPv6 addresses alone
            return [IPV6]
        headless = spec(self._service).get("clusterIP") == HEADLESS
        second = self._backend.dual_stack if headless else self._backend.service_cidr_ipv6 is not None
        return [IPV4, IPV6] if second else [IPV4]

    def _lost(self) -> list[str]:
        if IPV6 in self._families() or not needs_address(self._service):
            return []
        way = "set ipFamilyPolicy to SingleStack, or make a new Service where its first family is IPv6"
        return [
            f"spec.clusterIPs: nobody reaches {address}: the cluster has no range of IPv6 for Services; {way}"
            for address in addresses_of(spec(self._service))
            if ":" in address
        ]

    def _addresses(self) -> None:
        declared = self._service.setdefault("spec", {})
        asked, given = addresses_of(declared), list[str]()
        for index, family in enumerate(declared["ipFamilies"]):
            field = "spec.clusterIP" if index == 0 else f"spec.clusterIPs[{index}]"
            wanted = asked[index] if index < len(asked) else ""
            given.append(self._asked(field, wanted, family) if wanted else self._any_of(family))
        declared["clusterIP"] = given[0]  # where it was given, validation has seen that it is the same
        declared["clusterIPs"] = given

    def _range_of(self, family: str) -> Network:
        second = self._backend.service_cidr_ipv6
        return second if family == IPV6 and second is not None else self._backend.service_cidr

    def _asked(self, field: str, address: str, family: str) -> str:
        cidr, key = self._range_of(family), address_key(address)
        if key not in self._had and ipaddress.ip_address(address) not in cidr:
            text = f"the provided IP is not in the valid range {cidr}"
            raise self._refused(field, address, f"failed to allocate IP {address}: {text}")
        self._named(key, field, address, f"failed to allocate IP {address}: provided IP")
        return address

    def _any_of(self, family: str) -> str:
        cidr = self._range_of(family)
        return self._free(ADDRESSES, candidates(cidr), "serviceIP", str(cidr))

    def _node_ports(self) -> None:
        ports = spec(self._service).get("ports") or []
        for index, port in enumerate(ports):
            if number := port.get("nodePort"):
                self._named_port(f"spec.ports[{index}].nodePort", number)
        for port in ports if needs_node_ports(spec(self._service)) else ():
            if not port.get("nodePort"):
                port["nodePort"] = self._free_port(port, ports)

    def _named_port(self, field: str, number: int) -> None:
        if number not in NODE_PORTS:
            text = f"The range of valid ports is {NODE_PORTS.start}-{NODE_PORTS.stop - 1}"
            raise self._refused(field, number, f"provided port is not in the valid range. {text}")
        self._named(f"{PORTS}{number}", field, number, "provided port")

    def _free_port(self, port: JsonObject, ports: Iterable[JsonObject]) -> int:
        """Return a node port: that of the same port over the other protocol if there is one, else a free one."""
        for other in ports:
            same = other.get("port") == port.get("port") and other.get("protocol") != port.get("protocol")
            if same and other.get("nodePort"):
                return int(other["nodePort"])
        return self._any_port()

    def _any_port(self) -> int:
        return int(self._free(PORTS, map(str, port_candidates()), "node port", _PORT_SPAN))

    def _named(self, key: str, field: str, value: object, what: str) -> None:
        if key in self._had or key in self.made:
            return
        if not self._claim(key):
            raise self._refused(field, value, f"{what} is already allocated{_holder(self._backend, key)}")

    def _refused(self, field: str, value: object, why: str) -> Invalid:
        shown = f'"{value}"' if isinstance(value, str) else value
        return Invalid(
            SERVICE, name(self._service), [Cause("FieldValueInvalid", f"Invalid value: {shown}: {why}", field)]
        )

    def _free(self, prefix: str, every: Iterable[str], what: str, span: str) -> str:
        taken = {entry.key.removeprefix(prefix) for entry in self._backend.store.range(prefix).entries}
        for one in every:
            if one not in taken and prefix + one not in self.made and self._claim(prefix + one):
                return one
        raise InternalError(
            f"failed to allocate a {what}: range {span} is full; delete Services or use"
            + (" clusterIP: None" if prefix == ADDRESSES else " type: ClusterIP")
        )

    def _claim(self, key: str) -> bool:
        if self._dry_run:  # those before it in a plan claim nothing either
            services = readable.objects_of(SERVICE, self._backend.cache.list(SERVICE.prefix).items)
            if self._backend.store.get(key) is not None or any(key in held(each) for each in services):
                return False
        elif not _create(self._backend, key, self._service):
            return False
        self.made.append(key)
        return True


def _create(backend: Backend, key: str, service: JsonObject) -> bool:
    holder = {"namespace": namespace(service), "name": name(service), "uid": uid(service)}
    value = {**holder, "claimed": int(backend.clock.now().timestamp())}
    try:
        backend.store.create(key, orjson.dumps(value))
    except KeyExists:
        return False
    return True


def _holder(backend: Backend, key: str) -> str:
    entry = backend.store.get(key)
    if entry is None:
        return ""
    found = orjson.loads(entry.value)
    return f" to service {found.get('namespace')}/{found.get('name')}"


def release(backend: Backend, keys: Iterable[str], holder: str) -> None:
    """Give back what is claimed for the Service with uid ``holder``; what is another's stays."""
    for key in keys:
        entry = backend.store.get(key)
        if entry is None or orjson.loads(entry.value).get("uid") != holder:
            continue
        try:
            backend.store.delete(entry.key, entry.revision)
        except (KeyMissing, StaleWrite):
            continue


def repair(backend: Backend) -> None:
    """Remove old claims that no Service stands for, and claim what Services have without one."""
    items = backend.cache.list(SERVICE.prefix).items
    services = readable.objects_of(SERVICE, items)
    unread = {uid(item.object) for item in items} - {uid(service) for service in services}
    wanted = {key: service for service in services for key in held(service)}
    oldest = backend.clock.now().timestamp() - ORPHAN_S
    known = {entry.key: entry for prefix in (ADDRESSES, PORTS) for entry in backend.store.range(prefix).entries}
    for key, entry in known.items():
        claim = orjson.loads(entry.value)
        stands = claim.get("uid") in unread or (key in wanted and uid(wanted[key]) == claim.get("uid"))
        if not stands and claim.get("claimed", 0) < oldest:
            release(backend, [key], claim.get("uid", ""))
    for key, service in wanted.items():
        if key not in known and _create(backend, key, service):
            log.warning("service %s/%s had lost its claim %s", namespace(service), name(service), key)
