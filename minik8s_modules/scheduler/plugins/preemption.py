"""Makes room for a pod by taking pods of lower priority away: which ones, on which node. Pure.

On each node that taking pods away could help, all pods of lower priority are thought away; then as many as possible are
let back in, first those whose PodDisruptionBudget would be broken, then by importance. Of the nodes the one is taken
whose victims weigh least. Source: pkg/scheduler/framework/preemption and plugins/defaultpreemption. The candidates
begin at the turn's node instead of a random one, so that a plan tells the victims that there would be. What was found
on a node for one pod holds for those of its shape, as long as the node and who is nominated to it are the same and no
plugin looks further.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.scheduler.framework.infos import NodeInfo, PodInfo
from minik8s_modules.scheduler.framework.points import CycleState, Event, Nomination, Statuses, Wake
from minik8s_modules.scheduler.framework.statuses import Code, Status, unresolvable, unschedulable
from minik8s_modules.scheduler.framework.terms import selector
from minik8s_modules.scheduler.plugins.base import InTree

_PERCENT, _LEAST = 10, 100
_NO_VICTIMS = unresolvable("No preemption victims found for incoming pod")
_NOT_HELPFUL = "Preemption is not helpful for scheduling"
_LATEST = "9999"
BY_SCHEDULER = "PreemptionByScheduler"


class _Candidate(NamedTuple):
    node: str
    victims: tuple[PodInfo, ...]
    violations: int
    weight: tuple[int, int, int, int, tuple[int, ...]]


_Found = _Candidate | Status


class _Judged(NamedTuple):
    """What was found on a node, and the shapes of the pods that were nominated to it."""

    node: NodeInfo
    expected: tuple[bytes, ...]
    found: _Found


@dataclass
class _Known:
    """What was found for a shape, by node, while the budgets were these."""

    budgets: Sequence[JsonObject] = ()
    nodes: dict[str, _Judged] = field(default_factory=dict)


class DefaultPreemption(InTree):
    """Finds the victims whose going makes room."""

    name = "DefaultPreemption"

    def post_filter(
        self, state: CycleState, pod: PodInfo, statuses: Statuses
    ) -> tuple[Nomination | None, Status | None]:
        """Return the node to wait for and who has to go there, or why that cannot help."""
        if why := self._not_eligible(pod, statuses):
            return None, unschedulable(f"preemption: {why}")
        rejected: dict[str, Status] = {}
        candidates = self._candidates(state, pod, statuses, rejected)
        if not candidates:
            return Nomination(""), unschedulable(f"preemption: {self._why_not(rejected)}")
        best = min(candidates, key=lambda one: one.weight)
        return Nomination(best.node, best.victims), None

    def _not_eligible(self, pod: PodInfo, statuses: Statuses) -> str:
        if objects.spec(pod.pod).get("preemptionPolicy") == "Never":
            return "not eligible due to preemptionPolicy=Never."
        nominated = str(objects.status(pod.pod).get("nominatedNodeName") or "")
        node = self.handle.snapshot().get(nominated)
        answer = statuses.get(nominated)
        if node is None or (answer is not None and answer.code is Code.UNRESOLVABLE):
            return ""
        leaving = any(other.priority < pod.priority and _is_preempted(other.pod) for other in node.pods)
        return "not eligible due to a terminating pod on the nominated node." if leaving else ""

    def _candidates(
        self, state: CycleState, pod: PodInfo, statuses: Statuses, rejected: dict[str, Status]
    ) -> list[_Candidate]:
        snapshot = self.handle.snapshot()
        nodes = [
            node for node in snapshot.nodes
            if (answer := statuses.get(node.name)) is not None and answer.code is Code.UNSCHEDULABLE
        ]  # fmt: skip
        enough = min(max(self._percent * len(nodes) // 100, self._least), len(nodes))
        first = snapshot.turn % len(nodes) if nodes else 0
        good: list[_Candidate] = []
        bad: list[_Candidate] = []
        known = self._known(state, pod)
        for node in (*nodes[first:], *nodes[:first]):
            found = self._found(state, pod, node, known)
            if isinstance(found, Status):
                rejected[node.name] = found
                continue
            (bad if found.violations else good).append(found)
            if good and len(good) + len(bad) >= enough:
                break
        return [*good, *bad]

    def _found(self, state: CycleState, pod: PodInfo, node: NodeInfo, known: dict[str, _Judged]) -> _Found:
        """Return what preempting on a node comes to, as it is known where that still holds."""
        judged, beside = known.get(node.name), self.handle.snapshot().nominated.get(node.name, ())
        if beside and any(one.key == pod.key for one in beside):
            return self._on_node(state, pod, node)  # it does not stand in its own way
        expected = tuple(one.shape.key for one in beside) if beside else ()
        if judged is None or judged.node is not node or judged.expected != expected:
            known[node.name] = judged = _Judged(node, expected, self._on_node(state, pod, node))
        return judged.found

    def _known(self, state: CycleState, pod: PodInfo) -> dict[str, _Judged]:
        """Return what was found for pods like this one, by node; an empty mapping where more counts than the nodes."""
        if not self.handle.is_local(state):
            return {}
        snapshot = self.handle.snapshot()
        made = snapshot.memo((self.name, id(self), pod.shape.key), _Known)
        if made.budgets != snapshot.budgets:
            made.budgets, made.nodes = snapshot.budgets, {}
        return made.nodes

    @property
    def _percent(self) -> int:
        return int(self.arguments.get("minCandidateNodesPercentage", _PERCENT))

    @property
    def _least(self) -> int:
        return int(self.arguments.get("minCandidateNodesAbsolute", _LEAST))

    def _on_node(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> _Candidate | Status:
        """Return the fewest victims on one node, or why none would do."""
        if all(other.priority >= pod.priority for other in node.pods):
            return _NO_VICTIMS
        handle, state = self.handle, state.clone()
        candidates = sorted((other for other in node.pods if other.priority < pod.priority), key=importance)
        gone = {other.key for other in candidates}
        bare = node.with_pods(tuple(other for other in node.pods if other.key not in gone))
        for other in candidates:
            handle.try_pod(state, pod, other, bare, come=False)
        if why := handle.run_filters(state, pod, bare):
            return why
        violating = _violating(candidates, handle.snapshot().budgets)
        victims: list[PodInfo] = []
        for other in sorted(candidates, key=lambda one: one.key not in violating):
            fuller = bare.with_pod(other)
            handle.try_pod(state, pod, other, fuller, come=True)
            if handle.run_filters(state, pod, fuller) is None:
                bare = fuller
            else:
                handle.try_pod(state, pod, other, bare, come=False)
                victims.append(other)
        if not victims:
            return unresolvable(_NOT_HELPFUL)
        broken = sum(one.key in violating for one in victims)
        victims.sort(key=importance)
        return _Candidate(node.name, tuple(victims), broken, _weight(victims, broken))

    def _why_not(self, rejected: Mapping[str, Status]) -> str:
        total = len(self.handle.snapshot().nodes)
        counts: dict[str, int] = {}
        for status in rejected.values():
            for reason in status.reasons:
                counts[reason] = counts.get(reason, 0) + 1
        if len(rejected) < total:
            counts[_NOT_HELPFUL] = counts.get(_NOT_HELPFUL, 0) + total - len(rejected)
        reasons = ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
        return f"0/{total} nodes are available: {reasons}."

    def wakes(self) -> Sequence[Wake]:
        """Return that pods that leave may have been its victims."""
        return (Wake(Event("AssignedPod", "Delete")),)


def importance(pod: PodInfo) -> tuple[int, str, objects.Key]:
    """Return what pods are sorted by, the most important first: of higher priority, then those that started earlier."""
    return (-pod.priority, _started(pod.pod), pod.key)


def _started(pod: JsonObject) -> str:
    return str(objects.status(pod).get("startTime") or _LATEST)


def _weight(victims: Sequence[PodInfo], violations: int) -> tuple[int, int, int, int, tuple[int, ...]]:
    """Return what the nodes are compared by: the least is taken (preemption.go, pickOneNodeForPreemption)."""
    highest = victims[0].priority
    total = sum(victim.priority + 2**31 for victim in victims)
    earliest = min(_started(one.pod) for one in victims if one.priority == highest)
    late_first = tuple(-ord(letter) for letter in earliest)
    return (violations, highest, total, len(victims), late_first)


def _is_preempted(pod: JsonObject) -> bool:
    target = objects.condition(pod, "DisruptionTarget") or {}
    return objects.is_deleting(pod) and (target.get("status"), target.get("reason")) == ("True", BY_SCHEDULER)


def _violating(pods: Sequence[PodInfo], budgets: Sequence[JsonObject]) -> frozenset[objects.Key]:
    """Return those whose going breaks a budget, each in its turn taking from what its budgets still allow."""
    allowed = [int(objects.status(budget).get("disruptionsAllowed") or 0) for budget in budgets]
    broken = set()
    for pod in pods:
        for index in _budgets_of(pod.pod, budgets):
            allowed[index] -= 1
            if allowed[index] < 0:
                broken.add(pod.key)
    return frozenset(broken)


def _budgets_of(pod: JsonObject, budgets: Sequence[JsonObject]) -> Iterator[int]:
    labels = objects.labels(pod)
    for index, budget in enumerate(budgets if labels else ()):
        if objects.namespace(budget) != objects.namespace(pod):
            continue
        selects = selector(objects.spec(budget).get("selector"))
        counted = objects.name(pod) in (objects.status(budget).get("disruptedPods") or {})
        if not selects.empty and not counted and selects.matches(labels):
            yield index
