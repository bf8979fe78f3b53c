"""The two PriorityClasses that every cluster has. Pure.

Source: kubernetes ``pkg/apis/scheduling/v1/helpers.go``, whose words the messages are.
"""

from __future__ import annotations

from collections.abc import Mapping

from minik8s_modules.api.objects import JsonObject, name

SYSTEM_PREFIX = "system-"
SYSTEM_CLASSES: Mapping[str, JsonObject] = {
    "system-node-critical": {
        "value": 2_000_001_000,
        "description": "Used for system critical pods that must not be moved from their current node.",
    },
    "system-cluster-critical": {
        "value": 2_000_000_000,
        "description": "Used for system critical pods that must run in the cluster, but can be moved to another node "
        "if necessary.",
    },
}
"""What the API server makes, and Pods get while it has not."""


def system_obstacle(priority_class: JsonObject) -> str:
    """Return why a class with the reserved prefix is none of the two, "" where it is."""
    own = name(priority_class)
    if own not in SYSTEM_CLASSES:
        return f"{own} is not a known system priority class"
    value = SYSTEM_CLASSES[own]["value"]
    if (priority_class.get("value") or 0) != value:
        return f"value of {own} PriorityClass must be {value}"
    return f"globalDefault of {own} PriorityClass must be false" if priority_class.get("globalDefault") else ""
