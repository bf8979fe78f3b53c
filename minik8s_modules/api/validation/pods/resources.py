"""Validation of what a pod declares for all of its containers together (``spec.resources``).

Source: kubernetes 1.34 ``pkg/apis/core/validation/validation.go`` (``validatePodResources``).
"""

from __future__ import annotations

from decimal import Decimal

from minik8s_modules.api import cause, quantities
from minik8s_modules.api.errors import Cause
from minik8s_modules.api.objects import JsonObject, all_containers, spec
from minik8s_modules.api.pods.resources import COMPUTE, pod_amounts, pod_level
from minik8s_modules.api.validation.pods.containers import validate_resources

_AT = "spec.resources"
_NANO = Decimal("1e-9")


def validate_pod_resources(pod: JsonObject) -> list[Cause]:
    """Return why the pod may not have these resources: of other kinds, or less than its containers are to have."""
    declared = pod_level(pod)
    if not declared:
        return []
    causes = [
        cause.not_supported(f"{_AT}.{side}", name, COMPUTE)
        for side in ("limits", "requests")
        for name in declared.get(side) or {}
        if name not in COMPUTE
    ]
    causes += validate_resources(_AT, declared)
    return causes or [*_requested(pod, declared.get("requests") or {}), *_limited(pod, declared.get("limits") or {})]


def _requested(pod: JsonObject, requests: JsonObject) -> list[Cause]:
    def of(container: JsonObject) -> dict[str, int]:
        amounts = (container.get("resources") or {}).get("requests") or {}
        return {name: int(quantities.parse(amounts[name]) / _NANO) for name in COMPUTE if name in amounts}

    plain = {**pod, "spec": {**spec(pod), "resources": {}, "overhead": {}}}
    together = {name: amount * _NANO for name, amount in pod_amounts(plain, of).items()}
    return [
        cause.invalid(
            f"{_AT}.requests[{name}]",
            quantities.canonical(amount),
            f"must be greater than or equal to aggregate container requests of {_shown(together[name])}",
        )
        for name, amount in requests.items()
        if quantities.parse(amount) < together.get(name, 0)
    ]


def _limited(pod: JsonObject, limits: JsonObject) -> list[Cause]:
    return [
        cause.invalid(
            f"spec.{field}[{index}].resources.limits[{name}]",
            quantities.canonical(amount),
            f"must be less than or equal to pod limits of {quantities.canonical(limits[name])}",
        )
        for field, index, container in all_containers(pod)
        for name, amount in ((container.get("resources") or {}).get("limits") or {}).items()
        if name in limits and quantities.parse(amount) > quantities.parse(limits[name])
    ]


def _shown(amount: Decimal) -> str:
    return quantities.canonical(f"{amount:f}")
