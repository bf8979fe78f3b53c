"""What the loop counts of each node, told as a kubelet tells it of its own: without a label for the node.

The families outlive elections of one process, so that counters do not fall back with each. API servers ask for them
(``planning/planserver.py``) and answer them beside what they know of a node (``apiserver/nodes/node_metrics.py``).
"""

from __future__ import annotations

from collections.abc import Iterable

from minik8s_modules.base.metrics import Registry

# pkg/kubelet/metrics/metrics.go: KubeletPodStartDuration
_START_BUCKETS_S = (0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800)
_ITEM_BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
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
        self._waiting: dict[str, float] = {}
        self._sent: dict[str, float] = {}

    def on_pod(self, uid: str, phase: str, now_s: float) -> None:
        """Take notice of a Pod of the node in its phase."""
        if phase in _WAITING:
            self._waiting.setdefault(uid, now_s)
            return
        begun_s = self._waiting.pop(uid, None)
        if begun_s is not None and phase == "Running":
            self._starts.observe(now_s - begun_s)

    def forget(self, uid: str) -> None:
        """Forget a Pod that is gone."""
        self._waiting.pop(uid, None)

    def on_sent(self, item: str, now_s: float) -> None:
        """An item was handed to Ansible; a node works on one at a time."""
        self._sent = {item: now_s}

    def on_outcome(self, item: str, status: str, steps: Iterable[tuple[str, int]], now_s: float) -> None:
        """An item has ended, with so many steps in each section."""
        begun_s = self._sent.pop(item, None)
        if begun_s is not None:
            self._took.observe(now_s - begun_s)
        self._items.labels(status).inc()
        for section, count in steps:
            self._steps.labels(section).inc(count)

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
