"""Taints of nodes and what tolerates them. Source: kubernetes pkg/apis/core/v1/helper (ToleratesTaint)."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject


def tolerates(pod: JsonObject, taint: Mapping[str, Any]) -> bool:
    """Return whether one of the pod's tolerations covers ``taint``."""
    return any(covers(toleration, taint) for toleration in objects.spec(pod).get("tolerations") or [])


def covers(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    """Return whether one toleration covers ``taint``, for however long."""
    if toleration.get("effect") not in {None, "", taint.get("effect")}:
        return False
    if toleration.get("key") not in {None, "", taint.get("key")}:
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(toleration.get("key")) and (toleration.get("value") or "") == (taint.get("value") or "")


def untolerated(pod: JsonObject, node: JsonObject, effects: AbstractSet[str]) -> list[JsonObject]:
    """Return the node's taints of ``effects`` that the pod does not tolerate."""
    taints = objects.spec(node).get("taints") or []
    return [taint for taint in taints if taint.get("effect") in effects and not tolerates(pod, taint)]
