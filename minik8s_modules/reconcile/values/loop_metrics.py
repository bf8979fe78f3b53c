"""What the loop counts of each node, told as a kubelet tells it of its own: without a label for the node.

The families outlive elections of one process, so that counters do not fall back with each. API servers ask for them
(``planning/planserver.py``) and answer them beside what they know of a node (``apiserver/nodes/node_metrics.py``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.metrics import Read, Registry
from minik8s_modules.module_utils.minik8s.volumes.csi_calls import CODES
from minik8s_modules.reconcile.values.items import FACTS, Outcome
from minik8s_modules.reconcile.values.values import Entries

# pkg/kubelet/metrics/metrics.go: KubeletPodStartDuration
_START_BUCKETS_S = (0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800)
_ITEM_BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
# component-base/metrics/csi.go
_CALL_BUCKETS_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0)
_MOST_DRIVERS = 32
_METHOD = re.compile(r"/csi\.v1\.Node/Node[A-Za-z]{1,30}")
_WAITING = frozenset({"", "Pending"})


class NodeLoopMetrics:
    """The families of one node; seconds are monotonic."""

    def __init__(self) -> None:
        self.registry = Registry()
        self._starts = self.registry.histogram(
            "kubelet_pod_start_duration_seconds",
            "Seconds from the first sight of a Pod to the sight of it running.",
            buckets=_START_BUCKETS_S,
        )
        self._relists = self.registry.histogram(
            "kubelet_pleg_relist_duration_seconds",
            "Seconds that listing the node's containers and images took, after a connection or a loss of events.",
        )
        self._items = self.registry.counter(
            "minik8s_reconciler_items_total", "Items that Ansible worked on, by how they ended.", ("status",)
        )
        self._took = self.registry.histogram(
            "minik8s_reconciler_item_duration_seconds",
            "Seconds from handing an item to Ansible to its outcome.",
            buckets=_ITEM_BUCKETS_S,
        )
        self._steps = self.registry.counter(
            "minik8s_reconciler_steps_total", "Steps that modules took on the node, by section.", ("section",)
        )
        self._drift = self.registry.counter(
            "minik8s_reconciler_drift_total",
            "Entries that were not as the node had had them, by section and by what became of them.",
            ("section", "result"),
        )
        self._policies: Entries = {}
        self.registry.gauge(
            "minik8s_reconciler_isolated_pods",
            "Pods of the node that NetworkPolicies isolate, by direction.",
            ("direction",),
            self._isolated,
        )
        self._announced = 0
        self.registry.gauge(
            "minik8s_reconciler_announced_addresses",
            "Addresses of load balancers that the node announces.",
            (),
            lambda: {(): float(self._announced)},
        )
        self._checks: Entries = {}
        self.registry.gauge(
            "minik8s_reconciler_health_checks",
            "Services whose health checks the node answers, by the code that it answers.",
            ("code",),
            self._checked,
        )
        self._rooms: Mapping[tuple[str, str], Mapping[str, int]] = {}
        self._tell_rooms(("namespace", "persistentvolumeclaim"))
        self._calls = self.registry.histogram(
            "csi_operations_seconds",
            "Seconds that calls to CSI drivers took, by method and outcome.",
            ("driver_name", "method_name", "grpc_status_code", "migrated"),
            _CALL_BUCKETS_S,
        )
        self._drivers: set[str] = set()
        self._waiting: dict[str, float] = {}
        self._sent: dict[str, float] = {}

    def on_pod(self, pod: JsonObject, now_s: float) -> None:
        """Take notice of a Pod of the node in its phase."""
        uid, phase = objects.uid(pod), str(objects.status(pod).get("phase") or "")
        if phase in _WAITING:
            self._waiting.setdefault(uid, now_s)
            return
        begun_s = self._waiting.pop(uid, None)
        if begun_s is not None and phase == "Running":
            self._starts.observe(now_s - begun_s)

    def forget(self, uid: str) -> None:
        """Forget a Pod that is gone."""
        self._waiting.pop(uid, None)

    def on_told(self, message: Mapping[str, Any]) -> None:
        """The gateway told something of the node, maybe all there is, listed again."""
        if isinstance(message.get("took_s"), float):
            self._relists.observe(message["took_s"])

    def on_sent(self, item: str, now_s: float) -> None:
        """An item was handed to Ansible; a node works on one at a time."""
        self._sent = {item: now_s}

    def on_outcome(self, outcome: Outcome, now_s: float) -> None:
        """An item has ended."""
        begun_s = self._sent.pop(outcome.id, None)
        if begun_s is not None:
            self._took.observe(now_s - begun_s)
        self._items.labels(outcome.status).inc()
        for section, result in outcome.sections.items():
            if section == FACTS:
                continue  # which is none, and only looks
            self._steps.labels(section).inc(len(result.get("steps") or ()))
        self.on_calls((outcome.sections.get("volumes") or {}).get("calls") or ())

    def on_policies(self, entries: Entries) -> None:
        """The node is to have this section ``policies``."""
        self._policies = entries

    def on_announced(self, count: int) -> None:
        """The node is to announce so many addresses."""
        self._announced = count

    def on_checks(self, entries: Entries) -> None:
        """The node is to answer these health checks of Services."""
        self._checks = entries

    def _checked(self) -> dict[tuple[str, ...], float]:
        serving = sum(bool(one["endpoints"]) for one in self._checks.values())
        return {("200",): float(serving), ("503",): float(len(self._checks) - serving)}

    def _isolated(self) -> dict[tuple[str, ...], float]:
        pods = [one for one in self._policies.values() if "address" in one]
        return {(way,): float(sum(one[way] is not None for one in pods)) for way in ("ingress", "egress")}

    def on_rooms(self, found: Mapping[tuple[str, str], Mapping[str, int]]) -> None:
        """Volumes of claims were asked how full they are."""
        self._rooms = found

    def _tell_rooms(self, labels: tuple[str, str]) -> None:
        """Make the families of pkg/kubelet/metrics/collectors/volume_stats.go."""
        gauge, room = self.registry.gauge, self._room
        gauge("kubelet_volume_stats_capacity_bytes", "Bytes that a claim's volume has.", labels, room("capacity_bytes"))
        gauge("kubelet_volume_stats_available_bytes", "Bytes left in it for users.", labels, room("available_bytes"))
        gauge("kubelet_volume_stats_used_bytes", "Bytes used in it.", labels, room("used_bytes"))
        gauge("kubelet_volume_stats_inodes", "Inodes that it has.", labels, room("inodes"))
        gauge("kubelet_volume_stats_inodes_free", "Inodes left in it.", labels, room("inodes_free"))
        gauge("kubelet_volume_stats_inodes_used", "Inodes used in it.", labels, room("inodes_used"))

    def _room(self, field: str) -> Read:
        def read() -> dict[tuple[str, ...], float]:
            return {claim: float(room[field]) for claim, room in self._rooms.items() if room.get(field) is not None}

        return read

    def on_calls(self, calls: Iterable[Mapping[str, Any]]) -> None:
        """CSI drivers were called; what a node tells that names no method or code of CSI's is not counted."""
        for call in calls:
            driver, method, code = (str(call.get(field)) for field in ("driver", "method", "code"))
            if len(self._drivers) < _MOST_DRIVERS:
                self._drivers.add(driver)
            known = driver in self._drivers and _METHOD.fullmatch(method) and code in CODES
            if known and isinstance(call.get("seconds"), float):
                self._calls.labels(driver, method, code, "false").observe(call["seconds"])

    def on_drift(self, section: str, *, healed: bool, held: bool) -> None:
        """An entry of a section was not as it had been."""
        self._drift.labels(section, "healed" if healed else "held" if held else "failed").inc()


class LoopMetrics:
    """The metrics of the nodes of a shard; the nodes are replaced as a whole, so that readers need no lock."""

    def __init__(self) -> None:
        self._nodes: dict[str, NodeLoopMetrics] = {}

    def of(self, node: str) -> NodeLoopMetrics:
        """Return those of a node; of one that has left, some that nobody reads."""
        return self._nodes.get(node) or NodeLoopMetrics()

    def keep(self, nodes: Iterable[str]) -> None:
        """Count for exactly these nodes; of others nothing is kept."""
        self._nodes = {name: self._nodes.get(name) or NodeLoopMetrics() for name in nodes}

    def text(self, node: str) -> str | None:
        """Return a node's families in the exposition format 0.0.4, None of a node that is not of this shard."""
        found = self._nodes.get(node)
        return None if found is None else found.registry.text()
