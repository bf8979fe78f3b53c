"""Why requests do not come in by a Gateway, or an HTTPRoute leads them nowhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import SERVICE
from minik8s_modules.api.network.gateway_api import GATEWAY_KINDS, name_of_parts
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.cli.causes.faults import Fault, kubectl, resource, why
from minik8s_modules.cli.causes.pods import pod_cause
from minik8s_modules.cli.causes.service_endpoints import behind, leads_nowhere, service_faults
from minik8s_modules.cli.causes.surroundings import Around
from minik8s_modules.controllers.network.gateways import differences
from minik8s_modules.mesh.gateways.attaching import gateway_of

_UNSEEN = "no pilot has decided on it: the cluster has no mesh (minik8s_mesh), its pilot does not run, or"
_PILOT = "kubectl -n kube-system get lease/minik8s-pilot"
_CONTROLLERS = "kubectl -n kube-system get lease/minik8s-controllers"


def gateway_faults(obj: JsonObject, around: Around) -> Iterator[Fault]:
    """Yield what its conditions and those of its listeners say, and what is wrong with the objects it runs as."""
    edit = kubectl(objects.namespace(obj), "edit", resource(obj))
    status = objects.status(obj)
    if not _decided(status):
        yield Fault(f"{_UNSEEN} GatewayClass {objects.spec(obj).get('gatewayClassName')} is not one of ours", _PILOT)
        return
    yield from _outdated(obj, status)
    for text in differences(obj, around.get):
        yield Fault(text, _CONTROLLERS)
    for each in status.get("listeners") or []:
        for text in _false(each, leave_out={"Conflicted", "Programmed"}):
            yield Fault(f"listener {each.get('name')}: {text}", edit)
    service = around.get(SERVICE, name_of_parts(objects.name(obj)), objects.namespace(obj))
    for fault in service_faults(service, around) if service is not None else ():
        yield Fault(f"Service {objects.name(service or {})}: {fault.cause}", fault.next)
    for text in _false(status):
        yield Fault(text, edit)


def route_faults(obj: JsonObject, around: Around) -> Iterator[Fault]:
    """Yield what its parents say against it, and which of its backends has nobody who answers."""
    namespace, spec = objects.namespace(obj), objects.spec(obj)
    parents = objects.status(obj).get("parents") or []
    if not parents:
        names = ", ".join(_parent(each) for each in spec.get("parentRefs") or []) or "none"
        yield Fault(f"{_UNSEEN} there is no such parent: {names}", _PILOT)
        return
    told = [_parent(each.get("parentRef") or {}) for each in parents]
    missing = [name for each in spec.get("parentRefs") or [] if (name := _parent(each)) not in told]
    if missing:
        edit = kubectl(namespace, "edit", resource(obj))
        yield Fault(f"nobody leads requests of {', '.join(missing)} by it: it is not there, or not one of ours", edit)
    for each in parents:
        yield from _outdated(obj, each, f"{_parent(each.get('parentRef') or {})}: ")
        for text in _false(each):
            yield Fault(f"{_parent(each.get('parentRef') or {})}: {text}", kubectl(namespace, "edit", resource(obj)))
    yield from _closed(obj, around)
    for key in dict.fromkeys(_backends(spec, namespace)):
        service = around.get(SERVICE, key.name, key.namespace)
        cause = leads_nowhere(service, behind(around, service), lambda pod: pod_cause(pod, around)) if service else ""
        if cause:
            yield Fault(f"backend {key}: {cause}", why(SERVICE, key.name, key.namespace))


def _outdated(obj: JsonObject, told: JsonObject, of: str = "") -> Iterator[Fault]:
    """Yield that conditions are of an earlier spec: a pilot writes them within a second of a change."""
    seen = [one["observedGeneration"] for one in told.get("conditions") or [] if one.get("observedGeneration")]
    if seen and max(seen) < objects.generation(obj):
        yield Fault(f"{of}no pilot has decided on its last change yet; what follows is of before", _PILOT)


def _closed(route: JsonObject, around: Around) -> Iterator[Fault]:
    """Yield why a Gateway that takes the route lets nothing in itself."""
    for each in objects.status(route).get("parents") or []:
        key, accepted = gateway_of(each.get("parentRef") or {}, route), objects.condition({"status": each}, "Accepted")
        if key is None or (accepted or {}).get("status") != "True":
            continue
        gateway = around.get(GATEWAY_KINDS.gateways, key.name, key.namespace)
        fault = next(gateway_faults(gateway, around), None) if gateway is not None else None
        if fault is not None:
            yield Fault(f"Gateway {key.name}: {fault.cause}", why(GATEWAY_KINDS.gateways, key.name, key.namespace))


def _decided(status: JsonObject) -> bool:
    found = objects.condition({"status": status}, "Accepted") or {}
    # upstream's definition begins every Gateway with this one
    return bool(found) and found.get("reason") != "Pending"


def _false(told: JsonObject, leave_out: Iterable[str] = ()) -> Iterator[str]:
    for one in told.get("conditions") or []:
        if one.get("status") == "False" and one.get("type") not in leave_out:
            yield f"{one.get('type')} is False: {one.get('reason')}: {one.get('message')}"


def _parent(ref: JsonObject) -> str:
    place = f"{ref['namespace']}/" if ref.get("namespace") else ""
    return f"{ref.get('kind') or 'Gateway'} {place}{ref.get('name')}"


def _backends(spec: JsonObject, namespace: str) -> Iterator[objects.Key]:
    for rule in spec.get("rules") or []:
        for ref in rule.get("backendRefs") or []:
            if (ref.get("kind") or "Service") == "Service":
                yield objects.Key(ref.get("namespace") or namespace, ref["name"])
