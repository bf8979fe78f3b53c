"""Pods and samples from the short form of autoscalers' case files, which is that of upstream's tables.

``ready``, ``started`` (hot: just now, cool: long ago), ``phase`` and ``deleting`` are by pod; ``resource`` has what
each of a pod's two containers requests and uses, in thousandths.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import rfc3339
from minik8s_modules.controllers.autoscaling.proposals import Measured, Unread
from minik8s_modules.controllers.autoscaling.readings import Use, use_in
from minik8s_modules.controllers.autoscaling.replica_counts import Sample, Uncountable
from tests.support.workloads import NOW

SPACE = "test-namespace"
# as in the tables, a sample is as old as the readiness of its pod: of unknown age
_LONG_BEFORE = datetime.min.replace(tzinfo=UTC)
_LONG_AGO, _JUST_NOW = timedelta(hours=1), timedelta(0)


def pods_of(case: dict[str, Any]) -> list[JsonObject]:
    """Return the pods of a case."""
    count = max(int(case["current"]), len(case.get("phase") or []))
    return [_pod(case, number) for number in range(count)]


def _pod(case: dict[str, Any], number: int) -> JsonObject:
    def reported(field: str, otherwise: Any) -> Any:
        given = case.get(field) or []
        return given[number] if number < len(given) else otherwise

    meta: JsonObject = {"name": f"test-pod-{number}", "namespace": SPACE, "labels": {"name": "test-pod"}}
    if reported("deleting", False):  # noqa: FBT003 - what it is otherwise
        meta["deletionTimestamp"] = rfc3339(NOW)
    began = NOW - (_JUST_NOW if reported("started", "cool") == "hot" else _LONG_AGO)
    requests = (case.get("resource") or {}).get("requests") or []
    containers: list[JsonObject] = [{"name": "container1"}, {"name": "container2"}]
    if number < len(requests):
        for each in containers:
            each["resources"] = {"requests": {case["resource"]["name"]: requests[number]}}
    return {
        "metadata": meta,
        "spec": {"containers": containers},
        "status": {
            "phase": reported("phase", "Running"),
            "startTime": rfc3339(began),
            "conditions": [{"type": "Ready", "status": str(reported("ready", True))}],  # noqa: FBT003 - see above
        },
    }


def samples_of(case: dict[str, Any]) -> dict[str, Sample]:
    """Return the samples of a case, read as the controller reads them.

    Raises:
        Uncountable: they cannot be read.
    """
    result = case["resource"]
    names = result.get("pods") or []
    uses = {}
    for number, level in enumerate(result["levels"]):
        containers = {f"container{place + 1}": {result["name"]: f"{amount}m"} for place, amount in enumerate(level)}
        name = names[number] if number < len(names) else f"test-pod-{number}"
        uses[name] = Use(_LONG_BEFORE, 60.0, containers)
    found: Measured = use_in(SPACE, uses, result["name"], case.get("container", ""))
    if isinstance(found, Unread):
        raise Uncountable(f"unable to get metrics for resource {result['name']}: {found.why}")
    if isinstance(found, int):
        raise TypeError("samples are by pod")
    return dict(found)
