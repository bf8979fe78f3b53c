"""Why a VirtualService splits nothing, a Subset gets no requests, and a RollingUpdate does not go on."""

from __future__ import annotations

from collections.abc import Iterator

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import POD, VIRTUAL_SERVICE
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.cli.causes.faults import Fault, kubectl, resource, unrecovered, why
from minik8s_modules.cli.causes.pods import pod_cause
from minik8s_modules.cli.causes.surroundings import Around


def virtual_service_faults(obj: JsonObject, around: Around) -> Iterator[Fault]:
    """Yield what the pilot says against it, or that none has said anything."""
    yield from _of_conditions(obj, kubectl(objects.namespace(obj), "edit", resource(obj)))
    yield from unrecovered(around.events(obj), around.now)


def policy_faults(obj: JsonObject, around: Around) -> Iterator[Fault]:
    """Yield why an AuthorizationPolicy is not enforced everywhere, as the pilot says."""
    yield from _of_conditions(obj, kubectl(objects.namespace(obj), "describe", resource(obj)))
    yield from unrecovered(around.events(obj), around.now)


def _of_conditions(obj: JsonObject, lead: str) -> Iterator[Fault]:
    conditions = objects.status(obj).get("conditions") or []
    if not conditions:
        message = "no pilot has decided on it: the cluster has no mesh (minik8s_mesh), or its pilot does not run"
        yield Fault(message, "kubectl -n kube-system get lease/minik8s-pilot")
    for one in conditions:
        if one.get("status") != "True":
            yield Fault(f"{one.get('reason')}: {one.get('message')}", lead)


def subset_faults(obj: JsonObject, around: Around) -> Iterator[Fault]:
    """Yield that a Subset names Pods that there are not, or that no VirtualService refers to it."""
    namespace, name = objects.namespace(obj), objects.name(obj)
    there = {objects.name(pod) for pod in around.all(POD, namespace)}
    splits = [each for each in around.all(VIRTUAL_SERVICE, namespace) if _names(each, name)]
    if around.unread & {POD.plural, VIRTUAL_SERVICE.plural}:
        return
    missing = sorted(set(objects.spec(obj).get("pods") or []) - there)
    if missing:
        yield Fault(f"there is no Pod {', '.join(missing)}", kubectl(namespace, "get", "pods"))
    if not splits:
        yield Fault("no VirtualService refers to it", kubectl(namespace, "get", "virtualservices"))
    for each in splits:
        for fault in virtual_service_faults(each, around):
            split = objects.name(each)
            yield Fault(f"VirtualService {split}: {fault.cause}", why(VIRTUAL_SERVICE, split, namespace))


def rolling_update_faults(obj: JsonObject, around: Around) -> Iterator[Fault]:
    """Yield what keeps it from beginning, and what its batch waits for: sidecars, and Pods that are not ready."""
    status, namespace = objects.status(obj), objects.namespace(obj)
    condition = objects.condition(obj, "Progressing")
    if condition is None:
        yield Fault("no controller has decided on it", "kubectl -n kube-system get lease/minik8s-controllers")
        return
    reason, message = condition.get("reason"), f"{condition.get('reason')}: {condition.get('message')}"
    if status.get("phase") == "Pending":
        yield Fault(message, kubectl(namespace, "edit", resource(obj)))
    elif reason == "WaitsForSidecars":
        yield Fault(message, kubectl("kube-system", "get", "lease/minik8s-pilot"))
    elif reason in {"PodsNotReady", "MinimumAlive"}:
        names = {each.get("name") for each in status.get("pods") or []}
        pods = [pod for pod in around.all(POD, namespace) if objects.name(pod) in names]
        found = [(objects.name(pod), pod_cause(pod, around)) for pod in pods]
        causes = [Fault(f"{message}: {cause}", why(POD, name, namespace)) for name, cause in found if cause]
        yield from causes or [Fault(message, kubectl(namespace, "get", "pods"))]


def _names(virtual: JsonObject, subset: str) -> bool:
    return any(one.get("name") == subset for one in objects.spec(virtual).get("subsets") or [])
