"""What a Service's pods offer: for each pod its address, its state and the numbers of the Service's ports there.

Shared by EndpointSlices and Endpoints. Source: kubernetes ``pkg/controller/util/endpoint`` (``ShouldPodBeInEndpoints``)
and ``pkg/controller/endpointslice`` (``podToEndpoint``, ``getEndpointPorts``). Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.controllers.core import pods as podlib

HEADLESS = "None"
ZONE = "topology.kubernetes.io/zone"


class Port(NamedTuple):
    """One port of a Service as a pod offers it; "" for what is not said."""

    name: str
    protocol: str
    number: int
    app_protocol: str = ""

    def to_json(self) -> JsonObject:
        """Return the port of an EndpointSlice."""
        fields: JsonObject = {"name": self.name, "protocol": self.protocol, "port": self.number}
        return {**fields, "appProtocol": self.app_protocol} if self.app_protocol else fields


Ports = tuple[Port, ...]


class Offer(NamedTuple):
    """One pod behind a Service."""

    pod: JsonObject
    address: str
    ports: Ports
    ready: bool
    serving: bool
    terminating: bool
    zone: str = ""
    """The zone of its node, "" for none."""


def _nowhere(_node: str) -> str:
    return ""


def families_of(service: JsonObject) -> list[str]:
    """Return the families of the addresses that a Service stands for."""
    declared = objects.spec(service)
    usual = "IPv6" if ":" in str(declared.get("clusterIP") or "") else "IPv4"
    return [str(one) for one in declared.get("ipFamilies") or (usual,)]


def address_of(pod: JsonObject, family: str) -> str:
    """Return a pod's address of a family, "" for none."""
    status = objects.status(pod)
    first = str(status.get("podIP") or "")
    if family == "IPv4":
        return "" if ":" in first else first
    given = (str(each.get("ip")) for each in status.get("podIPs") or [{"ip": first}])
    return next((each for each in given if ":" in each), "")


def offers(
    service: JsonObject,
    pods: Iterable[JsonObject],
    zone_of: Callable[[str], str] = _nowhere,
    family: str = "IPv4",
) -> list[Offer]:
    """Return what the pods (that the Service selects) offer, by address; without those that are over or have none.

    ``zone_of`` returns the zone of a node.
    """
    running = [pod for pod in pods if not podlib.has_ended(pod) and address_of(pod, family)]
    found = [_offer(service, pod, zone_of(str(objects.spec(pod).get("nodeName") or "")), family) for pod in running]
    return sorted(found, key=lambda offer: (offer.address, objects.uid(offer.pod)))


def zone_of_node(node: JsonObject | None) -> str:
    """Return the zone that a Node is in, "" for none."""
    return objects.labels(node).get(ZONE, "") if node is not None else ""


def _offer(service: JsonObject, pod: JsonObject, zone: str, family: str) -> Offer:
    serving, terminating = podlib.is_ready(pod), objects.is_deleting(pod)
    ready = bool(objects.spec(service).get("publishNotReadyAddresses")) or (serving and not terminating)
    return Offer(pod, address_of(pod, family), ports_of(service, pod), ready, serving, terminating, zone)


def ports_of(service: JsonObject, pod: JsonObject) -> Ports:
    """Return the Service's ports with the numbers they have in this pod; a name the pod does not know is left out."""
    found = []
    for port in objects.spec(service).get("ports") or []:
        protocol = port.get("protocol") or "TCP"
        number = target_number(port, pod, protocol)
        if number:
            found.append(Port(port.get("name") or "", protocol, number, port.get("appProtocol") or ""))
    return tuple(found)


def target_number(port: JsonObject, pod: JsonObject, protocol: str) -> int:
    """Return the number of a port's target in a pod, 0 when no container has a port of that name and protocol."""
    target = port.get("targetPort") or port["port"]
    if isinstance(target, int):
        return target
    for _, _, container in objects.all_containers(pod):
        for declared in container.get("ports") or []:
            if declared.get("name") == target and (declared.get("protocol") or "TCP") == protocol:
                return int(declared["containerPort"])
    return 0


def hostname_of(service: JsonObject, pod: JsonObject) -> str:
    """Return the name a pod has below a headless Service's, "" for none."""
    spec = objects.spec(pod)
    return str(spec.get("hostname") or "") if spec.get("subdomain") == objects.name(service) else ""


def reference(pod: JsonObject) -> JsonObject:
    """Return the target reference of a pod."""
    return {
        "kind": "Pod",
        "namespace": objects.namespace(pod),
        "name": objects.name(pod),
        "uid": objects.uid(pod),
    }


def is_headless(service: JsonObject) -> bool:
    """Return whether the Service has no address of its own on purpose."""
    return objects.spec(service).get("clusterIP") == HEADLESS


def has_endpoints(service: JsonObject) -> bool:
    """Return whether endpoints of this Service come from a selector."""
    declared = objects.spec(service)
    return bool(declared.get("selector")) and declared.get("type") != "ExternalName"
