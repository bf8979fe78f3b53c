"""LimitRange: the defaults it gives to containers, and what of a pod or claim it refuses. Pure.

Source: kubernetes ``plugin/pkg/admission/limitranger/admission.go``, whose messages these are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal

from minik8s_modules.api import quantities
from minik8s_modules.api.objects import JsonObject, all_containers, spec
from minik8s_modules.api.pods import resources

Amounts = Mapping[str, str]
_NANO = Decimal("1e-9")


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
        detail
        for item in items(limit_ranges, "PersistentVolumeClaim")
        for detail in (*_least(item, asked, {}), *_most_asked(item, asked))
    ]


def _most_asked(item: JsonObject, requests: Amounts) -> Iterator[str]:
    """A claim has no limits: what it asks for is what the maximum is of (``maxRequestConstraint``)."""
    for resource, most in (item.get("max") or {}).items():
        detail = f"maximum {resource} usage per {item['type']} is {most}"
        if resource not in requests:
            yield f"{detail}.  No request is specified"
        elif quantities.parse(requests[resource]) > quantities.parse(most):
            yield f"{detail}, but request is {requests[resource]}"


def _checked(item: JsonObject, requests: Amounts, limits: Amounts) -> Iterator[str]:
    yield from _least(item, requests, limits)
    yield from _most(item, requests, limits)
    yield from _ratio(item, requests, limits)


def _least(item: JsonObject, requests: Amounts, limits: Amounts) -> Iterator[str]:
    for resource, least in (item.get("min") or {}).items():
        detail = f"minimum {resource} usage per {item['type']} is {least}"
        if resource not in requests:
            yield f"{detail}.  No request is specified"
        elif quantities.parse(requests[resource]) < quantities.parse(least):
            yield f"{detail}, but request is {requests[resource]}"
        elif resource in limits and quantities.parse(limits[resource]) < quantities.parse(least):
            yield f"{detail}, but limit is {limits[resource]}"


def _most(item: JsonObject, requests: Amounts, limits: Amounts) -> Iterator[str]:
    for resource, most in (item.get("max") or {}).items():
        detail = f"maximum {resource} usage per {item['type']} is {most}"
        if resource not in limits:
            yield f"{detail}.  No limit is specified"
        elif quantities.parse(limits[resource]) > quantities.parse(most):
            yield f"{detail}, but limit is {limits[resource]}"
        elif resource in requests and quantities.parse(requests[resource]) > quantities.parse(most):
            yield f"{detail}, but request is {requests[resource]}"


def _ratio(item: JsonObject, requests: Amounts, limits: Amounts) -> Iterator[str]:
    for resource, ratio in (item.get("maxLimitRequestRatio") or {}).items():
        detail = f"{resource} max limit to request ratio per {item['type']} is {ratio}"
        asked = quantities.parse(requests.get(resource, "0"))
        if asked == 0 or resource not in limits:
            yield f"{detail}, but no request is specified or request is 0"
        elif quantities.parse(limits[resource]) / asked > quantities.parse(ratio):
            yield f"{detail}, but provided ratio is {float(quantities.parse(limits[resource]) / asked):f}"


def _total(pod: JsonObject, side: str) -> Amounts:
    """Return a pod's amounts: of its containers and sidecars, or of an init container and those where that is more."""

    def of(container: JsonObject) -> dict[str, int]:
        declared = (container.get("resources") or {}).get(side) or {}
        return {name: int(quantities.parse(amount) / _NANO) for name, amount in declared.items()}

    plain = {**pod, "spec": {**spec(pod), "overhead": {}}}
    return {
        name: quantities.canonical(f"{Decimal(amount) * _NANO:f}")
        for name, amount in resources.pod_amounts(plain, of).items()
    }
