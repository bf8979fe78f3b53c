"""Pod IPs: one PodAddress object per address in use, named by it, so that creating it is the claim.

Two claimants cannot get one address, and a reconciler that lost its memory finds every claim again by its pod's UID. A
released address rests for a minute before it is given again: neighbours still know its former owner.
"""

from __future__ import annotations

import ipaddress
import logging
import threading
from collections.abc import Iterator
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.errors import AlreadyExists, NotFound
from minik8s_modules.api.kinds import POD_ADDRESS
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import Clock
from minik8s_modules.base.errors import Minik8sError
from minik8s_modules.client.interface import Api

log = logging.getLogger(__name__)
PLACES_IPV6 = 255
REST_S = 60.0
"""Linux forgets an unused neighbour after about this long (gc_stale_time)."""


class AddressesExhausted(Minik8sError):
    """Every address of a node's podCIDR is taken."""


class Claim(NamedTuple):
    """One address in use; ``object_uid`` is the PodAddress' own."""

    ip: str
    pod_uid: str
    node: str
    object_uid: str


def usable(cidr: str) -> Iterator[str]:
    """Yield the addresses of ``cidr`` that pods may have: all but network, gateway (the first) and broadcast.

    Of IPv6 they are as many as of a /24: node ports know the pods of a node by their places (services/nftables.py).
    """
    network = ipaddress.ip_network(cidr)
    if isinstance(network, ipaddress.IPv6Network):
        places = range(2, min(PLACES_IPV6, network.num_addresses))
        yield from (str(network.network_address + place) for place in places)
        return
    hosts = network.hosts()
    next(hosts, None)
    yield from (str(host) for host in hosts)


class AddressBook:
    """All claims, as the API tells them and as made here; thread-safe."""

    def __init__(self, api: Api, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._lock = threading.Lock()
        self._by_ip: dict[str, Claim] = {}
        self._by_uid: dict[str, str] = {}
        self._by_node: dict[str, dict[str, Claim]] = {}
        self._resting: dict[str, float] = {}
        self._pending: dict[str, str] = {}

    def on_change(self, old: JsonObject | None, new: JsonObject | None) -> None:
        """Take over a change of a PodAddress object; an informer's handler."""
        with self._lock:
            if new is not None:
                self._put(_claim(new))
            elif old is not None:
                self._drop(_claim(old))

    def of(self, pod_uid: str) -> str | None:
        """Return the pod's address, None when it has none."""
        with self._lock:
            return self._by_uid.get(pod_uid)

    def claims_of(self, pod_uid: str) -> list[Claim]:
        """Return all claims for the pod."""
        with self._lock:
            ip = self._by_uid.get(pod_uid)
            return [self._by_ip[ip]] if ip is not None else []

    def on_node(self, node: str) -> list[Claim]:
        """Return the claims of a node's pods."""
        with self._lock:
            return [*self._by_node.get(node, {}).values()]

    def taken(self) -> frozenset[str]:
        """Return the addresses that cannot be claimed now."""
        with self._lock:
            return self._taken()

    def claim(self, pod: JsonObject, node: str, cidr: str) -> str:
        """Return the pod's address in ``cidr``, claiming the lowest free one if it has none.

        Raises:
            AddressesExhausted: none is free.
            ApiUnreachable, StatusError: the API did not record the claim; none is held.
        """
        uid = objects.uid(pod)
        while True:
            with self._lock:
                if (known := self._by_uid.get(uid)) is not None:
                    return known
                ip = next((one for one in usable(cidr) if one not in self._taken()), None)
                if ip is None:
                    raise AddressesExhausted(f"no free address in {cidr}, the podCIDR of node {node}")
                self._pending[ip] = uid
            try:
                created = self._api.create(POD_ADDRESS, _object(pod, node, ip))
            except AlreadyExists:
                log.info("address %s is taken already", ip)
                with self._lock:
                    # the informer will tell by whom
                    self._resting[ip] = self._clock.monotonic() + REST_S
                continue
            finally:
                with self._lock:
                    self._pending.pop(ip, None)
            with self._lock:
                self._put(_claim(created))
            return ip

    def release(self, claim: Claim) -> None:
        """Give the address back. Raises as the API does; repeating is safe."""
        try:
            self._api.delete(POD_ADDRESS, claim.ip, uid=claim.object_uid)
        except NotFound:
            log.debug("address %s was released already", claim.ip)
        with self._lock:
            self._drop(claim)

    def _taken(self) -> frozenset[str]:
        now = self._clock.monotonic()
        self._resting = {ip: until for ip, until in self._resting.items() if until > now}
        return frozenset(self._by_ip) | frozenset(self._pending) | frozenset(self._resting)

    def _put(self, claim: Claim) -> None:
        self._by_ip[claim.ip] = claim
        self._by_uid[claim.pod_uid] = claim.ip
        self._by_node.setdefault(claim.node, {})[claim.ip] = claim
        self._resting.pop(claim.ip, None)

    def _drop(self, claim: Claim) -> None:
        known = self._by_ip.get(claim.ip)
        if known is None or known.object_uid != claim.object_uid:
            return
        del self._by_ip[claim.ip]
        self._by_node[claim.node].pop(claim.ip, None)
        if self._by_uid.get(claim.pod_uid) == claim.ip:
            del self._by_uid[claim.pod_uid]
        self._resting[claim.ip] = self._clock.monotonic() + REST_S


def _claim(obj: JsonObject) -> Claim:
    spec = objects.spec(obj)
    return Claim(objects.name(obj), str(spec.get("podUID") or ""), str(spec.get("nodeName") or ""), objects.uid(obj))


def _object(pod: JsonObject, node: str, ip: str) -> JsonObject:
    return {
        "apiVersion": "minik8s.io/v1",
        "kind": "PodAddress",
        "metadata": {"name": ip},
        "spec": {
            "podUID": objects.uid(pod),
            "podName": objects.name(pod),
            "podNamespace": objects.namespace(pod),
            "nodeName": node,
        },
    }
