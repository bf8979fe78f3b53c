"""Fields of a Service that hang together: ``clusterIP`` and ``clusterIPs``, and what only its former type had.

Source: kubernetes ``pkg/registry/core/service`` (``normalizeClusterIPs``, ``patchAllocatedValues``,
``dropTypeDependentFields``). The plural follows the singular, for clients that know only that one; never the other way
round. Nothing is refused here: what still contradicts itself is ``validation/services.py``'s to tell.
"""

from __future__ import annotations

from minik8s_modules.api.objects import JsonObject

_OUTSIDE = frozenset({"NodePort", "LoadBalancer"})
_BALANCED = ("allocateLoadBalancerNodePorts", "loadBalancerClass")
HEALTH_PORT = "healthCheckNodePort"
_FAMILY_FIELDS = ("ipFamilies", "ipFamilyPolicy")


def needs_node_ports(declared: JsonObject) -> bool:
    """Return whether each port of a service with this spec gets a port on every node (``needsNodePort``)."""
    balanced = declared.get("type") == "LoadBalancer" and declared.get("allocateLoadBalancerNodePorts") is not False
    return balanced or declared.get("type") == "NodePort"


def needs_health_port(declared: JsonObject) -> bool:
    """Return whether load balancers ask nodes for Pods of a service with this spec (``NeedsHealthCheck``)."""
    return declared.get("type") == "LoadBalancer" and declared.get("externalTrafficPolicy") == "Local"


def prepare_service(declared: JsonObject) -> None:
    """Complete the spec of a new service, in place."""
    if declared.get("clusterIP") and not declared.get("clusterIPs"):
        declared["clusterIPs"] = [declared["clusterIP"]]


def prepare_service_update(new: JsonObject, old: JsonObject) -> None:
    """Put into the spec ``new``, in place, what follows from its former self."""
    before = dict(old)
    prepare_service(before)  # headless services were once stored without clusterIPs
    _keep_allocated(new, before)
    _align(new, before)
    _keep_policy(new, before)
    _release_family(new, before)
    if needs_health_port(before) and not needs_health_port(new) and _same(new, before, HEALTH_PORT):
        new.pop(HEALTH_PORT, None)
    _drop_of_former_type(new, before)


def _keep_allocated(new: JsonObject, old: JsonObject) -> None:
    """Carry over what was allocated to a service when a full update leaves it out (``patchAllocatedValues``)."""
    if "ExternalName" in {new.get("type"), old.get("type")}:
        return
    for field in ("clusterIP", "clusterIPs"):
        if not new.get(field) and old.get(field):
            new[field] = old[field]
    if needs_health_port(new) and needs_health_port(old) and not new.get(HEALTH_PORT) and old.get(HEALTH_PORT):
        new[HEALTH_PORT] = old[HEALTH_PORT]
    if needs_node_ports(new) and needs_node_ports(old):
        given = {(p.get("protocol"), p.get("port")): p.get("nodePort") for p in old.get("ports") or []}
        for port in new.get("ports") or []:
            node_port = given.get((port.get("protocol"), port.get("port")))
            if node_port and not port.get("nodePort"):
                port["nodePort"] = node_port


def _align(new: JsonObject, old: JsonObject) -> None:
    """Let ``clusterIPs`` follow ``clusterIP`` where an update changed only the latter (``normalizeClusterIPs``)."""
    address, before = new.get("clusterIP") or "", old.get("clusterIP") or ""
    if address == before and not new.get("clusterIPs") and old.get("clusterIPs"):
        new["clusterIPs"] = old["clusterIPs"]
    elif address != before and _same(new, old, "clusterIPs"):
        new.pop("clusterIPs", None)
        prepare_service(new)


def _keep_policy(new: JsonObject, old: JsonObject) -> None:
    """Take over the policy where an update names none (``initIPFamilyFields``)."""
    if new.get("type") != "ExternalName" and not new.get("ipFamilyPolicy") and old.get("ipFamilyPolicy"):
        new["ipFamilyPolicy"] = old["ipFamilyPolicy"]


def _release_family(new: JsonObject, old: JsonObject) -> None:
    """Let go of the second family where an update changed only the policy (``initIPFamilyFields``)."""
    if new.get("ipFamilyPolicy") != "SingleStack":
        return
    for field in ("clusterIPs", "ipFamilies"):
        if _same(new, old, field) and len(new.get(field) or []) > 1:
            new[field] = new[field][:1]


def _same(new: JsonObject, old: JsonObject, field: str) -> bool:
    return bool((new.get(field) or None) == (old.get(field) or None))


def _drop_of_former_type(new: JsonObject, old: JsonObject) -> None:
    """Take out what only the former type had, unless the update names another value (``dropTypeDependentFields``)."""
    if new.get("type") == old.get("type"):
        return
    if new.get("type") == "ExternalName":
        addresses = ("clusterIP", "clusterIPs")
        gone = addresses if all(_same(new, old, field) for field in addresses) else ()
        for field in (*gone, *(each for each in _FAMILY_FIELDS if _same(new, old, each))):
            new.pop(field, None)
    if new.get("type") not in _OUTSIDE and old.get("type") in _OUTSIDE and _same(new, old, "externalTrafficPolicy"):
        new.pop("externalTrafficPolicy", None)
    for field in _BALANCED if old.get("type") == "LoadBalancer" else ():
        if _same(new, old, field):
            new.pop(field, None)
    if old.get("type") in _OUTSIDE and not needs_node_ports(new):
        given = {port.get("nodePort") for port in old.get("ports") or []}
        for port in new.get("ports") or []:
            if port.get("nodePort") in given:
                port.pop("nodePort", None)
