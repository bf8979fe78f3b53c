"""The scheduler's seam, in Kubernetes' terms: plugins that filter and score, a profile that lists them, one decision.

``decide_node`` is pure: pod and snapshot in, a node or the reasons out. The shell (``shell.py``) carries it out, and
``plan`` asks it what would happen. A new rule is a plugin in ``plugins.py`` and a line in ``DEFAULT_PROFILE`` there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Protocol

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.resources import PodResources, node_allocatable, pod_requests

DEFAULT_SCHEDULER = "default-scheduler"
_OVER = frozenset({"Succeeded", "Failed"})


class HostPort(NamedTuple):
    """A port of the node's own that a container takes."""

    ip: str
    protocol: str
    port: int

    def conflicts(self, other: HostPort) -> bool:
        """Return whether both cannot be on one node; 0.0.0.0 is every address."""
        same = (self.protocol, self.port) == (other.protocol, other.port)
        return same and (self.ip == other.ip or "0.0.0.0" in {self.ip, other.ip})  # noqa: S104 - compared, not bound


@dataclass(frozen=True, slots=True)
class PodInfo:
    """A pod with what the plugins ask for, worked out once."""

    pod: JsonObject
    requests: PodResources
    ports: tuple[HostPort, ...]

    @classmethod
    def of(cls, pod: JsonObject) -> PodInfo:
        """Return the info of ``pod``."""
        return cls(pod, pod_requests(pod), tuple(host_ports(pod)))


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A node, what it has for pods, and what its pods have taken."""

    node: JsonObject
    allocatable: PodResources
    requested: Mapping[str, int]
    ports: tuple[HostPort, ...]
    pods: tuple[PodInfo, ...] = ()
    social: tuple[PodInfo, ...] = ()
    """Those of ``pods`` that want to be near others, or far from them."""

    @classmethod
    def of(cls, node: JsonObject, bound: Iterable[PodInfo]) -> NodeInfo:
        """Return the info of ``node`` with the pods ``bound`` to it."""
        pods = tuple(bound)
        social = tuple(info for info in pods if is_social(info.pod))
        requested: Counter[str] = Counter()
        ports: list[HostPort] = []
        for info in pods:
            requested.update(amounts(info.requests))
            ports += info.ports
        return cls(node, node_allocatable(node), requested, tuple(ports), pods, social)

    @property
    def name(self) -> str:
        """The node's name."""
        return objects.name(self.node)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All nodes by name, and how many pods were given a node before this one (``turn``)."""

    nodes: tuple[NodeInfo, ...]
    turn: int = 0
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Labels by namespace, for the terms that select namespaces by them."""

    @classmethod
    def of(
        cls,
        nodes: Iterable[JsonObject],
        pods: Iterable[JsonObject],
        turn: int = 0,
        namespaces: Mapping[str, Mapping[str, str]] | None = None,
    ) -> Snapshot:
        """Return the snapshot of ``nodes`` with the bound, unfinished ones of ``pods`` on them."""
        by_node: dict[str, list[PodInfo]] = {}
        for pod in pods:
            if takes_room(pod):
                by_node.setdefault(objects.spec(pod)["nodeName"], []).append(PodInfo.of(pod))
        infos = (NodeInfo.of(node, by_node.get(objects.name(node), ())) for node in nodes)
        return cls(tuple(sorted(infos, key=lambda info: info.name)), turn, namespaces or {})


class Decision(NamedTuple):
    """Either ``node``, or why there is none: ``message`` in Kubernetes' words, and the ``reasons`` of each node."""

    node: str
    message: str = ""
    reasons: Mapping[str, tuple[str, ...]] = {}


class PreFilterPlugin(Protocol):
    """Judges a pod before any node is looked at."""

    name: str

    def pre_filter(self, pod: PodInfo, snapshot: Snapshot) -> str:
        """Return why the pod fits nowhere, or an empty text."""


class FilterPlugin(Protocol):
    """Judges one node for a pod."""

    name: str

    def filter(self, pod: PodInfo, node: NodeInfo) -> Sequence[str]:
        """Return why the pod does not fit there, empty when it does."""


class PreparedPlugin(Protocol):
    """Judges nodes for a pod by what is on other nodes, which it looks at once."""

    name: str

    def prepare(self, pod: PodInfo, snapshot: Snapshot) -> Callable[[NodeInfo], Sequence[str]] | None:
        """Return what tells why the pod does not fit a node (empty when it does); None when it fits every node."""


