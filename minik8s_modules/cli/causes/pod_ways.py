"""``trace pod/NAME``, or the address of a Pod: whether it answers, and which Services lead requests to it."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterator

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import ENDPOINT_SLICE, POD, SERVICE
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.selectors import from_map
from minik8s_modules.api.syntax import shortest_ip
from minik8s_modules.base.places import place
from minik8s_modules.cli.causes.calls import Line
from minik8s_modules.cli.causes.pods import pod_cause
from minik8s_modules.cli.causes.service_endpoints import absentees, behind
from minik8s_modules.cli.causes.sight import Sight
from minik8s_modules.cli.causes.surroundings import Around

_OVER = frozenset({"Succeeded", "Failed"})
_ALL = {4: "0.0.0.0", 6: "::"}  # noqa: S104 - opens no socket
"""What a Pod names as all of a machine's addresses of a family."""


def pod_at(sight: Sight, host: str) -> JsonObject | None:
    """Return the Pod that has an address of its own, however it is written; one that is over has given it back."""
    wanted = shortest_ip(host)
    for pod in sight.all(POD):
        if objects.spec(pod).get("hostNetwork") or objects.status(pod).get("phase") in _OVER:
            continue
        if wanted in (shortest_ip(str(one.get("ip"))) for one in objects.status(pod).get("podIPs") or ()):
            return pod
    return None


def host_port(sight: Sight, own: Collection[str], address: str, port: str) -> tuple[JsonObject, str] | None:
    """Return the Pod that has a port of the machine with these addresses at one of them, and the port of its own."""
    meant = ("", _ALL[ipaddress.ip_address(address).version], address)
    for pod in sight.all(POD):
        status = objects.status(pod)
        if status.get("phase") in _OVER or shortest_ip(str(status.get("hostIP") or "")) not in own:
            continue
        # with hostNetwork, too: the API server sets hostPort to containerPort there
        for one in (one for container in objects.lasting_containers(pod) for one in container.get("ports") or []):
            is_here = shortest_ip(one.get("hostIP") or "") in meant and one.get("protocol", "TCP") == "TCP"
            if is_here and str(one.get("hostPort")) == port:
                return pod, str(one["containerPort"])
    return None


def to_pod(sight: Sight, host: str, port: str, pod: JsonObject) -> Iterator[Line]:
    """Yield the stations of a request to a Pod's own address, then the Services that select it.

    Args:
        sight: what is seen of the cluster.
        host: how the Pod was named, by its name or an address.
        port: a number or the name of one, "" where none was said.
        pod: the Pod.
    """
    key, around = objects.key(pod), Around(sight.client)
    own = str(objects.status(pod).get("podIP") or "")
    address = own if host == objects.name(pod) else host
    number = port if not port or port.isdigit() else _number(pod, port)
    if number is None:
        yield Line("name", f"no container of Pod {key} has a port named {port}", broken=True)
        return
    led = (place(address, number) if number else address) if own else "no address yet"
    yield Line("name", f"{host} → {led} (Pod {key})", broken=not own)
    ready = (objects.condition(pod, "Ready") or {}).get("status") == "True"
    node = objects.spec(pod).get("nodeName")
    state = "ready" if ready else pod_cause(pod, around) or "not ready"
    yield Line("pod", f"{f'on node {node}' if node else 'on no node yet'}, {state}", broken=not ready)
    yield from _services(sight, around, pod)


def _number(pod: JsonObject, name: str) -> str | None:
    declared = (one for _, _, container in objects.all_containers(pod) for one in container.get("ports") or [])
    return next((str(one["containerPort"]) for one in declared if one.get("name") == name), None)


def _services(sight: Sight, around: Around, pod: JsonObject) -> Iterator[Line]:
    """Yield which Services select a Pod, and why one of them does not lead to it."""
    namespace, labels = objects.namespace(pod), objects.labels(pod)
    selecting = [
        one
        for one in around.all(SERVICE, namespace)
        if objects.spec(one).get("type") != "ExternalName"  # such a name leads to no Pod, whatever it selects
        and from_map(objects.spec(one).get("selector")).matches(labels)
    ]
    found = {str(objects.key(one)): _absence(around, one, pod) for one in selecting}
    hidden = {kind.plural for kind in (SERVICE, ENDPOINT_SLICE, POD)} & around.unread
    sight.unread |= {plural: f"{plural} of namespace {namespace}" for plural in hidden}
    for service, absence in found.items():
        known = "selects it" if hidden else f"does not lead to it: {absence}" if absence else "leads to it"
        yield Line("service", f"{service} {known}")
    if not found and not hidden:
        yield Line("service", f"no Service of namespace {namespace} selects it")


def _absence(around: Around, service: JsonObject, pod: JsonObject) -> str:
    told = absentees(service, behind(around, service), lambda one: pod_cause(one, around))
    return dict(told).get(objects.name(pod), "")
