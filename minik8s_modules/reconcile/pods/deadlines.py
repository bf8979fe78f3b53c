"""``activeDeadlineSeconds``: when a pod has been on its node for too long. Source: pkg/kubelet/active_deadline.go."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from minik8s_modules.api import objects
from minik8s_modules.base.clock import parse_rfc3339
from minik8s_modules.reconcile.values.values import PodEvent

_TEXT = "Pod was active on the node longer than the specified deadline"
DEADLINE = PodEvent("Normal", "DeadlineExceeded", _TEXT, "deadline")


def deadline_of(pod: dict[str, Any]) -> datetime | None:
    """Return when the pod's time is over, None where it has none or has not begun."""
    seconds, began = objects.spec(pod).get("activeDeadlineSeconds"), objects.status(pod).get("startTime")
    if seconds is None or not began:
        return None
    return parse_rfc3339(str(began)) + timedelta(seconds=int(seconds))
