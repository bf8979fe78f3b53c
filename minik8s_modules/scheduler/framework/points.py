"""The twelve extension points, what plugins get to work with, and by which events a refusal may end.

A plugin is an object with a ``name`` and the methods of one or more points; which it has, it says by having them. What
its Filter and Score answer is taken from an earlier pod of the same shape, for as long as the node is the same, where
it declares ``local = True``: they must then depend on nothing but the pod's shape and that node. The pods on nodes are
kept without what only their nodes read, such as commands, mounts and the statuses of containers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from minik8s_modules.scheduler.framework.infos import NodeInfo, PodInfo
from minik8s_modules.scheduler.framework.snapshot import Snapshot
from minik8s_modules.scheduler.framework.statuses import Status

BEST = 100
"""The highest score."""

Statuses = Mapping[str, Status]
"""By node, why the pod does not fit there."""


class CycleState(dict[str, Any]):
    """What plugins keep for one attempt to schedule one pod, by names of their choice.

    A value with a method ``clone`` is cloned where an attempt asks "what if"; others are shared.
    """

    skipped_filters: frozenset[str] = frozenset()
    """The plugins whose PreFilter had nothing to say: their Filter is not asked."""

    def clone(self) -> CycleState:
        """Return a copy for trying something out."""
        copy = CycleState({name: value.clone() if hasattr(value, "clone") else value for name, value in self.items()})
        copy.skipped_filters = self.skipped_filters
        return copy


class Nomination(NamedTuple):
    """What a PostFilter plugin has found.

    Attributes:
        node: where the pod is to run later; "" takes an earlier nomination away.
        victims: the pods that have to go for it, the most important first.
    """

    node: str
    victims: tuple[PodInfo, ...] = ()


class Event(NamedTuple):
    """A change of the cluster, as ``Event("Node", "Add")``; ``*`` is any.

    Resources: Node, AssignedPod, Pod (the waiting pod itself), Namespace, Service, PersistentVolumeClaim and so on.
    Actions: Add, Delete, Update; of nodes UpdateLabel, UpdateTaint, UpdateAllocatable, UpdateCondition,
    UpdateUnschedulable; of pods UpdateLabel, UpdateScaleDown, UpdateGates.
    """

    resource: str
    action: str

    def covers(self, other: Event) -> bool:
        """Return whether ``other`` is such a change; ``Update`` is every update."""
        same = self.resource in {"*", other.resource}
        broad = self.action == "Update" and other.action.startswith("Update")
        return same and (self.action in {"*", other.action} or broad)


Hint = Callable[[PodInfo, Any, Any], bool]
"""``hint(pod, old, new)``: whether this change may end the plugin's refusal of ``pod``."""


class Wake(NamedTuple):
    """By which event a plugin's refusal may end; without a hint by every such one."""

    event: Event
    hint: Hint | None = None


class Plugin(Protocol):
    """What every plugin has."""

    name: str


@runtime_checkable
class PreEnqueuePlugin(Protocol):
    """May keep a pod from being tried at all."""

    name: str

    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        """Return why the pod is not to be tried yet."""


@runtime_checkable
class QueueSortPlugin(Protocol):
    """Orders the pods that are to be tried."""

    name: str

    def less(self, one: Queued, other: Queued) -> bool:
        """Return whether ``one`` is tried before ``other``."""


class Queued(Protocol):
    """A pod in the queue."""

    @property
    def pod(self) -> PodInfo:
        """The pod."""

    @property
    def since(self) -> float:
        """When it was queued, in seconds of a monotonic clock."""


@runtime_checkable
class PreFilterPlugin(Protocol):
    """Looks at a pod before any node, and may name the nodes that come into question."""

    name: str

    def pre_filter(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot
    ) -> tuple[frozenset[str] | None, Status | None]:
        """Return the nodes to look at (None: all), and why the pod fits nowhere, or SKIP for the plugin's Filter."""


@runtime_checkable
class PreFilterExtensions(Protocol):
    """A PreFilter plugin that can say what another pod, more or less, would change."""

    def add_pod(self, state: CycleState, pod: PodInfo, other: PodInfo, node: NodeInfo) -> Status | None:
        """Take in ``state`` that ``other`` came to ``node``."""

    def remove_pod(self, state: CycleState, pod: PodInfo, other: PodInfo, node: NodeInfo) -> Status | None:
        """Take in ``state`` that ``other`` left ``node``."""


