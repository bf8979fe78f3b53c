"""What workload controllers ask of a pod: does it count, is it ready, is it available, which one goes first.

Source: kubernetes ``pkg/api/v1/pod/util.go`` and ``pkg/controller/controller_utils.go`` (``ActivePodsWithRanks``).
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import parse_rfc3339

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}
_Ranked = tuple[tuple[int, ...], JsonObject]
_ENDED = frozenset({"Succeeded", "Failed"})


def phase(pod: JsonObject) -> str:
    """Return the pod's phase; Pending before it has one."""
    return str(objects.status(pod).get("phase") or "Pending")


def has_ended(pod: JsonObject) -> bool:
    """Return whether the pod has Succeeded or Failed."""
    return phase(pod) in _ENDED


def is_active(pod: JsonObject) -> bool:
    """Return whether the pod counts as a copy: neither ended nor being deleted."""
    return not has_ended(pod) and not objects.is_deleting(pod)


def is_ready(pod: JsonObject) -> bool:
    """Return whether the pod's Ready condition is true."""
    return (objects.condition(pod, "Ready") or {}).get("status") == "True"


@functools.lru_cache(maxsize=8192)
def moment(text: str) -> datetime | None:
    """Return the time that an object's ``text`` says; None when it says none."""
    try:
        return parse_rfc3339(text) if text else None
    except ValueError:
        return None


def ready_since(pod: JsonObject) -> datetime | None:
    """Return since when the pod is ready; None when it is not, or does not say."""
    ready = objects.condition(pod, "Ready") or {}
    return moment(ready.get("lastTransitionTime") or "") if ready.get("status") == "True" else None


def available_in_s(pod: JsonObject, min_ready_s: int, now: datetime) -> float | None:
    """Return in how many seconds the pod is available: 0 if it is, None while it is not ready."""
    if not is_ready(pod):
        return None
    if min_ready_s == 0:
        return 0.0
    since = ready_since(pod)
    return None if since is None else max(0.0, (since + timedelta(seconds=min_ready_s) - now).total_seconds())


def is_available(pod: JsonObject, min_ready_s: int, now: datetime) -> bool:
    """Return whether the pod has been ready for ``min_ready_s`` seconds."""
    return available_in_s(pod, min_ready_s, now) == 0.0


def deletion_cost(pod: JsonObject) -> int:
    """Return the pod's deletion cost; 0 without one, or with one that is not a number."""
    try:
        return int(objects.annotations(pod).get(DELETION_COST, "0"))
    except ValueError:
        return 0


def first_to_go(pods: Iterable[JsonObject], related: Sequence[JsonObject], now: datetime) -> list[JsonObject]:
    """Return ``pods`` in the order in which a scale-down deletes them.

    ``related`` are the active pods of the same owner, and of its owner's other sets: where many of them share a node,
    one of that node goes first. Unassigned before assigned, then by phase, readiness, deletion cost, crowded nodes,
    youth (in powers of two, so that equal ages are decided by uid), restarts.
    """
    crowd = Counter(objects.spec(pod).get("nodeName") for pod in related if is_active(pod))

    def compare(one: _Ranked, other: _Ranked) -> int:
        if one[0] != other[0]:
            return -1 if one[0] < other[0] else 1
        return _by_age(one[1], other[1], now)

    ranked = [(_rank(pod, crowd), pod) for pod in pods]
    return [pod for _, pod in sorted(ranked, key=functools.cmp_to_key(compare))]


def _rank(pod: JsonObject, crowd: Counter[str | None]) -> tuple[int, ...]:
    node = objects.spec(pod).get("nodeName")
    return (
        1 if node else 0,
        _PHASES.get(phase(pod), 0),
        1 if is_ready(pod) else 0,
        deletion_cost(pod),
        -crowd[node],
    )


def _by_age(one: JsonObject, other: JsonObject, now: datetime) -> int:
    if is_ready(one) and is_ready(other):
        decided = _younger_first(one, other, ready_since(one), ready_since(other), now)
        if decided:
            return decided
    if restarts := _restarts(other) - _restarts(one):
        return restarts
    return _younger_first(one, other, _created(one), _created(other), now)


def _younger_first(
    one: JsonObject, other: JsonObject, since: datetime | None, other_since: datetime | None, now: datetime
) -> int:
    """Compare ages in powers of two (KEP-2185): 0 only when the times are the same."""
    if since == other_since:
        return 0
    if since is None or other_since is None:
        return -1 if since is None else 1
    if difference := _magnitude(since, now) - _magnitude(other_since, now):
        return difference
    return -1 if objects.uid(one) < objects.uid(other) else 1


def _magnitude(since: datetime, now: datetime) -> int:
    age_ns = (now - since).total_seconds() * 1e9
    return -1 if age_ns <= 0 else int(math.log2(age_ns))


def _restarts(pod: JsonObject) -> int:
    statuses = objects.status(pod).get("containerStatuses") or []
    return max((int(each.get("restartCount") or 0) for each in statuses), default=0)


def _created(pod: JsonObject) -> datetime | None:
    return moment(str((pod.get("metadata") or {}).get("creationTimestamp") or ""))
