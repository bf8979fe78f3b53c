"""The ``eviction`` subresource of pods: a deletion that asks the pod's disruption budget first.

Asking is spending: one is taken from ``disruptionsAllowed`` by compare-and-swap, and the pod noted in
``disruptedPods``, so that however many evict at once, no more go than the budget's controller
(controllers/policy/disruption.py) counted. Source: kubernetes ``pkg/registry/core/pod/storage/eviction.go``.
"""

from __future__ import annotations

from typing import Any

from minik8s_modules.api import selectors
from minik8s_modules.api.errors import Forbidden, InternalError, NotFound, TooManyRequests
from minik8s_modules.api.kinds import POD_DISRUPTION_BUDGET, Kind
from minik8s_modules.api.lifecycle import strategy
from minik8s_modules.api.objects import (
    JsonObject,
    condition,
    generation,
    is_deleting,
    labels,
    name,
    spec,
    status,
    uid,
)
from minik8s_modules.apiserver.admission import webhook_admission
from minik8s_modules.apiserver.http import incoming
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.incoming import Options
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.verbs import deleting, writing
from minik8s_modules.base.clock import rfc3339
from minik8s_modules.store import readable

EVICTION = Kind("policy", "v1", "Eviction", "evictions", "io.k8s.api.policy.v1.Eviction")
_RETRY_S = 10
# more evictions than these that no pod followed mean that the budget's controller is away (MaxDisruptedPodSize)
_MOST_DISRUPTED = 2000


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
    options = options._replace(dry_run=options.dry_run or deleting.asks_dry_run(wanted))
    eviction = webhook_admission.request(backend, "create", target, EVICTION, eviction, options)
    wanted, options = deleting.delete_options(eviction.get("deleteOptions") or {}, {}), options._replace(reviewed=True)
    obj = backend.get(pod).object
    strategy.check_preconditions(pod.kind, obj, wanted)
    if not is_deleting(obj) and status(obj).get("phase") not in {"Succeeded", "Failed", "Pending"}:
        _ask_budgets(backend, obj, target.namespace, options)
    if not is_deleting(obj):
        _mark(backend, pod, options)
    # its resourceVersion was the one wanted; marking has changed it
    deleting.delete(backend, pod, {**wanted, "preconditions": {"uid": uid(obj)}}, options)


def _ask_budgets(backend: Backend, pod: JsonObject, namespace: str, options: Options) -> None:
    items, _ = backend.cache.list(POD_DISRUPTION_BUDGET.key(namespace, ""))
    chosen = [each for each in readable.objects_of(POD_DISRUPTION_BUDGET, items) if _selects(each, pod)]
    if len(chosen) > 1:
        text = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        raise InternalError(text)
    if chosen and not _may_go_unhealthy(chosen[0], pod):
        budget = Target(POD_DISRUPTION_BUDGET, namespace, name(chosen[0]), "status")
        now = rfc3339(backend.clock.now())
        writing.change(backend, budget, lambda old: _spent(old, name(pod), now), options)


def _selects(budget: JsonObject, pod: JsonObject) -> bool:
    return selectors.from_label_selector(spec(budget).get("selector")).matches(labels(pod))


def _may_go_unhealthy(budget: JsonObject, pod: JsonObject) -> bool:
    """Return whether the pod, not ready, may go without being counted (``unhealthyPodEvictionPolicy``)."""
    if (condition(pod, "Ready") or {}).get("status") == "True":
        return False
    if spec(budget).get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    counted = status(budget)
    if int(counted.get("observedGeneration") or 0) < generation(budget):
        return False
    healthy, wanted = counted.get("currentHealthy") or 0, counted.get("desiredHealthy") or 0
    return bool(healthy >= wanted > 0)


def _spent(budget: JsonObject, pod: str, now: str) -> JsonObject:
    """Return the budget with one disruption less. Raises TooManyRequests when none is left."""
    seen: dict[str, Any] = dict(status(budget))
    if int(seen.get("observedGeneration") or 0) < generation(budget):
        raise _refusal(f"The disruption budget {name(budget)} is still being processed by the server.")
    disrupted = seen.get("disruptedPods") or {}
    if len(disrupted) > _MOST_DISRUPTED:
        why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        raise Forbidden(POD_DISRUPTION_BUDGET, name(budget), why)
    if (seen.get("disruptionsAllowed") or 0) < 1:
        raise _refusal(_why_none(budget))
    seen["disruptionsAllowed"] -= 1
    seen["disruptedPods"] = {**disrupted, pod: now}
    if seen["disruptionsAllowed"] == 0 and seen.get("conditions"):
        seen["conditions"] = [_insufficient(each, budget, now) for each in seen["conditions"]]
    return {**budget, "status": seen}


def _insufficient(known: JsonObject, budget: JsonObject, now: str) -> JsonObject:
    if known.get("type") != "DisruptionAllowed":
        return known
    said = {"status": "False", "reason": "InsufficientPods", "observedGeneration": generation(budget)}
    return {**known, **said, "lastTransitionTime": now}


def _why_none(budget: JsonObject) -> str:
    known = condition(budget, "DisruptionAllowed") or {}
    if known.get("reason") == "SyncFailed":
        return (
            f"The disruption budget {name(budget)} does not allow evicting pods currently because it failed sync: "
            f"{known.get('message')}"
        )
    counted = status(budget)
    wanted, healthy = counted.get("desiredHealthy") or 0, counted.get("currentHealthy") or 0
    return f"The disruption budget {name(budget)} needs {wanted} healthy pods and has {healthy} currently"


def _mark(backend: Backend, pod: Target, options: Options) -> None:
    """Say in the pod's status that it goes by an eviction (``addConditionAndDeletePod``)."""
    said = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    said |= {"message": "Eviction API: evicting", "lastTransitionTime": rfc3339(backend.clock.now())}

    def marked(old: JsonObject) -> JsonObject:
        others = [each for each in status(old).get("conditions") or [] if each.get("type") != said["type"]]
        return {**old, "status": {**status(old), "conditions": [*others, said]}}

    try:
        writing.change(backend, pod._replace(subresource="status"), marked, options._replace(requester=None))
    except NotFound:
        return


def _refusal(why: str) -> TooManyRequests:
    error = TooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", _RETRY_S)
    error.details["causes"] = [{"reason": "DisruptionBudget", "message": why}]
    return error
