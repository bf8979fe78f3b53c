"""The resources a running pod has been given, where its spec asks for others (in-place resize).

The spec says what is wanted. What the node has room for stands in the pod's status: ``allocatedResources`` of a
container are its requests, and ``resources`` what it runs with. Nothing else remembers it, so whoever reads a pod knows
both. Source: kubernetes pkg/kubelet/allocation, k8s.io/component-helpers ``resource/helpers.go`` (PodRequests).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from minik8s_modules.api import quantities
from minik8s_modules.api.objects import JsonObject, condition, lasting_containers, spec, status
from minik8s_modules.api.pods import resources

PENDING, IN_PROGRESS = "PodResizePending", "PodResizeInProgress"
INFEASIBLE, DEFERRED, ERROR = "Infeasible", "Deferred", "Error"
COMPUTE = resources.COMPUTE
RESTART = "RestartContainer"


def recorded(pod: JsonObject) -> dict[str, JsonObject]:
    """Return by container the ``allocatedResources`` and ``resources`` that the pod's status tells."""
    known = status(pod)
    return {
        str(one.get("name")): one
        for field in ("initContainerStatuses", "containerStatuses")
        for one in known.get(field) or []
        if "resources" in one
    }


def allocated_of(container: JsonObject, reported: JsonObject | None) -> JsonObject:
    """Return the resources the container was given last; its own where nothing is told of it."""
    if reported is None:
        return dict(container.get("resources") or {})
    return given(reported.get("allocatedResources") or {}, (reported.get("resources") or {}).get("limits") or {})


def given(requests: Mapping[str, Any], limits: Mapping[str, Any]) -> JsonObject:
    """Return ``resources`` with these parts, without empty ones."""
    return {**({"limits": dict(limits)} if limits else {}), **({"requests": dict(requests)} if requests else {})}


def requests_of(resources: JsonObject) -> JsonObject:
    """Return the requests that ``resources`` come to: a limit is one where none is given."""
    return {**(resources.get("limits") or {}), **(resources.get("requests") or {})}


def same(one: JsonObject, other: JsonObject) -> bool:
    """Return whether two ``resources`` ask for the same amounts."""
    # nearly all pods have them word for word, and every scheduler asks of every pod
    return one == other or not any(changed(one, other, name) for name in _names(one, other))


def changed(one: JsonObject, other: JsonObject, name: str) -> bool:
    """Return whether two ``resources`` differ in the resource ``name``."""
    sides = ((requests_of(one), requests_of(other)), (one.get("limits") or {}, other.get("limits") or {}))
    return any(quantities.parse(a.get(name) or "0") != quantities.parse(b.get(name) or "0") for a, b in sides)


def _names(*found: JsonObject) -> Iterator[str]:
    for each in found:
        yield from requests_of(each)


def is_asked(pod: JsonObject) -> bool:
    """Return whether a container of the pod wants other resources than it was given."""
    reported = recorded(pod)
    return bool(reported) and any(
        one["name"] in reported and not same(one.get("resources") or {}, allocated_of(one, reported[one["name"]]))
        for one in lasting_containers(pod)
    )


def with_resources(pod: JsonObject, of: Callable[[JsonObject], JsonObject]) -> JsonObject:
    """Return the pod with the resources ``of`` each lasting container; the pod itself is left as it is."""
    declared = dict(spec(pod))
    for field in ("initContainers", "containers"):
        if declared.get(field):
            declared[field] = [
                {**one, "resources": of(one)} if field == "containers" or one.get("restartPolicy") == "Always" else one
                for one in declared[field]
            ]
    return {**pod, "spec": declared}


def as_allocated(pod: JsonObject) -> JsonObject:
    """Return the pod as its node has made room for it."""
    reported = recorded(pod)
    return with_resources(pod, lambda one: allocated_of(one, reported.get(one["name"]))) if reported else pod


def as_counted(pod: JsonObject) -> JsonObject:
    """Return the pod as others must count it: what it wants, has been given or runs with, whichever is most.

    What its node can never give (``Infeasible``) does not count.
    """
    if not is_asked(pod) and condition(pod, IN_PROGRESS) is None:
        return pod
    reported = recorded(pod)
    wants = (condition(pod, PENDING) or {}).get("reason") != INFEASIBLE

    def most(container: JsonObject) -> JsonObject:
        mine = reported.get(container["name"])
        runs = (mine or {}).get("resources") or {}
        found = [allocated_of(container, mine), runs, *([container.get("resources") or {}] if wants else [])]
        return largest(found)

    return with_resources(pod, most)


def largest(found: list[JsonObject]) -> JsonObject:
    """Return ``resources`` with the largest request and limit of each resource; no limit is the largest."""
    limits = [each.get("limits") or {} for each in found]
    everywhere = set.intersection(*(set(each) for each in limits))
    return given(
        _largest([requests_of(each) for each in found]),
        {name: amount for name, amount in _largest(limits).items() if name in everywhere},
    )


def _largest(found: list[JsonObject]) -> JsonObject:
    names = {name: None for each in found for name in each}
    return {name: max((each[name] for each in found if name in each), key=quantities.parse) for name in names}


def policy(container: JsonObject, resource: str) -> str:
    """Return what a change of a resource takes: ``NotRequired`` unless the container says otherwise."""
    rules = {one.get("resourceName"): one.get("restartPolicy") for one in container.get("resizePolicy") or []}
    return rules.get(resource) or "NotRequired"


def needs_restart(container: JsonObject, before: JsonObject, after: JsonObject) -> bool:
    """Return whether the container must be started again to run with ``after``."""
    return any(changed(before, after, name) and policy(container, name) == RESTART for name in COMPUTE)
