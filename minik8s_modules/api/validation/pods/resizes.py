"""Validation of a resize: the resources of a pod's containers, changed through the subresource ``resize``.

Source: kubernetes 1.33 ``pkg/apis/core/validation/validation.go`` (``ValidatePodResize``, ``validateResizePolicy``).
"""

from __future__ import annotations

from typing import Any

from minik8s_modules.api import cause, quantities
from minik8s_modules.api.errors import Cause
from minik8s_modules.api.objects import JsonObject, all_containers, spec
from minik8s_modules.api.pods import resizes
from minik8s_modules.api.pods.mirror_pods import is_mirror
from minik8s_modules.api.pods.resources import qos_class
from minik8s_modules.api.validation.pods.containers import validate_resources
from minik8s_modules.api.validation.pods.resources import validate_pod_resources

_POLICIES = ("NotRequired", "RestartContainer")


def validate_resize(new: JsonObject, old: JsonObject) -> list[Cause]:
    """Return why the resources of the old pod may not become those of the new one."""
    if is_mirror(old):
        return [cause.forbidden("", "static pods cannot be resized")]
    if _unsized(new) != _unsized(old):  # a client's is kept out before; a webhook's is not
        return [cause.forbidden("spec", "only cpu and memory resources are mutable")]
    causes = validate_pod_resources(new)
    if qos_class(new) != qos_class(old):
        causes.append(cause.invalid("spec", qos_class(new), "Pod QOS Class may not change as a result of resizing"))
    for (field, index, after), (_, _, before) in zip(all_containers(new), all_containers(old), strict=True):
        at = f"spec.{field}[{index}].resources"
        wanted, there = after.get("resources") or {}, before.get("resources") or {}
        causes += validate_resources(at, wanted)
        if wanted == there:
            continue
        if field == "initContainers" and after.get("restartPolicy") != "Always":
            detail = "only cpu and memory resources for sidecar containers are mutable"
            causes.append(cause.forbidden(at, detail))
        else:
            causes += _change(at, after, wanted, there)
    return causes


def _unsized(pod: JsonObject) -> JsonObject:
    """Return the spec without what a resize may change."""
    declared = dict(spec(pod))
    for field in ("containers", "initContainers"):
        if declared.get(field):
            declared[field] = [{**one, "resources": None, "resizePolicy": None} for one in declared[field]]
    return declared


def _change(at: str, container: JsonObject, wanted: JsonObject, there: JsonObject) -> list[Cause]:
    causes = []
    for side in ("requests", "limits"):
        after, before = wanted.get(side) or {}, there.get(side) or {}
        if _others(after) != _others(before):
            causes.append(cause.forbidden(f"{at}.{side}", "only cpu and memory resources are mutable"))
        causes += [
            cause.forbidden(f"{at}.{side}", f"resource {side} cannot be removed")
            for name in resizes.COMPUTE
            if name in before and name not in after
        ][:1]
    if _shrinks(wanted, there) and resizes.policy(container, "memory") != resizes.RESTART:
        detail = "memory limits cannot be decreased unless resizePolicy is RestartContainer"
        causes.append(cause.forbidden(f"{at}.limits", detail))
    return causes


def _shrinks(wanted: JsonObject, there: JsonObject) -> bool:
    after, before = ((each.get("limits") or {}).get("memory") for each in (wanted, there))
    return after is not None and before is not None and quantities.parse(after) < quantities.parse(before)


def _others(amounts: JsonObject) -> dict[str, Any]:
    return {name: quantities.parse(amount) for name, amount in amounts.items() if name not in resizes.COMPUTE}


def validate_policies(pod: JsonObject) -> list[Cause]:
    """Return what is wrong with the containers' ``resizePolicy``."""
    never = spec(pod).get("restartPolicy") == "Never"
    causes = []
    for field, index, container in all_containers(pod):
        seen: set[str] = set()
        for place, one in enumerate(container.get("resizePolicy") or []):
            at = f"spec.{field}[{index}].resizePolicy[{place}]"
            resource, policy = str(one.get("resourceName") or ""), str(one.get("restartPolicy") or "")
            causes += _policy(at, resource, policy, seen)
            if never and policy == resizes.RESTART:
                detail = "must be 'NotRequired' when `restartPolicy` is 'Never'"
                causes.append(cause.invalid(f"{at}.restartPolicy", policy, detail))
            seen.add(resource)
    return causes


def _policy(at: str, resource: str, policy: str, seen: set[str]) -> list[Cause]:
    if not resource:
        return [cause.required(f"{at}.resourceName")]
    if not policy:
        return [cause.required(f"{at}.restartPolicy")]
    causes = [cause.duplicate(f"{at}.resourceName", resource)] if resource in seen else []
    if resource not in resizes.COMPUTE:
        causes.append(cause.not_supported(f"{at}.resourceName", resource, resizes.COMPUTE))
    if policy not in _POLICIES:
        causes.append(cause.not_supported(f"{at}.restartPolicy", policy, _POLICIES))
    return causes
