"""The three policies of the original MiniK8s, as Score plugins among the nodes that fit.

There they took any node; here they choose among those that can take the pod.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from minik8s_modules.api import objects
from minik8s_modules.scheduler.framework.infos import NodeInfo, PodInfo
from minik8s_modules.scheduler.framework.points import BEST, CycleState
from minik8s_modules.scheduler.framework.statuses import SKIP, Status
from minik8s_modules.scheduler.plugins.base import InTree


class RoundRobin(InTree):
    """Nodes take turns, by name: ``nodes[counter % len(nodes)]``."""

    name = "RoundRobin"

    def pre_score(self, state: CycleState, _pod: PodInfo, nodes: Sequence[NodeInfo]) -> Status | None:
        """Find whose turn it is."""
        names = sorted(node.name for node in nodes)
        state[self.name] = names[self.handle.snapshot().turn % len(names)]
        return None

    def score(self, state: CycleState, _pod: PodInfo, node: NodeInfo) -> int:
        """Return 100 for the node whose turn it is."""
        return BEST if state[self.name] == node.name else 0


class Random(InTree):
    """Any node, all alike; the same pod in the same turn has the same one, so that a plan can tell it."""

    name = "Random"

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo]) -> Status | None:
        """Throw the dice."""
        names = sorted(node.name for node in nodes)
        dice = random.Random(f"{pod.key} {self.handle.snapshot().turn}")  # noqa: S311 - chooses nodes, guards nothing
        state[self.name] = dice.choice(names)
        return None

    def score(self, state: CycleState, _pod: PodInfo, node: NodeInfo) -> int:
        """Return 100 for the node that was drawn."""
        return BEST if state[self.name] == node.name else 0


class LabelAffinity(InTree):
    """The first node, by name, whose labels include all labels of the pod; without one the dice decide."""

    name = "LabelAffinity"

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo]) -> Status | None:
        """Find the first node with the pod's labels."""
        wanted = objects.labels(pod.pod).items()
        names = [node.name for node in nodes if node.labels and wanted <= node.labels.items()] if wanted else []
        if not names:
            return SKIP
        state[self.name] = min(names)
        return None

    def score(self, state: CycleState, _pod: PodInfo, node: NodeInfo) -> int:
        """Return 100 for that node."""
        return BEST if state[self.name] == node.name else 0
