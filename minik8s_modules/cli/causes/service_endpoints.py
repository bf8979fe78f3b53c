"""What is behind a Service, and why a pod that it selects is not: for ``why``, ``describe`` and ``trace``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import ENDPOINT_SLICE, EVENT, NODE, POD, SERVICE
from minik8s_modules.api.network.load_balancers import (
    FINALIZER,
    WITHOUT_ADDRESS,
    decide_announcer,
    is_local,
    serving_nodes,
)
from minik8s_modules.api.network.surroundings import machines_of
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.places import place
from minik8s_modules.cli.causes.faults import Fault, kubectl, resource, unrecovered
from minik8s_modules.cli.causes.pods import pod_cause
from minik8s_modules.cli.causes.surroundings import Around

SERVICE_NAME = "kubernetes.io/service-name"
CauseOf = Callable[[JsonObject], str]


class Behind(NamedTuple):
    """The slices of a Service and the pods that it selects."""

    slices: Sequence[JsonObject]
    pods: Sequence[JsonObject]
    probes: Mapping[str, str] = {}
    """What a failing probe said last, by the UID of its pod."""


def behind(around: Around, service: JsonObject) -> Behind:
    """Return what is behind a Service; ``around.unread`` says what could not be read."""
    namespace = objects.namespace(service)
    slices = around.selected(ENDPOINT_SLICE, namespace, f"{SERVICE_NAME}={objects.name(service)}")
    wanted = objects.spec(service).get("selector") or {}
    labels = ",".join(f"{key}={value}" for key, value in sorted(wanted.items()))
    pods = around.selected(POD, namespace, labels) if wanted else []
    unready = {objects.uid(pod) for pod in pods if (objects.condition(pod, "Ready") or {}).get("status") != "True"}
    return Behind(slices, pods, _probes(around, namespace, unready) if unready else {})


def _probes(around: Around, namespace: str, pods: AbstractSet[str]) -> dict[str, str]:
    """Return what failing probes said last, by the UID of the pod."""
    events = around.all(EVENT, namespace, fields="involvedObject.kind=Pod,reason=Unhealthy")
    ordered = sorted(events, key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""))
    messages = (
        (str(objects.dig(event, "involvedObject", "uid") or ""), str(event.get("message"))) for event in ordered
    )
    return {uid: " ".join(message.split()) for uid, message in messages if uid in pods}


def endpoints(found: Behind) -> Iterator[tuple[str, str]]:
    """Yield (address:port, what stands there) of each endpoint."""
    for one in found.slices:
        numbers = [port["port"] for port in one.get("ports") or [] if port.get("port")]
        for endpoint in one.get("endpoints") or []:
            address = str(endpoint["addresses"][0])
            yield ",".join(place(address, number) for number in numbers or ["?"]), _about(endpoint)


def _about(endpoint: JsonObject) -> str:
    conditions = endpoint.get("conditions") or {}
    state = (
        "ready"
        if conditions.get("ready") is not False
        else "serving while it ends"
        if conditions.get("serving")
        else "not ready"
    )
    target = endpoint.get("targetRef") or {}
    who = f"{target.get('kind', '').lower()} {target.get('name')}, " if target else ""
    where = f", node {endpoint['nodeName']}" if endpoint.get("nodeName") else ""
    return f"{who}{state}{where}"


def absentees(service: JsonObject, found: Behind, cause_of: CauseOf) -> Iterator[tuple[str, str]]:
    """Yield (pod, why it is not among the ready endpoints, or not for all ports) of the pods that a Service selects."""
    ready = {
        (endpoint.get("targetRef") or {}).get("uid")
        for one in found.slices
        for endpoint in one.get("endpoints") or []
        if one.get("ports") and (endpoint.get("conditions") or {}).get("ready") is not False
    }
    for pod in found.pods:
        if objects.uid(pod) not in ready:
            yield objects.name(pod), _why_absent(service, pod, cause_of, found.probes.get(objects.uid(pod), ""))
        elif unknown := _unknown_ports(service, pod):
            yield objects.name(pod), f"{unknown}; it is an endpoint of the other ports"


def _unknown_ports(service: JsonObject, pod: JsonObject) -> str:
    unknown = [port["targetPort"] for port in objects.spec(service).get("ports") or [] if not _has(pod, port)]
    return f"no container of it has a port named {', '.join(map(str, unknown))}" if unknown else ""


def _why_absent(service: JsonObject, pod: JsonObject, cause_of: CauseOf, probe: str) -> str:
    status = objects.status(pod)
    if status.get("phase") in ("Succeeded", "Failed"):
        return f"it is over ({status['phase']})"
    if objects.is_deleting(pod):
        return "it is being deleted"
    if not status.get("podIP"):
        missing = "address" if objects.spec(pod).get("nodeName") else "node"
        return f"it has no {missing} yet: {cause_of(pod) or 'it is on its way'}"
    ready = objects.condition(pod, "Ready") or {}
    if ready.get("status") != "True":
        cause = cause_of(pod)
        if probe and not cause.startswith(("node ", "container ")):  # conditions only count unready containers
            cause = probe
        return f"it is not ready: {cause or ready.get('message') or 'its readiness is not known yet'}"
    return _unknown_ports(service, pod) or "it became ready a moment ago"


def _has(pod: JsonObject, port: JsonObject) -> bool:
    target, protocol = port.get("targetPort"), port.get("protocol") or "TCP"
    every = (declared for _, _, one in objects.all_containers(pod) for declared in one.get("ports") or [])
    known = {(declared.get("name"), declared.get("protocol") or "TCP") for declared in every}
    return not isinstance(target, str) or (target, protocol) in known


def _pending(service: JsonObject, around: Around) -> Iterator[Fault]:
    """Yield what a Service of type LoadBalancer waits for; the reason is known as long as its Event is kept."""
    declared, namespace = objects.spec(service), objects.namespace(service)
    if declared.get("type") != "LoadBalancer" or objects.dig(service, "status", "loadBalancer", "ingress"):
        return
    ports = ", ".join(str(port["nodePort"]) for port in declared.get("ports") or [] if port.get("nodePort"))
    way = f"from outside it is reached on port {ports} of every node" if ports else "it is reached from pods only"
    told = [event for event in around.events(service) if event.get("reason") in WITHOUT_ADDRESS]
    why = f": {told[-1]['reason']}: {' '.join(str(told[-1].get('message')).split())}" if told else ""
    following = ("edit", resource(service)) if told else ("get", resource(service), "-o", "wide")
    yield Fault(f"no load balancer has given it an address{why}; {way}", kubectl(namespace, *following))


def announcing(around: Around, service: JsonObject, found: Behind) -> Iterator[tuple[str, str, bool]]:
    """Yield each address of the pool that a Service has, which node announces it, and whether any does."""
    if FINALIZER not in objects.finalizers(service):
        return
    points = objects.dig(service, "status", "loadBalancer", "ingress") or []
    addresses = [str(one["ip"]) for one in points if one.get("ip") and one.get("ipMode") == "VIP"]
    if not addresses:
        return
    machines = machines_of(around.all(NODE))
    if NODE.plural in around.unread:
        return
    local = serving_nodes(found.slices) if is_local(service) else None
    silent = [one.name for one in machines if one.silent]
    for address in addresses:
        node = decide_announcer(address, machines, local)
        gone = f", while {', '.join(silent)} is silent" if silent else ""
        who = f"announced by node {node}{gone}" if node else "announced by no node: none is Ready and has Pods of it"
        yield address, who, bool(node)


def leads_nowhere(service: JsonObject, found: Behind, cause_of: CauseOf) -> str:
    """Return why a Service has no ready endpoint in one line; empty when it has one, or leads to a name."""
    wanted = objects.spec(service).get("selector") or {}
    if objects.spec(service).get("type") == "ExternalName" or any(
        "not ready" not in what for _, what in endpoints(found)
    ):
        return ""
    if not wanted:
        return "it has no selector, and no endpoints have been created for it"
    missing = list(absentees(service, found, cause_of))
    if not missing:
        labels = ",".join(f"{key}={value}" for key, value in sorted(wanted.items()))
        return f"no pod of namespace {objects.namespace(service)} has the labels {labels}"
    name, why = missing[0]
    several = f"none of {len(missing)} pods is an endpoint; " if len(missing) > 1 else ""
    return f"{several}pod {name}: {why}"


def _without_family(service: JsonObject, found: Behind) -> str:
    """Return which of a Service's families leads nowhere, where the other one has endpoints."""
    families = objects.spec(service).get("ipFamilies") or []
    ready = {
        str(one.get("addressType"))
        for one in found.slices
        for endpoint in one.get("endpoints") or []
        if (endpoint.get("conditions") or {}).get("ready") is not False
    }
    missing = [family for family in families if family not in ready]
    if not missing or not ready.intersection(families):
        return ""
    lacking = (pod for pod in found.pods if not _has_family(pod, missing[0]))
    names = ", ".join(map(objects.name, lacking))
    addresses = [one for one in objects.spec(service).get("clusterIPs") or [] if (":" in one) == (missing[0] == "IPv6")]
    where = f" at {addresses[0]}" if addresses else ""
    why = f"; without such an address: pod {names}" if names else ""
    return f"it has no {missing[0]} endpoints, so nobody reaches it{where}{why}"


