"""What keeps an autoscaler calm: stabilization windows, policies, bounds. Pure.

    recommendation ─▶ stabilized: the highest (down) or lowest (up) of a window ─▶ limited: policies, then min and max

What was recommended and changed before is a ``History``, a value that the shell keeps. A process that begins again has
none: its windows begin with the replicas there are, as Kubernetes' do. Source: kubernetes 1.32
``pkg/controller/podautoscaler/horizontal.go`` (``normalizeDesiredReplicas``, with and without ``behavior``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, TypeVar

from minik8s_modules.api.objects import JsonObject

_UP_FACTOR, _UP_LEAST = 2, 4  # scaleUpLimitFactor, scaleUpLimitMinimum


class Recommendation(NamedTuple):
    """How many replicas the metrics asked for, before damping."""

    replicas: int
    at: datetime


class Change(NamedTuple):
    """By how many replicas the target was changed; positive, in either direction."""

    by: int
    at: datetime


_Dated = TypeVar("_Dated", Recommendation, Change)


class History(NamedTuple):
    """What is remembered of one autoscaler."""

    recommendations: tuple[Recommendation, ...] = ()
    ups: tuple[Change, ...] = ()
    downs: tuple[Change, ...] = ()


class Bounds(NamedTuple):
    """The replicas there are, and the fewest and most there may be."""

    current: int
    least: int
    most: int


class Verdict(NamedTuple):
    """A number of replicas, and the reason and message of the condition that tells what made it so."""

    replicas: int
    reason: str
    message: str


_READY = ("ReadyForNewScale", "recommended size matches current size")
_HIGHER = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent recommendation",
)
_LOWER = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
)
_TOO_FAST_UP = ("ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate")
_TOO_FAST_DOWN = ("ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate")
_TOO_MANY = ("TooManyReplicas", "the desired replica count is more than the maximum replica count")
_TOO_FEW = ("TooFewReplicas", "the desired replica count is less than the minimum replica count")
_WITHIN = ("DesiredWithinRange", "the desired count is within the acceptable range")


def begun(history: History, current: int, now: datetime) -> History:
    """Return the history with the replicas there are as its first recommendation, if it has none."""
    return history if history.recommendations else history._replace(recommendations=(Recommendation(current, now),))


def stabilized(
    behavior: JsonObject | None, history: History, current: int, desired: int, now: datetime, downscale_s: float
) -> tuple[Verdict, History]:
    """Return the recommendation after the windows, and the history with the new one.

    Args:
        behavior: of the autoscaler's spec, with defaults; None when it has none.
        history: recommendations so far.
        current: replicas there are.
        desired: what the metrics ask for.
        now: ends the windows.
        downscale_s: the window of scaling down where the object says none.
    """
    if behavior is None:
        return _highest(history, desired, now, downscale_s)
    up_s = float(behavior["scaleUp"].get("stabilizationWindowSeconds") or 0)
    given = behavior["scaleDown"].get("stabilizationWindowSeconds")
    down_s = downscale_s if given is None else float(given)
    lowest = min([desired, *_since(history, now - timedelta(seconds=up_s))])
    highest = max([desired, *_since(history, now - timedelta(seconds=down_s))])
    replicas = min(max(current, lowest), highest)
    explanation = _READY if replicas == desired else _LOWER if desired >= current else _HIGHER
    return Verdict(replicas, *explanation), _recorded(history, desired, now, max(up_s, down_s))


def _highest(history: History, desired: int, now: datetime, window_s: float) -> tuple[Verdict, History]:
    cutoff = now - timedelta(seconds=window_s)
    highest = max([desired, *(each.replicas for each in history.recommendations if each.at >= cutoff)])
    explanation = _READY if highest == desired else _HIGHER
    return Verdict(highest, *explanation), _recorded(history, desired, now, window_s)


def _since(history: History, cutoff: datetime) -> Iterable[int]:
    return (each.replicas for each in history.recommendations if each.at > cutoff)


def _recorded(history: History, desired: int, now: datetime, window_s: float) -> History:
    new = Recommendation(desired, now)
    return history._replace(recommendations=_put(history.recommendations, new, now - timedelta(seconds=window_s)))


def _put(known: Sequence[_Dated], new: _Dated, cutoff: datetime) -> tuple[_Dated, ...]:
    """Return what is known with ``new`` in the place of the last that is older than ``cutoff``, else behind it."""
    found = list(known)
    last = max((index for index, each in enumerate(found) if each.at < cutoff), default=len(found))
    found[last : last + 1] = [new]
    return tuple(found)


def limited(behavior: JsonObject | None, history: History, bounds: Bounds, desired: int, now: datetime) -> Verdict:
    """Return how many replicas may be had of ``desired`` now, and what limits it; it is never outside the bounds."""
    if behavior is None:
        return _without_policies(bounds, desired)
    if desired > bounds.current:
        fastest = max(bounds.current, fastest_up(behavior["scaleUp"], history, bounds.current, now))
        most, explanation = (fastest, _TOO_FAST_UP) if bounds.most > fastest else (bounds.most, _TOO_MANY)
        if desired > most:
            return Verdict(most, *explanation)
    elif desired < bounds.current:
        fastest = min(bounds.current, fastest_down(behavior["scaleDown"], history, bounds.current, now))
        least, explanation = (fastest, _TOO_FAST_DOWN) if bounds.least < fastest else (bounds.least, _TOO_FEW)
        if desired < least:
            return Verdict(least, *explanation)
    return Verdict(desired, *_WITHIN)


def _without_policies(bounds: Bounds, desired: int) -> Verdict:
    fastest = max(_UP_FACTOR * bounds.current, _UP_LEAST)
    most, explanation = (fastest, _TOO_FAST_UP) if bounds.most > fastest else (bounds.most, _TOO_MANY)
    if desired < bounds.least:
        return Verdict(bounds.least, *_TOO_FEW)
    return Verdict(most, *explanation) if desired > most else Verdict(desired, *_WITHIN)


def fastest_up(rules: JsonObject, history: History, current: int, now: datetime) -> int:
    """Return the most replicas that the policies of scaling up allow now."""
    if rules.get("selectPolicy") == "Disabled":
        return current
    found: list[int] = []
    for policy in rules.get("policies") or []:
        start = _at_start_of(policy, history, current, now)
        percent = math.ceil(start * (1 + policy["value"] / 100))
        found.append(start + policy["value"] if policy["type"] == "Pods" else percent)
    return (min if rules.get("selectPolicy") == "Min" else max)(found, default=current)


def fastest_down(rules: JsonObject, history: History, current: int, now: datetime) -> int:
    """Return the fewest replicas that the policies of scaling down allow now."""
    if rules.get("selectPolicy") == "Disabled":
        return current
    found: list[int] = []
    for policy in rules.get("policies") or []:
        start = _at_start_of(policy, history, current, now)
        percent = int(start * (1 - policy["value"] / 100))
        found.append(start - policy["value"] if policy["type"] == "Pods" else percent)
    return (max if rules.get("selectPolicy") == "Min" else min)(found, default=current)


def _at_start_of(policy: JsonObject, history: History, current: int, now: datetime) -> int:
    """Return how many replicas there were when the policy's period began."""
    cutoff = now - timedelta(seconds=policy["periodSeconds"])
    added = sum(each.by for each in history.ups if each.at > cutoff)
    removed = sum(each.by for each in history.downs if each.at > cutoff)
    return current - added + removed


def changed(behavior: JsonObject | None, history: History, before: int, after: int, now: datetime) -> History:
    """Return the history with a change that was made, in the place of one that its direction's policies left behind."""
    if behavior is None:
        return history
    new = Change(abs(after - before), now)
    if after > before:
        return history._replace(ups=_put(history.ups, new, _start(behavior["scaleUp"], now)))
    return history._replace(downs=_put(history.downs, new, _start(behavior["scaleDown"], now)))


def _start(rules: JsonObject, now: datetime) -> datetime:
    longest_s = max((each["periodSeconds"] for each in rules.get("policies") or []), default=0)
    return now - timedelta(seconds=longest_s)
