"""LimitRange: the defaults it gives to containers, and what of a pod or claim it refuses. Pure.

Source: kubernetes ``plugin/pkg/admission/limitranger/admission.go``, whose messages these are.
"""

from __future__ import annotations

import itertools
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
    yield from _beyond(item, "max", {"request": requests})


def _checked(item: JsonObject, requests: Amounts, limits: Amounts) -> Iterator[str]:
    yield from _least(item, requests, limits)
    yield from _beyond(item, "max", {"limit": limits, "request": requests})
    yield from _ratio(item, requests, limits)


def _least(item: JsonObject, requests: Amounts, limits: Amounts) -> Iterator[str]:
    yield from _beyond(item, "min", {"request": requests, "limit": limits})


def _beyond(item: JsonObject, side: str, sides: Mapping[str, Amounts]) -> Iterator[str]:
    """Yield what is beyond a bound, once a resource; the first of ``sides`` must be there."""
    first, sign = next(iter(sides)), 1 if side == "max" else -1
    for resource, bound in (item.get(side) or {}).items():
        detail = f"{side}imum {resource} usage per {item['type']} is {bound}"
        if resource not in sides[first]:
            yield f"{detail}.  No {first} is specified"
            continue
        wrong = (
            f"{detail}, but {name} is {amounts[resource]}"
            for name, amounts in sides.items()
            if resource in amounts and sign * quantities.parse(amounts[resource]) > sign * quantities.parse(bound)
        )
        yield from itertools.islice(wrong, 1)


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
