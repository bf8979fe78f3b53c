"""How many replicas one metric asks for. Pure.

The rules for pods that are not ready, tell nothing yet or are about to go keep a guess from turning a scale-up into a
scale-down or the other way round. Source: kubernetes 1.32 ``pkg/controller/podautoscaler/replica_calculator.go`` and
``metrics/utilization.go``, whose integer divisions and roundings are kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from minik8s_modules.api import objects, quantities
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.controllers.core import pods as podlib

_MOST = 2**31 - 1
_NEVER = datetime(1, 1, 1, tzinfo=UTC)


class Tuning(NamedTuple):
    """The settings of kube-controller-manager for autoscalers, with its defaults."""

    tolerance: float = 0.1
    cpu_initialization_s: float = 300.0
    initial_readiness_delay_s: float = 30.0
    downscale_stabilization_s: float = 300.0


DEFAULTS = Tuning()


class Sample(NamedTuple):
    """What a pod uses, in thousandths; measured over the ``window_s`` seconds before ``at``."""

    value: int
    at: datetime
    window_s: float


class Uncountable(ValueError):
    """A metric says nothing about the number of replicas; the message is Kubernetes'."""


class Count(NamedTuple):
    """The replicas that a metric asks for, and what was measured: thousandths (a pod's, or in all) and percent."""

    replicas: int
    value: int
    utilization: int | None = None


class Groups(NamedTuple):
    """Pods by name: how many count, which are not ready, which tell nothing, which do not count at all."""

    ready: int
    unready: frozenset[str]
    missing: frozenset[str]
    ignored: frozenset[str]


def group_pods(
    pods: Sequence[JsonObject], samples: Mapping[str, Sample], resource: str, now: datetime, tuning: Tuning = DEFAULTS
) -> Groups:
    """Return the pods in groups; only for ``cpu`` it matters how long they have been running (``groupPods``)."""
    ready, unready, missing, ignored = 0, set(), set(), set()
    for pod in pods:
        name, phase = objects.name(pod), podlib.phase(pod)
        if objects.is_deleting(pod) or phase == "Failed":
            ignored.add(name)
        elif phase == "Pending":
            unready.add(name)
        elif name not in samples:
            missing.add(name)
        elif resource == "cpu" and _is_starting(pod, samples[name], now, tuning):
            unready.add(name)
        else:
            ready += 1
    return Groups(ready, frozenset(unready), frozenset(missing), frozenset(ignored))


def _is_starting(pod: JsonObject, sample: Sample, now: datetime, tuning: Tuning) -> bool:
    """Return whether what the pod uses may be what starting it costs."""
    condition = objects.condition(pod, "Ready")
    started = podlib.moment(str(objects.status(pod).get("startTime") or ""))
    if condition is None or started is None:
        return True
    changed = podlib.moment(str(condition.get("lastTransitionTime") or "")) or _NEVER
    unready = condition.get("status") == "False"
    if started + timedelta(seconds=tuning.cpu_initialization_s) > now:
        return unready or sample.at < changed + timedelta(seconds=sample.window_s)
    return unready and started + timedelta(seconds=tuning.initial_readiness_delay_s) > changed


def requests_of(pods: Sequence[JsonObject], resource: str, container: str = "") -> dict[str, int]:
    """Return what pods request in thousandths, by name; of one ``container`` if it is given.

    What a pod requests for all of its containers together goes before what each of them does.

    Raises:
        Uncountable: a container that counts requests none.
    """
    found = {}
    for pod in pods:
        total = 0
        own = objects.dig(pod, "spec", "resources", "requests", resource)
        if own is not None and not container:
            found[objects.name(pod)] = quantities.to_milli(str(own))
            continue
        for each in objects.lasting_containers(pod):
            if container in {"", each["name"]}:
                amount = ((each.get("resources") or {}).get("requests") or {}).get(resource)
                if amount is None:
                    raise Uncountable(
                        f"missing request for {resource} in container {each['name']} of Pod {objects.name(pod)}"
                    )
                total += quantities.to_milli(amount)
        found[objects.name(pod)] = total
    return found


class Utilization(NamedTuple):
    """What was measured against what is requested: the ratio to the target, percent, a pod's thousandths."""

    ratio: float
    percent: int
    value: int


def utilization_of(values: Mapping[str, int], requests: Mapping[str, int], target: int) -> Utilization:
    """Return the utilization (``GetResourceUtilizationRatio``); values of pods without a request do not count.

    Raises:
        Uncountable: nothing is requested.
    """
    known = [name for name in values if name in requests]
    requested = sum(requests[name] for name in known)
    if requested == 0:
        raise Uncountable("no metrics returned matched known pods")
    used = sum(values[name] for name in known)
    percent = _quotient(used * 100, requested)
    return Utilization(percent / target, percent, _quotient(used, len(known)))