class ScorePlugin(Protocol):
    """Prefers some of the nodes that fit."""

    name: str

    def score(self, pod: PodInfo, nodes: Sequence[NodeInfo], snapshot: Snapshot) -> Sequence[int]:
        """Return a score from 0 to 100 for each of ``nodes``."""


@dataclass(frozen=True, slots=True)
class Profile:
    """Which plugins decide, in which order; scores are multiplied by their weight and added."""

    pre_filters: tuple[PreFilterPlugin, ...] = ()
    filters: tuple[FilterPlugin, ...] = ()
    prepared: tuple[PreparedPlugin, ...] = ()
    scores: tuple[tuple[ScorePlugin, int], ...] = field(default=())


def decide(pod: JsonObject, snapshot: Snapshot, profile: Profile) -> Decision:
    """Return the node ``profile`` chooses for ``pod``; among equal scores the first by name.

    A pod that names its node stays there: nobody asks a scheduler for it.
    """
    if given := objects.spec(pod).get("nodeName"):
        return Decision(str(given))
    info = PodInfo.of(pod)
    for plugin in profile.pre_filters:
        if why := plugin.pre_filter(info, snapshot):
            return Decision("", why)
    judges: list[Callable[[NodeInfo], Sequence[str]]] = [partial(one.filter, info) for one in profile.filters]
    judges += [judge for one in profile.prepared if (judge := one.prepare(info, snapshot)) is not None]
    reasons = {node.name: _first_reasons(node, judges) for node in snapshot.nodes}
    fitting = [node for node in snapshot.nodes if not reasons[node.name]]
    if not fitting:
        return Decision("", unschedulable_message(reasons), reasons)
    totals = [0] * len(fitting)
    for scorer, weight in profile.scores:
        scores = scorer.score(info, fitting, snapshot)
        totals = [total + weight * score for total, score in zip(totals, scores, strict=True)]
    return Decision(fitting[totals.index(max(totals))].name)


def unschedulable_message(reasons: Mapping[str, Sequence[str]]) -> str:
    """Return Kubernetes' words for "no node fits" (scheduler/framework/types.go, FitError)."""
    if not reasons:
        return "no nodes available to schedule pods"
    counts = Counter(reason for of_node in reasons.values() for reason in of_node)
    told = ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
    return f"0/{len(reasons)} nodes are available: {told}."


def is_social(pod: JsonObject) -> bool:
    """Return whether the pod wants to be near others, or far from them."""
    affinity = objects.spec(pod).get("affinity") or {}
    return bool(affinity.get("podAffinity") or affinity.get("podAntiAffinity"))


def takes_room(pod: JsonObject) -> bool:
    """Return whether ``pod`` is bound and not over, so that its requests count on its node."""
    return bool(objects.spec(pod).get("nodeName")) and objects.status(pod).get("phase") not in _OVER


def is_pending(pod: JsonObject, scheduler: str = DEFAULT_SCHEDULER) -> bool:
    """Return whether ``pod`` waits for ``scheduler`` to give it a node."""
    spec = objects.spec(pod)
    mine = (spec.get("schedulerName") or DEFAULT_SCHEDULER) == scheduler
    over = objects.status(pod).get("phase") in _OVER
    return mine and not spec.get("nodeName") and not objects.is_deleting(pod) and not over


def host_ports(pod: JsonObject) -> list[HostPort]:
    """Return the host ports of the pod's containers."""
    return [
        HostPort(port.get("hostIP") or "0.0.0.0", port.get("protocol") or "TCP", int(port["hostPort"]))  # noqa: S104 - Kubernetes' word for "all"
        for container in objects.lasting_containers(pod)
        for port in container.get("ports") or []
        if port.get("hostPort")
    ]


def amounts(resources: PodResources) -> dict[str, int]:
    """Return resources as one mapping: cpu in thousandths, memory in bytes, pods, and the others."""
    return {"cpu": resources.milli_cpu, "memory": resources.memory_bytes, "pods": resources.pods, **resources.other}


def _first_reasons(node: NodeInfo, judges: Sequence[Callable[[NodeInfo], Sequence[str]]]) -> tuple[str, ...]:
    """Return the reasons of the first judge that objects, as Kubernetes stops there."""
    for judge in judges:
        if why := judge(node):
            return tuple(why)
    return ()
