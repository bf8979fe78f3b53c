"""One autoscaler of the original MiniK8s, by ``decide_original``: thresholds, one policy a direction, cores and MiB.

    each pod's mean in the window ─▶ their mean ─▶ ratio to the target ─▶ beyond a threshold: so many more or fewer, as
    the policy lets ─▶ the most of all metrics ─▶ once a scaleWindowSeconds

Where the original's report and code disagree the report holds: thresholds count, the window begins with the last
change that was made. A threshold is percent of what the target is percent of: of one core for the CPU, as the
original's manifests have them (target 50, thresholds 80 and 20), and of the target for memory, which is no percentage.
Its weaknesses are mended: a policy never keeps all change back, bounds hold always, and only pods that run and tell
something are in the mean, each with all its containers together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.controllers.autoscaling.autoscalers import Scale

DEFAULT_PERIOD_S, DEFAULT_WINDOW_S = 60, 15
_MIB = 1024 * 1024


class Used(NamedTuple):
    """What a pod used at a time."""

    at: datetime
    cores: float
    memory_bytes: int


class Measure(NamedTuple):
    """How a metric is read.

    Attributes:
        field: of its target; ``unit`` is what 1 of it is.
        upper: the ratio to the target above which it scales up, where no threshold is given; ``lower`` the other way.
        whole: what thresholds are percent of; None is the target.
    """

    field: str
    unit: float
    upper: float
    lower: float
    whole: float | None = None


MEASURES = {
    "cpu": Measure("averageUtilization", 0.01, 1.1, 0.9, whole=1.0),  # percent of one core
    "memory": Measure("averageValue", _MIB, 1.5, 0.5),
}


class Ask(NamedTuple):
    """What a metric asks for: the replicas, and the ratio of what is used to the target (None: nothing is known)."""

    metric: str
    replicas: int
    ratio: float | None


class Outcome(NamedTuple):
    """The replicas to have, why, what each metric asked for, and in how many seconds it may change at most."""

    replicas: int
    reason: str
    asks: tuple[Ask, ...] = ()
    wait_s: float = 0.0


def decide_original(
    autoscaler: JsonObject,
    scale: Scale,
    used: Mapping[str, Sequence[Used]],
    last_change: datetime | None,
    now: datetime,
) -> Outcome:
    """Return how many replicas the target is to have.

    Args:
        autoscaler: the object, with defaults.
        scale: of its target.
        used: by running pod, what it used, oldest first.
        last_change: when this autoscaler last changed its target.
        now: ends the windows.
    """
    declared, current = objects.spec(autoscaler), scale.replicas
    least, most = int(declared.get("minReplicas") or 1), int(declared["maxReplicas"])
    if current == 0:
        return Outcome(0, "scaling is disabled since the replica count of the target is zero")
    if not least <= current <= most:
        bound = "Spec.MaxReplicas" if current > most else "Spec.MinReplicas"
        side = "above" if current > most else "below"
        return Outcome(min(max(current, least), most), f"Current number of replicas {side} {bound}")
    asks = tuple(_ask(metric, declared, current, used, now) for metric in declared.get("metrics") or [])
    wanted = max((ask.replicas for ask in asks), default=current)
    wanted = min(max(wanted, least), most)
    reason = _reason(asks, wanted, current)
    if wanted == current:
        return Outcome(current, reason, asks)
    window = timedelta(seconds=int(declared.get("scaleWindowSeconds") or DEFAULT_WINDOW_S))
    if last_change is not None and now - last_change < window:
        return Outcome(current, reason, asks, (last_change + window - now).total_seconds())
    return Outcome(wanted, reason, asks)


def _reason(asks: Sequence[Ask], wanted: int, current: int) -> str:
    if wanted > current:
        return f"{max(asks, key=lambda ask: ask.replicas).metric} above target"
    return "All metrics below target" if wanted < current else "within the thresholds"


def _ask(
    metric: JsonObject, declared: JsonObject, current: int, used: Mapping[str, Sequence[Used]], now: datetime
) -> Ask:
    name, behavior = metric["name"], declared.get("behavior") or {}
    target, measure = metric.get("target") or {}, MEASURES[metric["name"]]
    goal = float(target[measure.field]) * measure.unit
    whole = (measure.whole or goal) / goal
    upper = _threshold(target.get("upperThreshold"), whole, measure.upper)
    lower = _threshold(target.get("lowerThreshold"), whole, measure.lower)
    up, down = behavior.get("scaleUp"), behavior.get("scaleDown")
    rising, falling = (_mean(name, used, _period_s(each), now) for each in (up, down))
    if rising is None or falling is None:
        return Ask(name, current, None)  # what is not known takes nothing away
    if rising / goal > max(upper, 1.0):
        return Ask(name, current + _change(rising / goal - 1, current, up), rising / goal)
    if falling / goal < min(lower, 1.0):
        return Ask(name, current - _change(1 - falling / goal, current, down), falling / goal)
    return Ask(name, current, rising / goal)


def _threshold(percent: float | None, whole: float, otherwise: float) -> float:
    return otherwise if percent is None else float(percent) / 100 * whole


def _period_s(policy: JsonObject | None) -> int:
    return int((policy or {}).get("periodSeconds") or DEFAULT_PERIOD_S)


def _change(share: float, current: int, policy: JsonObject | None) -> int:
    """Return by how many replicas to change: one where there is no policy, and never none."""
    wanted = math.ceil(round(share * current, 9))
    if policy is None:
        return 1
    value = int(policy["value"])
    return max(1, min(wanted, value if policy["type"] == "Pods" else value * current // 100))


def _mean(name: str, used: Mapping[str, Sequence[Used]], window_s: int, now: datetime) -> float | None:
    """Return the mean over the pods of their means in the window; None where none tells anything."""
    since = now - timedelta(seconds=window_s)
    means = []
    for readings in used.values():
        found = [each.cores if name == "cpu" else each.memory_bytes for each in readings if since < each.at <= now]
        if found:
            means.append(sum(found) / len(found))
    return sum(means) / len(means) if means else None
