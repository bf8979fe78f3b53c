"""What gateways measure on a node, in Prometheus' text: a kubelet's ``/metrics``, ``/metrics/resource`` and cAdvisor's.

Samples carry the time they were measured at. Sources: kubernetes ``pkg/kubelet/metrics/collectors``, cAdvisor
``metrics/prometheus.go``.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from minik8s_modules.api import objects, quantities
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import parse_rfc3339

log = logging.getLogger(__name__)

_NS = 1_000_000_000
COUNTED = (
    "kubelet_pod_start_duration_seconds", "kubelet_pleg_relist_duration_seconds", "kubelet_volume_stats",
    "csi_operations_seconds", "minik8s_reconciler_",
)  # fmt: skip
"""What names of families begin with that reconcilers count (reconcile/values/loop_metrics.py)."""


class Measured(NamedTuple):
    """A pod of the node with what its containers use, by their names."""

    pod: JsonObject
    usage: Mapping[str, JsonObject]
    pressure: JsonObject = {}  # noqa: RUF012 - nobody changes it
    """By resource, with the time it was told at, where the node's cgroups tell it."""


class Node(NamedTuple):
    """A node, its pods, and what is used there; ``machine`` is {} as long as nothing was measured."""

    name: str
    object: JsonObject
    machine: JsonObject
    measured: tuple[Measured, ...]


class _Sample(NamedTuple):
    labels: Mapping[str, str]
    value: float
    at_s: float


def _family(name: str, kind: str, help_text: str, samples: Iterable[_Sample]) -> Iterator[str]:
    yield f"# HELP {name} {help_text}\n# TYPE {name} {kind}\n"
    for each in samples:
        labels = ",".join(f'{key}="{_escaped(value)}"' for key, value in each.labels.items())
        shown = f"{{{labels}}}" if labels else ""
        yield f"{name}{shown} {each.value!r} {round(each.at_s * 1000)}\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _cpu_s(usage: JsonObject) -> float:
    return int(usage.get("cpu_nanoseconds") or 0) / _NS


def _memory(usage: JsonObject) -> float:
    return float(usage["memory_bytes"])


def _of_containers(node: Node, value: Callable[[JsonObject], float]) -> Iterator[_Sample]:
    for each in node.measured:
        for container, usage in each.usage.items():
            labels = {"container": container, **_pod_labels(each)}
            yield _Sample(labels, value(usage), float(usage["timestamp_s"]))


def _of_pods(node: Node, value: Callable[[JsonObject], float]) -> Iterator[_Sample]:
    for each in node.measured:
        oldest = min(float(usage["timestamp_s"]) for usage in each.usage.values())
        yield _Sample(_pod_labels(each), sum(map(value, each.usage.values())), oldest)


def _of_node(node: Node, value: Callable[[JsonObject], float]) -> list[_Sample]:
    return [_Sample({}, value(node.machine), float(node.machine["timestamp_s"]))] if node.machine else []


def _pod_labels(each: Measured) -> dict[str, str]:
    return {"namespace": objects.namespace(each.pod), "pod": objects.name(each.pod)}


def _starts(node: Node) -> Iterator[_Sample]:
    for sample in _of_containers(node, _memory):
        pod = next(each.pod for each in node.measured if _pod_labels(each).items() <= sample.labels.items())
        for status in objects.status(pod).get("containerStatuses") or []:
            started = ((status.get("state") or {}).get("running") or {}).get("startedAt")
            if status.get("name") == sample.labels["container"] and started:
                yield sample._replace(value=parse_rfc3339(started).timestamp())


def resource_lines(node: Node) -> Iterator[str]:
    """Yield ``/metrics/resource``."""
    cpu, memory = "Cumulative cpu time consumed by the {} in core-seconds", "Current working set of the {} in bytes"
    for what, of in (("container", _of_containers), ("pod", _of_pods), ("node", _of_node)):
        yield from _family(
            f"{what}_cpu_usage_seconds_total", "counter", f"[STABLE] {cpu.format(what)}", of(node, _cpu_s)
        )
        yield from _family(
            f"{what}_memory_working_set_bytes", "gauge", f"[STABLE] {memory.format(what)}", of(node, _memory)
        )
    help_text = "[STABLE] Start time of the container since unix epoch in seconds"
    yield from _family("container_start_time_seconds", "gauge", help_text, _starts(node))
    help_text = "[STABLE] 1 if there was an error while getting container metrics, 0 otherwise"
    yield f"# HELP resource_scrape_error {help_text}\n# TYPE resource_scrape_error gauge\n"
    yield f"resource_scrape_error {0 if node.machine else 1}\n"


def kubelet_lines(node: str, pods: Iterable[JsonObject], now_s: float) -> Iterator[str]:
    """Yield what of a kubelet's own ``/metrics`` is known here: its name, pods and containers as they are reported."""
    states = Counter({"running": 0})
    running = 0
    for each in pods:
        running += objects.status(each).get("phase") == "Running"
        for container in objects.status(each).get("containerStatuses") or []:
            states.update({"terminated": "exited"}.get(state, state) for state in container.get("state") or {})
    del states["waiting"]  # for its container, which is not there
    help_text = "[ALPHA] The node's name. The count is always 1."
    yield from _family("kubelet_node_name", "gauge", help_text, [_Sample({"node": node}, 1.0, now_s)])
    help_text = "[ALPHA] Number of pods that have a running pod sandbox"
    yield from _family("kubelet_running_pods", "gauge", help_text, [_Sample({}, float(running), now_s)])
    help_text = "[ALPHA] Number of containers currently running"
    samples = (_Sample({"container_state": state}, float(count), now_s) for state, count in sorted(states.items()))
    yield from _family("kubelet_running_containers", "gauge", help_text, samples)


