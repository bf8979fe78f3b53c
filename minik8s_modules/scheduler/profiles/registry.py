"""The plugins there are: those in tree, and those that installed packages offer as entry points.

A package offers a plugin by an entry point of the group ``minik8s.scheduler_plugins``: the name is the plugin's, the
object is called with ``(arguments, handle)`` and returns the plugin. It is loaded only when a profile enables it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from minik8s_modules.scheduler.plugins.binding import DefaultBinder
from minik8s_modules.scheduler.plugins.images import ImageLocality
from minik8s_modules.scheduler.plugins.inter_pod_affinity import InterPodAffinity
from minik8s_modules.scheduler.plugins.nodes import (
    NodeAffinity,
    NodeName,
    NodePorts,
    NodeReady,
    NodeUnschedulable,
    TaintToleration,
)
from minik8s_modules.scheduler.plugins.policies import LabelAffinity, Random, RoundRobin
from minik8s_modules.scheduler.plugins.preemption import DefaultPreemption
from minik8s_modules.scheduler.plugins.queueing import PrioritySort, SchedulingGates
from minik8s_modules.scheduler.plugins.resources import NodeResourcesBalancedAllocation, NodeResourcesFit
from minik8s_modules.scheduler.plugins.topology_spread import PodTopologySpread
from minik8s_modules.scheduler.plugins.volume_binding import VolumeBinding
from minik8s_modules.scheduler.plugins.volume_limits import NodeVolumeLimits, VolumeRestrictions, VolumeZone

GROUP = "minik8s.scheduler_plugins"
Factory = Callable[[Mapping[str, Any], Any], Any]

IN_TREE: Mapping[str, Factory] = {
    one.name: one
    for one in (
        SchedulingGates, PrioritySort, NodeReady, NodeUnschedulable, NodeName, TaintToleration, NodeAffinity, NodePorts,
        NodeResourcesFit, VolumeRestrictions, NodeVolumeLimits, VolumeBinding, VolumeZone, PodTopologySpread,
        InterPodAffinity, DefaultPreemption, NodeResourcesBalancedAllocation, ImageLocality, DefaultBinder, RoundRobin,
        Random, LabelAffinity,
    )
}  # fmt: skip
REFUSED: Mapping[str, str] = {
    "DynamicResources": "dynamic resource allocation is not supported (Kubernetes 1.32 does not enable it by default)",
    "SelectorSpread": "PodTopologySpread spreads pods by its defaults",
}
# kube-scheduler's (apis/config/v1/default_plugins.go), and NodeReady
DEFAULTS: tuple[tuple[str, int], ...] = (
    ("SchedulingGates", 0), ("PrioritySort", 0), ("NodeReady", 0), ("NodeUnschedulable", 0), ("NodeName", 0),
    ("TaintToleration", 3), ("NodeAffinity", 2), ("NodePorts", 0), ("NodeResourcesFit", 1), ("VolumeRestrictions", 0),
    ("NodeVolumeLimits", 0), ("VolumeBinding", 0), ("VolumeZone", 0), ("PodTopologySpread", 2), ("InterPodAffinity", 2),
    ("DefaultPreemption", 0), ("NodeResourcesBalancedAllocation", 1), ("ImageLocality", 1), ("DefaultBinder", 0),
)  # fmt: skip


def foreign() -> dict[str, Any]:
    """Return the entry points of plugins that are not in tree, by name."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - 1 MB with what it imports, for profiles alone

    return {one.name: one for one in entry_points(group=GROUP)}