def _without_range(service: JsonObject, around: Around) -> Iterator[Fault]:
    """Yield which of a Service's addresses leads nowhere, as the cluster has its range no more; the server knows."""
    if any(":" in one for one in objects.spec(service).get("clusterIPs") or []):
        for text in around.warnings(SERVICE, service):
            if text.startswith("spec.clusterIPs"):
                yield Fault(text, kubectl(objects.namespace(service), "edit", resource(service)))


def _has_family(pod: JsonObject, family: str) -> bool:
    addresses = (str(one.get("ip")) for one in objects.status(pod).get("podIPs") or [])
    return any((":" in one) == (family == "IPv6") for one in addresses)


def service_faults(service: JsonObject, around: Around) -> Iterator[Fault]:
    """Yield why a Service leads nowhere, or not with all of its ports."""
    found, namespace = behind(around, service), objects.namespace(service)
    labels = ",".join(f"{key}={value}" for key, value in sorted((objects.spec(service).get("selector") or {}).items()))
    show = ["-l", labels, "-o", "wide"] if found.pods else ["--show-labels"]
    ready = [pod for pod in found.pods if (objects.condition(pod, "Ready") or {}).get("status") == "True"]
    lacking = [pod for pod in ready if _unknown_ports(service, pod)]
    for pod in lacking[:1]:
        several = f"{len(lacking)} of {len(ready)} pods are not behind all of its ports; " if lacking[1:] else ""
        message = f"{several}pod {objects.name(pod)}: {_unknown_ports(service, pod)}"
        yield Fault(message, kubectl(namespace, "edit", resource(service)))
    if cause := leads_nowhere(service, found, lambda pod: pod_cause(pod, around)):
        yield Fault(cause, kubectl(namespace, "get", "pods", *show))
    if cause := _without_family(service, found):
        yield Fault(cause, kubectl(namespace, "get", "pods", *show))
    yield from _without_range(service, around)
    yield from unrecovered(around.events(service), around.now)
    for address, who, is_announced in announcing(around, service, found):
        if not is_announced:
            yield Fault(f"address {address} is {who}", kubectl("", "get", "nodes"))
    yield from _pending(service, around)


def slice_faults(one: JsonObject, around: Around) -> Iterator[Fault]:
    """Yield that the Service of Endpoints or of an EndpointSlice does not exist."""
    namespace = objects.namespace(one)
    name = objects.name(one) if one["kind"] == "Endpoints" else objects.labels(one).get(SERVICE_NAME, "")
    if not name:
        yield Fault(f"it is of no Service: it has no label {SERVICE_NAME}", kubectl(namespace, "get", "services"))
    elif around.lacks(SERVICE, name, namespace):
        yield Fault(f"it is unused: there is no Service {name}", kubectl(namespace, "get", "services"))
