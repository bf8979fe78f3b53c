"""The nodes with their pods as one decision sees them; it follows the cluster by changes, not by copies.

``Snapshot.of`` makes one of objects, for a question. The scheduler keeps one and brings it up to date before each
decision (``cluster/cache.py``); what was worked out for earlier pods hangs on it (``memo``) and asks ``since`` what has
changed. ``epoch`` counts changes after which positions or everything else may mean something new.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import SERVICE
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.selectors import LabelSelector, as_label_selector, from_map
from minik8s_modules.scheduler.framework.infos import NodeInfo, PodInfo, takes_room
from minik8s_modules.scheduler.framework.storage import Storage
from minik8s_modules.scheduler.framework.terms import Namespaces, selector

_LOG, _LOG_LEAST = 4096, 256
"""How many changes are known at most, and in a small cluster. Each holds its node as it was and as it is: some KB."""
_MEMO = 512
T = TypeVar("T")


def worth_knowing(nodes: int) -> int:
    """Return how many changes of so many nodes are worth following; beyond these, all nodes are looked at again."""
    return min(_LOG, max(_LOG_LEAST, nodes))


class Change(NamedTuple):
    """A node is another than before: pods have gone from it or come to it, or (``itself``) the Node object changed."""

    position: int
    old: NodeInfo
    new: NodeInfo
    gone: tuple[PodInfo, ...] = ()
    come: tuple[PodInfo, ...] = ()
    itself: bool = False


class Workload(NamedTuple):
    """A Service, or a controller of pods, with what it selects."""

    kind: str
    namespace: str
    name: str
    selector: LabelSelector

    @classmethod
    def of(cls, obj: JsonObject) -> Workload:
        """Return what an object selects; its ``kind`` says how that is written."""
        kind, declared = str(obj.get("kind")), objects.spec(obj).get("selector")
        selects = from_map(declared) if kind == SERVICE.kind else selector(as_label_selector(declared))
        return cls(kind, objects.namespace(obj), objects.name(obj), selects)


class Snapshot:
    """All nodes by name.

    Attributes:
        turn: how many pods were given a node before this one: among equal nodes they take turns.
        namespaces: labels by namespace, for the terms that select namespaces by them.
        workloads: by namespace, Services and controllers, for pods that are spread by default; never changed in place.
        workloads_version: another number for other ``workloads``.
        budgets: PodDisruptionBudgets, for preemption.
        nominated: by node, pods that are to run there once their victims have gone.
        storage: claims, volumes and classes; None where nobody knows them: nothing is decided by them then.
    """

    def __init__(self, nodes: Iterable[NodeInfo] = (), turn: int = 0, namespaces: Namespaces | None = None) -> None:
        self.nodes: list[NodeInfo] = []
        self.index: dict[str, int] = {}
        self.turn = turn
        self.start = 0
        self.namespaces: Namespaces = namespaces or {}
        self.workloads: Mapping[str, tuple[Workload, ...]] = {}
        self.workloads_version = 0
        self.budgets: Sequence[JsonObject] = ()
        self.nominated: Mapping[str, tuple[PodInfo, ...]] = {}
        self.storage: Storage | None = None
        self.images: Counter[str] = Counter()
        self.epoch = 0
        self._log: list[Change] = []
        self._first = 0
        self._memo: dict[Hashable, Any] = {}
        self.replace_nodes(nodes)

    @classmethod
    def of(
        cls,
        nodes: Iterable[JsonObject],
        pods: Iterable[JsonObject],
        turn: int = 0,
        namespaces: Namespaces | None = None,
        storage: Storage | None = None,
    ) -> Snapshot:
        """Return the snapshot of ``nodes`` with the bound, unfinished ones of ``pods`` on them."""
        by_node: dict[str, list[PodInfo]] = {}
        for pod in pods:
            if takes_room(pod):
                by_node.setdefault(objects.spec(pod)["nodeName"], []).append(PodInfo.of(pod))
        made = cls((NodeInfo.of(node, by_node.get(objects.name(node), ())) for node in nodes), turn, namespaces)
        made.storage = storage
        return made

    def replace_nodes(self, nodes: Iterable[NodeInfo]) -> None:
        """Take other nodes than before."""
        self.nodes = sorted(nodes, key=lambda info: info.name)
        self.index = {info.name: position for position, info in enumerate(self.nodes)}
        self.images = Counter(image for info in self.nodes for image in info.images)
        self.forget()

    def forget(self) -> None:
        """Work everything out again: what was, means something else now."""
        self.epoch += 1
        self._first += len(self._log)
        self._log.clear()
        self._memo.clear()

    def change(
        self, new: NodeInfo, gone: tuple[PodInfo, ...] = (), come: tuple[PodInfo, ...] = (), *, itself: bool = False
    ) -> None:
        """Take what a known node has become."""
        position = self.index[new.name]
        old = self.nodes[position]
        self.nodes[position] = new
        if old.images != new.images:
            self.images.subtract(old.images.keys())
            self.images.update(new.images.keys())
            self.forget()
        self._log.append(Change(position, old, new, gone, come, itself))
        known = worth_knowing(len(self.nodes))
        if len(self._log) > 2 * known:
            self._first += len(self._log) - known
            del self._log[:-known]

    @property
    def version(self) -> int:
        """How many changes there have been."""
        return self._first + len(self._log)

    def since(self, version: int) -> Sequence[Change] | None:
        """Return the changes after ``version``; None when they are not known any more."""
        if version < self._first:
            return None
        return self._log[version - self._first :] if version < self.version else ()

    def get(self, name: str) -> NodeInfo | None:
        """Return the node of that name."""
        position = self.index.get(name)
        return None if position is None else self.nodes[position]

    def memo(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what ``make`` made for ``key``; of many keys those that were asked for longest ago are dropped."""
        found: T | None = self._memo.pop(key, None)
        if found is None:
            found = make()
            if len(self._memo) >= _MEMO:
                del self._memo[next(iter(self._memo))]
        self._memo[key] = found
        return found
