"""The ``eviction`` subresource of pods: a deletion that asks the pod's disruption budget first.

A budget speaks once its status does (``observedGeneration``): before a controller counts its pods, it holds up nobody.
Source: kubernetes ``pkg/registry/core/pod/storage/eviction.go``.
"""

from __future__ import annotations

from typing import Any

from minik8s_modules.api import selectors
from minik8s_modules.api.errors import InternalError, TooManyRequests
from minik8s_modules.api.kinds import POD_DISRUPTION_BUDGET, Kind
from minik8s_modules.api.objects import JsonObject, generation, is_deleting, labels, name, spec, status
from minik8s_modules.apiserver import deleting, incoming, writing
from minik8s_modules.apiserver.backend import Backend
from minik8s_modules.apiserver.incoming import Options
from minik8s_modules.apiserver.target import Target
from minik8s_modules.base.clock import rfc3339

EVICTION = Kind("policy", "v1", "Eviction", "evictions", "io.k8s.api.policy.v1.Eviction")
_RETRY_S = 10


def evict(backend: Backend, target: Target, eviction: JsonObject, options: Options) -> None:
    """Delete the pod the path names, unless its budget allows no disruption.

    Raises:
        TooManyRequests: the budget allows none now.
        InternalError: two budgets select the pod.
    """
    eviction = incoming.readable(EVICTION, eviction, options)
    incoming.check_place(target, eviction)
    pod = target._replace(subresource="")
    wanted = deleting.delete_options(eviction.get("deleteOptions") or {}, {})
    obj = backend.get(pod).object
    if not is_deleting(obj) and status(obj).get("phase") not in {"Succeeded", "Failed", "Pending"}:
        _ask_budgets(backend, obj, target.namespace, options)
    deleting.delete(backend, pod, wanted, options)


def _ask_budgets(backend: Backend, pod: JsonObject, namespace: str, options: Options) -> None:
    items, _ = backend.cache.list(POD_DISRUPTION_BUDGET.key(namespace, ""))
    chosen = [item.object for item in items if _selects(item.object, pod)]
    if len(chosen) > 1:
        told = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        raise InternalError(told)
    if chosen and status(chosen[0]).get("observedGeneration") is not None:
        budget = Target(POD_DISRUPTION_BUDGET, namespace, name(chosen[0]), "status")
        now = rfc3339(backend.clock.now())
        writing.change(backend, budget, lambda old: _spent(old, name(pod), now), options)


def _selects(budget: JsonObject, pod: JsonObject) -> bool:
    return selectors.from_label_selector(spec(budget).get("selector")).matches(labels(pod))


def _spent(budget: JsonObject, pod: str, now: str) -> JsonObject:
    """Return the budget with one disruption less. Raises TooManyRequests when none is left."""
    seen: dict[str, Any] = dict(status(budget))
    if int(seen["observedGeneration"]) < generation(budget):
        raise _refusal(f"The disruption budget {name(budget)} is still being processed by the server.")
    if (seen.get("disruptionsAllowed") or 0) < 1:
        wanted, healthy = seen.get("desiredHealthy") or 0, seen.get("currentHealthy") or 0
        raise _refusal(f"The disruption budget {name(budget)} needs {wanted} healthy pods and has {healthy} currently")
    seen["disruptionsAllowed"] -= 1
    seen["disruptedPods"] = {**(seen.get("disruptedPods") or {}), pod: now}
    return {**budget, "status": seen}


def _refusal(why: str) -> TooManyRequests:
    error = TooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", _RETRY_S)
    error.details["causes"] = [{"reason": "DisruptionBudget", "message": why}]
    return error