class _Counted(NamedTuple):
    """What ``generate_latest`` writes; it asks no more of a registry."""

    families: tuple[Metric, ...]

    def collect(self) -> Iterator[Metric]:
        """Return the families."""
        return iter(self.families)


def reconciler_text(exposed: str) -> str:
    """Return what a reconciler counted of a node, "" of what is none: a node's own may tell nothing else by it."""
    from prometheus_client import generate_latest  # noqa: PLC0415 - with a client of HTTP, for who asks for this

    try:
        families = tuple(each for each in text_string_to_metric_families(exposed) if each.name.startswith(COUNTED))
        return generate_latest(_Counted(families)).decode()
    except ValueError as error:
        log.warning("what a reconciler counted cannot be read: %s", error)
        return ""


def cadvisor_lines(node: Node) -> Iterator[str]:
    """Yield what of ``/metrics/cadvisor`` is measured here; ``id="/"`` is the machine."""
    for name, kind, help_text, value in (
        ("container_cpu_usage_seconds_total", "counter", "Cumulative cpu time consumed in seconds.", _cpu_s),
        ("container_memory_working_set_bytes", "gauge", "Current working set in bytes.", _memory),
    ):
        machine = (each._replace(labels=_MACHINE) for each in _of_node(node, value))
        containers = (each._replace(labels=_cadvisor_labels(node, each.labels)) for each in _of_containers(node, value))
        yield from _family(name, kind, help_text, [*machine, *containers])
    help_text = "Start time of the container since unix epoch in seconds."
    starts = (each._replace(labels=_cadvisor_labels(node, each.labels)) for each in _starts(node))
    yield from _family("container_start_time_seconds", "gauge", help_text, starts)
    yield from _disk_lines(node)
    yield from _pressure_lines(node)
    yield from _machine_lines(node)


def _cadvisor_labels(node: Node, labels: Mapping[str, str]) -> Mapping[str, str]:
    """Return the labels of a container as cAdvisor has them: also its image, its id and its name in Docker."""
    pod = next(each.pod for each in node.measured if _pod_labels(each).items() <= labels.items())
    statuses = objects.status(pod).get("containerStatuses") or []
    found: JsonObject = next((each for each in statuses if each.get("name") == labels["container"]), {})
    own = str(found.get("containerID") or "").rpartition("://")[2]
    more = {"id": f"/docker/{own}", "image": str(found.get("image") or ""), "name": own}
    return {**labels, **{name: value for name, value in more.items() if own}}


def _disk_lines(node: Node) -> Iterator[str]:
    disk = node.machine.get("disk") or {}
    at_s = float(node.machine.get("timestamp_s") or 0.0)
    for name, help_text, value in (
        ("container_fs_limit_bytes", "Number of bytes that can be consumed by the container on this filesystem.", 0),
        ("container_fs_usage_bytes", "Number of bytes that are consumed by the container on this filesystem.", 1),
    ):
        figures = (disk["capacity_bytes"], disk["capacity_bytes"] - disk["available_bytes"]) if disk else ()
        samples = [_Sample(_MACHINE, float(figures[value]), at_s)] if figures else []
        yield from _family(name, "gauge", help_text, samples)


def _pressure_lines(node: Node) -> Iterator[str]:
    """Yield the pressure of the machine, and of each pod as its cgroup tells it, which is of no container."""
    told = [(_MACHINE, node.machine.get("pressure") or {}, node.machine.get("timestamp_s"))]
    told += [
        ({"container": "", **_pod_labels(each)}, each.pressure, each.pressure.get("timestamp_s"))
        for each in node.measured
    ]
    for resource, named in (("cpu", "CPU"), ("memory", "memory"), ("io", "I/O")):
        for which, name, what in (("some", "waiting", "have waited for"), ("full", "stalled", "were stalled by")):
            samples = [
                _Sample(labels, found[resource][which]["total_us"] / 1e6, float(at_s or 0.0))
                for labels, found, at_s in told
                if which in (found.get(resource) or {})
            ]
            if samples:
                help_text = f"Total time in seconds that tasks {what} {named} congestion."
                yield from _family(f"container_pressure_{resource}_{name}_seconds_total", "counter", help_text, samples)


def _machine_lines(node: Node) -> Iterator[str]:
    has = objects.status(node.object).get("capacity") or {}
    for name, help_text, resource in (
        ("machine_cpu_cores", "Number of logical CPU cores.", "cpu"),
        ("machine_memory_bytes", "Amount of memory installed on the machine.", "memory"),
    ):
        yield f"# HELP {name} {help_text}\n# TYPE {name} gauge\n"
        if resource in has:
            yield f"{name} {quantities.to_milli(str(has[resource])) / 1000!r}\n"


_MACHINE = {"id": "/"}