def by_utilization(
    current: int,
    target: int,
    resource: str,
    pods: Sequence[JsonObject],
    samples: Mapping[str, Sample],
    now: datetime,
    container: str = "",
    tuning: Tuning = DEFAULTS,
) -> Count:
    """Return the count that brings what pods use to ``target`` percent of their requests (``GetResourceReplicas``).

    Raises:
        Uncountable: no pod, no sample, or no request to compare with.
    """
    groups, values = _counted(pods, samples, resource, now, tuning)
    requests = requests_of(pods, resource, container)
    seen = utilization_of(values, requests, target)
    fallback = max(100, target)
    replicas = _settled(
        current, groups, values, seen.ratio, tuning,
        ratio_of=lambda filled: utilization_of(filled, requests, target).ratio,
        missing=lambda name: requests[name] * fallback // 100,
    )  # fmt: skip
    return Count(replicas, seen.value, seen.percent)


def by_average(
    current: int,
    target: int,
    pods: Sequence[JsonObject],
    samples: Mapping[str, Sample],
    now: datetime,
    resource: str = "",
    tuning: Tuning = DEFAULTS,
) -> Count:
    """Return the count that brings a pod's average to ``target`` thousandths (``calcPlainMetricReplicas``).

    Raises:
        Uncountable: no pod, or no sample.
    """
    groups, values = _counted(pods, samples, resource, now, tuning)

    def average(found: Mapping[str, int]) -> int:
        return _quotient(sum(found.values()), len(found))

    replicas = _settled(
        current, groups, values, average(values) / target, tuning,
        ratio_of=lambda filled: average(filled) / target, missing=lambda _name: target,
    )  # fmt: skip
    return Count(replicas, average(values))


def by_value(current: int, target: int, used: int, pods: Sequence[JsonObject], tuning: Tuning = DEFAULTS) -> Count:
    """Return the count for a value of something else, held at ``target`` in all (``getUsageRatioReplicaCount``).

    Raises:
        Uncountable: there is no pod.
    """
    ratio = used / target
    if current == 0:
        return Count(_ceil(ratio), used)
    if abs(1.0 - ratio) <= tuning.tolerance:
        return Count(current, used)
    if not pods:
        raise Uncountable(
            "unable to calculate ready pods: no pods returned by selector while calculating replica count"
        )
    ready = sum(podlib.phase(pod) == "Running" and podlib.is_ready(pod) for pod in pods)
    return Count(_ceil(ratio * ready), used)


def by_value_per_pod(pods_now: int, target: int, used: int, tuning: Tuning = DEFAULTS) -> Count:
    """Return the count for a value of something else, shared by the pods (``GetExternalPerPodMetricReplicas``).

    ``pods_now`` is the target's ``status.replicas``; without any, a value above zero is shared by new pods.
    """
    if pods_now == 0:
        # floats in Go: x/0 is infinite and 0/0 no number, which is beyond no tolerance
        return Count(_ceil(used / target), 0)
    replicas = pods_now
    if abs(1.0 - used / (target * pods_now)) > tuning.tolerance:
        replicas = _ceil(used / target)
    return Count(replicas, math.ceil(used / pods_now))


def _counted(
    pods: Sequence[JsonObject], samples: Mapping[str, Sample], resource: str, now: datetime, tuning: Tuning
) -> tuple[Groups, dict[str, int]]:
    if not pods:
        raise Uncountable("no pods returned by selector while calculating replica count")
    groups = group_pods(pods, samples, resource, now, tuning)
    left_out = groups.ignored | groups.unready
    values = {name: sample.value for name, sample in samples.items() if name not in left_out}
    if not values:
        raise Uncountable("did not receive metrics for targeted pods (pods might be unready)")
    return groups, values


def _settled(
    current: int,
    groups: Groups,
    values: Mapping[str, int],
    ratio: float,
    tuning: Tuning,
    *,
    ratio_of: Callable[[Mapping[str, int]], float],
    missing: Callable[[str], int],
) -> int:
    """Return the count for a ratio; where pods are unready or missing, of the ratio that counts them cautiously.

    Before a scale-down those that are missing are taken to use all they may, before a scale-up nothing.
    """
    up_with_unready = bool(groups.unready) and ratio > 1.0
    if not up_with_unready and not groups.missing:
        return current if abs(1.0 - ratio) <= tuning.tolerance else _ceil(ratio * groups.ready)
    filled = dict(values)
    if ratio < 1.0:
        filled |= {name: missing(name) for name in groups.missing}
    elif ratio > 1.0:
        filled |= dict.fromkeys(groups.missing, 0)
    if up_with_unready:
        filled |= dict.fromkeys(groups.unready, 0)
    cautious = ratio_of(filled)
    turned = (ratio < 1.0 < cautious) or (cautious < 1.0 < ratio)
    if turned or abs(1.0 - cautious) <= tuning.tolerance:
        return current
    replicas = _ceil(cautious * len(filled))
    against = (cautious < 1.0 and replicas > current) or (cautious > 1.0 and replicas < current)
    return current if against else replicas


def _ceil(value: float) -> int:
    return min(math.ceil(value), _MOST)


def _quotient(dividend: int, divisor: int) -> int:
    """Divide as Go does: towards zero."""
    quotient = abs(dividend) // abs(divisor)
    return quotient if (dividend < 0) == (divisor < 0) else -quotient
