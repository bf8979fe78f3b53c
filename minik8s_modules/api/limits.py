"""LimitRange: the defaults it gives to containers, and what of a pod or claim it refuses. Pure.

Source: kubernetes ``plugin/pkg/admission/limitranger/admission.go``, whose messages these are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal

from minik8s_modules.api import quantities
from minik8s_modules.api.objects import JsonObject, all_containers, spec

Amounts = Mapping[str, str]


def items(limit_ranges: Iterable[JsonObject], kind: str) -> list[JsonObject]:
    """Return the limits of type ``kind`` (Pod, Container, PersistentVolumeClaim) of all objects."""
    return [item for each in limit_ranges for item in spec(each).get("limits") or [] if item.get("type") == kind]


def fill(pod: JsonObject, limit_ranges: Iterable[JsonObject]) -> None:
    """Give the pod's containers, in place, the default limits and requests they do not name."""
    for item in items(limit_ranges, "Container"):
        for _, _, container in all_containers(pod):
            resources = container.setdefault("resources", {})
            for side, defaults in (("limits", item.get("default")), ("requests", item.get("defaultRequest"))):
                for resource, amount in (defaults or {}).items():
                    resources.setdefault(side, {}).setdefault(resource, quantities.canonical_milli(amount))


def pod_violations(pod: JsonObject, limit_ranges: list[JsonObject]) -> list[str]:
    """Return what the limits refuse of a pod."""
    found: list[str] = []
    for item in items(limit_ranges, "Container"):
        for _, _, container in all_containers(pod):
            resources = container.get("resources") or {}
            found += _checked(item, resources.get("requests") or {}, resources.get("limits") or {})
    for item in items(limit_ranges, "Pod"):
        found += _checked(item, _total(pod, "requests"), _total(pod, "limits"))
    return list(dict.fromkeys(found))


def claim_violations(claim: JsonObject, limit_ranges: list[JsonObject]) -> list[str]:
    """Return what the limits refuse of a PersistentVolumeClaim: the storage it asks for."""
    asked = (spec(claim).get("resources") or {}).get("requests") or {}
    return [
        told
        for item in items(limit_ranges, "PersistentVolumeClaim")
        for told in (*_least(item, asked, {}), *_most(item, asked, asked))
    ]


def _checked(item: JsonObject, requests: Amounts, limits: Amounts) -> Iterator[str]:
    yield from _least(item, requests, limits)
    yield from _most(item, requests, limits)
    yield from _ratio(item, requests, limits)


def _least(item: JsonObject, requests: Amounts, limits: Amounts) -> Iterator[str]:
    for resource, least in (item.get("min") or {}).items():
        told = f"minimum {resource} usage per {item['type']} is {least}"
        if resource not in requests:
            yield f"{told}.  No request is specified"
        elif quantities.parse(requests[resource]) < quantities.parse(least):
            yield f"{told}, but request is {requests[resource]}"
        elif resource in limits and quantities.parse(limits[resource]) < quantities.parse(least):
            yield f"{told}, but limit is {limits[resource]}"


def _most(item: JsonObject, requests: Amounts, limits: Amounts) -> Iterator[str]:
    for resource, most in (item.get("max") or {}).items():
        told = f"maximum {resource} usage per {item['type']} is {most}"
        if resource not in limits:
            yield f"{told}.  No limit is specified"
        elif quantities.parse(limits[resource]) > quantities.parse(most):
            yield f"{told}, but limit is {limits[resource]}"
        elif resource in requests and quantities.parse(requests[resource]) > quantities.parse(most):
            yield f"{told}, but request is {requests[resource]}"


def _ratio(item: JsonObject, requests: Amounts, limits: Amounts) -> Iterator[str]:
    for resource, ratio in (item.get("maxLimitRequestRatio") or {}).items():
        told = f"{resource} max limit to request ratio per {item['type']} is {ratio}"
        asked = quantities.parse(requests.get(resource, "0"))
        if asked == 0 or resource not in limits:
            yield f"{told}, but no request is specified or request is 0"
        elif quantities.parse(limits[resource]) / asked > quantities.parse(ratio):
            yield f"{told}, but provided ratio is {float(quantities.parse(limits[resource]) / asked):f}"


def _total(pod: JsonObject, side: str) -> Amounts:
    """Return a pod's amounts: the sum of its containers, or an init container's where that is larger."""
    running: dict[str, Decimal] = {}
    starting: dict[str, Decimal] = {}
    for field, _, container in all_containers(pod):
        for resource, amount in ((container.get("resources") or {}).get(side) or {}).items():
            value = quantities.parse(amount)
            if field == "containers":
                running[resource] = running.get(resource, Decimal(0)) + value
            else:
                starting[resource] = max(starting.get(resource, value), value)
    names = {*running, *starting}
    zero = Decimal(0)
    return {name: quantities.canonical(str(max(running.get(name, zero), starting.get(name, zero)))) for name in names}
