"""What a metric of an autoscaler says, by whichever API has it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from minik8s_modules.api.kinds import Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.controllers.autoscaling.proposals import Measured, Unread
from minik8s_modules.controllers.autoscaling.readings import Readings

KindOf = Callable[[JsonObject], Kind | str]
"""Returns the kind that a reference names, or why there is none."""


def measure(
    metric: JsonObject, namespace: str, selector: str, pods: Sequence[JsonObject], readings: Readings, kind_of: KindOf
) -> Measured:
    """Return what is measured for one metric of an autoscaler's spec.

    Args:
        metric: one of ``spec.metrics``.
        namespace: of the autoscaler.
        selector: of the target's scale, as text.
        pods: those that it matches.
        readings: asks the metrics APIs.
        kind_of: finds the kind of an object that a metric describes.
    """
    match metric["type"]:
        case "Resource":
            return readings.of_resource(pods, metric["resource"]["name"])
        case "ContainerResource":
            source = metric["containerResource"]
            return readings.of_resource(pods, source["name"], source["container"])
        case "Pods":
            return readings.of_pods(namespace, selector, metric["pods"]["metric"])
        case "Object":
            return _of_object(metric["object"], namespace, readings, kind_of)
    return readings.of_external(namespace, metric["external"]["metric"])


def _of_object(source: JsonObject, namespace: str, readings: Readings, kind_of: KindOf) -> Measured:
    described = source["describedObject"]
    kind = kind_of(described)
    if isinstance(kind, str):
        return Unread(f"unable to fetch metrics from custom metrics API: {kind}")
    resource = "" if (kind.group, kind.kind) == ("", "Namespace") else kind.resource
    return readings.of_object(namespace, resource, described["name"], source["metric"])
