"""How many copies each replica set of a Deployment gets next: the arithmetic of rolling, recreating and scaling. Pure.

Source: kubernetes ``pkg/controller/deployment/{rolling,recreate,sync}.go`` and ``util/deployment_util.go``, with one
bound added: a scale-down never takes more old copies than the declared numbers allow, so that a status which is not
written yet cannot make it take copies twice.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.controllers.workloads.replicasets import wanted_replicas
from minik8s_modules.controllers.workloads.revisions import DESIRED, MAXIMUM, created

Sizes = dict[str, int]
"""The next spec.replicas by the name of the replica set, in the order to write them."""


class Limits(NamedTuple):
    """How many copies more and fewer than declared a rollout may have."""

    surge: int
    unavailable: int


def scaled(value: int | str | None, total: int, *, up: bool) -> int:
    """Return an int-or-percent of ``total``, rounded up or down (``GetScaledValueFromIntOrPercent``)."""
    if isinstance(value, str):
        share = int(value.removesuffix("%")) * total / 100
        return math.ceil(share) if up else math.floor(share)
    return int(value or 0)


def is_rolling(deployment: JsonObject) -> bool:
    """Return whether the strategy is RollingUpdate."""
    strategy = objects.spec(deployment).get("strategy") or {}
    return str(strategy.get("type", "RollingUpdate")) == "RollingUpdate"


def limits(deployment: JsonObject) -> Limits:
    """Return maxSurge and maxUnavailable in copies; both are 0 with Recreate (``ResolveFenceposts``).

    Where percentages of few copies come to 0 and 0, one may be unavailable: else nothing would ever roll.
    """
    if not is_rolling(deployment):
        return Limits(0, 0)
    rolling = (objects.spec(deployment).get("strategy") or {}).get("rollingUpdate") or {}
    total = wanted_replicas(deployment)
    surge = scaled(rolling.get("maxSurge", "25%"), total, up=True)
    unavailable = scaled(rolling.get("maxUnavailable", "25%"), total, up=False)
    if not surge and not unavailable:
        unavailable = 1
    return Limits(surge, min(unavailable, total))


def available(replica_set: JsonObject) -> int:
    """Return how many copies the set's status calls available."""
    return int(objects.status(replica_set).get("availableReplicas") or 0)


def actual(replica_set: JsonObject) -> int:
    """Return how many copies the set's status counts."""
    return int(objects.status(replica_set).get("replicas") or 0)


def declared(sets: Iterable[JsonObject]) -> int:
    """Return how many copies the sets declare together."""
    return sum(map(wanted_replicas, sets))


def active(sets: Iterable[JsonObject]) -> list[JsonObject]:
    """Return the sets that declare copies."""
    return [each for each in sets if wanted_replicas(each) > 0]


def new_set_size(deployment: JsonObject, sets: Sequence[JsonObject], current: int) -> int:
    """Return the size of the new set, ``current`` now, ``sets`` being all (``NewRSNewReplicas``)."""
    total = wanted_replicas(deployment)
    if not is_rolling(deployment):
        return total
    room = total + limits(deployment).surge - declared(sets)
    return current if room <= 0 else current + min(room, total - current)


def roll(deployment: JsonObject, new: JsonObject, old: Sequence[JsonObject]) -> Sizes:
    """Return the next step of a rolling update: the new set's size, or else the old ones', or nothing."""
    total, current = wanted_replicas(deployment), wanted_replicas(new)
    size = total if current > total else new_set_size(deployment, [*old, new], current)
    if size != current:
        return {objects.name(new): size}
    return _shrink(deployment, new, active(old))


def _shrink(deployment: JsonObject, new: JsonObject, old: Sequence[JsonObject]) -> Sizes:
    """Take copies from the old sets, those that are not available first (``reconcileOldReplicaSets``)."""
    least = wanted_replicas(deployment) - limits(deployment).unavailable
    missing = max(wanted_replicas(new) - available(new), 0)
    room = declared([*old, new]) - least - missing
    if not old or room <= 0:
        return {}
    sizes = {objects.name(each): wanted_replicas(each) for each in old}
    unhealthy = {objects.name(each): max(wanted_replicas(each) - available(each), 0) for each in old}
    oldest_first = sorted(old, key=created)
    taken = _take(sizes, unhealthy, oldest_first, room)
    healthy = sum(map(available, [*old, new])) - least
    _take(sizes, sizes.copy(), oldest_first, min(healthy, room - taken))
    return {objects.name(each): sizes[objects.name(each)] for each in oldest_first if _changes(each, sizes)}