@runtime_checkable
class FilterPlugin(Protocol):
    """Judges one node for a pod."""

    name: str

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Return why the pod does not fit there."""


@runtime_checkable
class PostFilterPlugin(Protocol):
    """Is asked where no node was left."""

    name: str

    def post_filter(
        self, state: CycleState, pod: PodInfo, statuses: Statuses
    ) -> tuple[Nomination | None, Status | None]:
        """Return what would help; UNSCHEDULABLE says that it could not."""


@runtime_checkable
class PreScorePlugin(Protocol):
    """Prepares its scores."""

    name: str

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo]) -> Status | None:
        """Return SKIP to leave the plugin's scores out."""


@runtime_checkable
class ScorePlugin(Protocol):
    """Prefers some of the nodes that fit."""

    name: str

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Return the node's score; 0 to 100 after ``normalize``."""


@runtime_checkable
class ManyScorePlugin(Protocol):
    """A Score plugin that judges all nodes in one call, as ``score`` would one by one, where that is cheaper."""

    name: str

    def score_all(self, state: CycleState, pod: PodInfo, nodes: Sequence[NodeInfo]) -> list[int]:
        """Return the nodes' scores in their order."""


@runtime_checkable
class NormalizePlugin(Protocol):
    """A Score plugin whose scores have to be brought between 0 and 100."""

    def normalize(self, state: CycleState, pod: PodInfo, scores: list[int]) -> Sequence[int]:
        """Return the scores between 0 and 100, in their order."""


@runtime_checkable
class ReservePlugin(Protocol):
    """Notes that a pod is to run on a node."""

    name: str

    def reserve(self, state: CycleState, pod: PodInfo, node: str) -> Status | None:
        """Note it; any answer takes all reservations back."""

    def unreserve(self, state: CycleState, pod: PodInfo, node: str) -> None:
        """Take it back; may come without ``reserve``, and more than once."""


@runtime_checkable
class PermitPlugin(Protocol):
    """Lets a pod go to its node, keeps it from it, or makes it wait."""

    name: str

    def permit(self, state: CycleState, pod: PodInfo, node: str) -> tuple[Status | None, float]:
        """Return the answer and, with WAIT, for how many seconds at most."""


@runtime_checkable
class PreBindPlugin(Protocol):
    """Does what must be done before the pod is bound."""

    name: str

    def pre_bind(self, state: CycleState, pod: PodInfo, node: str) -> Status | None:
        """Do it; WAIT asks to be called again in a while, any other answer takes all reservations back."""


@runtime_checkable
class BindPlugin(Protocol):
    """Binds pods."""

    name: str

    def bind(self, state: CycleState, pod: PodInfo, node: str) -> Status | None:
        """Bind the pod, or return SKIP to leave it to the next plugin."""


@runtime_checkable
class PostBindPlugin(Protocol):
    """Hears of a pod that was bound."""

    name: str

    def post_bind(self, state: CycleState, pod: PodInfo, node: str) -> None:
        """Clean up."""


@runtime_checkable
class WakingPlugin(Protocol):
    """Says by which events its refusals may end; one that does not is asked again after every event."""

    name: str

    def wakes(self) -> Sequence[Wake]:
        """Return the events."""


class WaitingPod(Protocol):
    """A pod that waits for its permission."""

    @property
    def pod(self) -> PodInfo:
        """The pod."""

    @property
    def node(self) -> str:
        """Where it is to run."""

    def allow(self, plugin: str) -> None:
        """Let it go, as far as ``plugin`` is concerned."""

    def reject(self, plugin: str, reason: str) -> None:
        """Keep it from its node."""


class Handle(Protocol):
    """What a plugin is given when it is made."""

    @property
    def api(self) -> Any:
        """A client of the API server (``client.interface.Api``)."""

    def snapshot(self) -> Snapshot:
        """Return the cluster as the attempt under way sees it."""

    def waiting(self) -> Sequence[WaitingPod]:
        """Return the pods that wait for their permission."""

    def run_filters(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Return why the pod does not fit ``node``, asked of all plugins of its profile."""

    def try_pod(self, state: CycleState, pod: PodInfo, other: PodInfo, node: NodeInfo, *, come: bool) -> None:
        """Tell all plugins in ``state`` that ``other`` came to ``node``, or left it."""

    def is_local(self, state: CycleState) -> bool:
        """Return whether ``run_filters`` depends only on the pod's shape, the node and who is nominated to it."""