def _take(sizes: Sizes, most: Mapping[str, int], sets: Sequence[JsonObject], room: int) -> int:
    """Take up to ``room`` copies in order, of each set at most ``most``; return how many were taken."""
    taken = 0
    for name in map(objects.name, sets):
        count = max(min(most[name], room - taken), 0)
        sizes[name] -= count
        taken += count
    return taken


def _changes(replica_set: JsonObject, sizes: Sizes) -> bool:
    return sizes[objects.name(replica_set)] != wanted_replicas(replica_set)


def proportional(deployment: JsonObject, new: JsonObject | None, old: Sequence[JsonObject]) -> Sizes:
    """Return sizes after the deployment itself was scaled: one set takes all, several share (``scale``)."""
    everything = [*old, *([new] if new is not None else [])]
    total = wanted_replicas(deployment)
    alone = _only_set(new, old)
    if alone is not None:
        return {objects.name(alone): total} if wanted_replicas(alone) != total else {}
    if new is not None and is_saturated(deployment, new):
        return {objects.name(each): 0 for each in active(old)}
    if not is_rolling(deployment):
        return {}
    return _shares(deployment, active(everything))


def _only_set(new: JsonObject | None, old: Sequence[JsonObject]) -> JsonObject | None:
    """Return the one set with copies, or the latest when none has any (``FindActiveOrLatest``)."""
    found = active([*old, *([new] if new is not None else [])])
    if not found:
        return new if new is not None else max(old, key=created, default=None)
    return found[0] if len(found) == 1 else None


def is_saturated(deployment: JsonObject, replica_set: JsonObject) -> bool:
    """Return whether the set has all copies, and all are available."""
    total = wanted_replicas(deployment)
    noted = objects.annotations(replica_set).get(DESIRED)
    return noted == str(total) and wanted_replicas(replica_set) == total == available(replica_set)


def _shares(deployment: JsonObject, sets: Sequence[JsonObject]) -> Sizes:
    total = wanted_replicas(deployment)
    allowed = total + limits(deployment).surge if total > 0 else 0
    to_add = allowed - declared(sets)
    ordered = sorted(sets, key=created, reverse=to_add > 0)
    ordered.sort(key=wanted_replicas, reverse=True)
    sizes: Sizes = {}
    added = 0
    for each in ordered:
        share = _share(deployment, each, to_add, added) if to_add else 0
        sizes[objects.name(each)] = wanted_replicas(each) + share
        added += share
    if ordered and to_add:
        largest = objects.name(ordered[0])
        sizes[largest] = max(0, sizes[largest] + to_add - added)
    return {objects.name(each): sizes[objects.name(each)] for each in ordered if _changes(each, sizes)}


def _share(deployment: JsonObject, replica_set: JsonObject, to_add: int, added: int) -> int:
    """Return what one set gets of ``to_add`` copies (negative: gives), of which ``added`` are given out."""
    left = to_add - added
    if not wanted_replicas(replica_set) or not left:
        return 0
    share = _fraction(deployment, replica_set)
    return min(share, left) if to_add > 0 else max(share, left)


def _fraction(deployment: JsonObject, replica_set: JsonObject) -> int:
    current = wanted_replicas(replica_set)
    if wanted_replicas(deployment) == 0:
        return -current
    before = _noted(replica_set, MAXIMUM) or int(objects.status(deployment).get("replicas") or 0)
    if not before:
        return 0
    return _rounded(current * (wanted_replicas(deployment) + limits(deployment).surge) / before) - current


def _noted(replica_set: JsonObject, annotation: str) -> int:
    text = objects.annotations(replica_set).get(annotation, "")
    return int(text) if text.isdigit() else 0


def _rounded(value: float) -> int:
    """Return the nearest integer, halves away from zero (``RoundToInt32``)."""
    return int(value - 0.5) if value < 0 else int(value + 0.5)


def was_scaled(deployment: JsonObject, sets: Iterable[JsonObject]) -> bool:
    """Return whether the deployment was scaled since its sets were last written (``isScalingEvent``)."""
    wanted = wanted_replicas(deployment)
    noted = [objects.annotations(each).get(DESIRED) for each in active(sets)]
    return any(text is not None and text.isdigit() and int(text) != wanted for text in noted)
