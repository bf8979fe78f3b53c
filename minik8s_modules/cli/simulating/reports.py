"""What a simulation comes to: how full each group of nodes is, which pods have no node and why. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import POD, REPLICA_SET
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.quantities import format_bytes, format_milli
from minik8s_modules.cli import output
from minik8s_modules.cli.simulating.cluster import Simulation
from minik8s_modules.cli.simulating.description import group_of
from minik8s_modules.scheduler.framework.infos import NodeInfo

_ALWAYS = ("cpu", "memory")
_OTHER = frozenset({*_ALWAYS, "pods", "ephemeral-storage"})


class Group(NamedTuple):
    """A group of nodes: how many, with how many pods, and by resource what these request and what there is."""

    nodes: int
    pods: int
    requested: Mapping[str, int]
    allocatable: Mapping[str, int]

    def percent(self, resource: str) -> int | None:
        """Return how full it is; None where there is nothing of it."""
        has = self.allocatable.get(resource, 0)
        return round(100 * self.requested.get(resource, 0) / has) if has else None


class Waiting(NamedTuple):
    """Pods of one workload that have no node, for one reason; ``example`` names one of them."""

    workload: str
    namespace: str
    pods: int
    reason: str
    example: str


class State(NamedTuple):
    """A settled simulation; ``made`` and ``ended`` count pods since it began."""

    groups: Mapping[str, Group]
    waiting: tuple[Waiting, ...]
    made: int
    ended: int

    @property
    def pending(self) -> int:
        """How many pods have no node."""
        return sum(one.pods for one in self.waiting)


def state(simulation: Simulation) -> State:
    """Return what a settled simulation comes to."""
    by_group: dict[str, list[NodeInfo]] = {}
    for info in simulation.nodes():
        by_group.setdefault(group_of(info.node), []).append(info)
    happened = Counter(one.action for one in simulation.world.happened if one.kind == POD)
    groups = {name: _group(found) for name, found in sorted(by_group.items())}
    return State(groups, tuple(_waiting(simulation)), happened["create"], happened["delete"])


def _group(infos: Sequence[NodeInfo]) -> Group:
    requested: Counter[str] = Counter()
    allocatable: Counter[str] = Counter()
    for info in infos:
        requested.update(info.requested)
        allocatable.update(info.has)
    return Group(len(infos), sum(len(info.pods) for info in infos), requested, allocatable)


def _waiting(simulation: Simulation) -> Iterator[Waiting]:
    found: dict[tuple[str, str, str], list[str]] = {}
    sets = {objects.uid(each): each for each in simulation.world.all(REPLICA_SET)}
    for pod in simulation.world.all(POD):
        if (reason := simulation.pending.get(objects.uid(pod))) is not None:
            key = (objects.namespace(pod), _workload(pod, sets), reason)
            found.setdefault(key, []).append(objects.name(pod))
    for (namespace, workload, reason), names in sorted(found.items()):
        yield Waiting(workload, namespace, len(names), reason, names[0])


def _workload(pod: JsonObject, sets: Mapping[str, JsonObject]) -> str:
    """Return what makes a pod in the end as ``kind/name``: of a ReplicaSet its Deployment."""
    owner = objects.controller_of(pod)
    if owner is None:
        return f"pod/{objects.name(pod)}"
    above = objects.controller_of(sets.get(str(owner.get("uid")), {})) or owner
    return f"{str(above.get('kind')).lower()}/{above.get('name')}"


def as_json(before: State, after: State | None, lost: Iterable[objects.Key], notes: Sequence[str]) -> JsonObject:
    """Return it for programs."""
    body: JsonObject = {"before": _state_json(before)}
    if after is not None:
        body["after"] = _state_json(after)
        body["podsMade"], body["podsEnded"] = after.made - before.made, after.ended - before.ended
        body["podsLost"] = [str(key) for key in lost]
    return {**body, "notes": [*notes]}


def _state_json(found: State) -> JsonObject:
    groups = [
        {
            "name": name, "nodes": group.nodes, "pods": group.pods,
            "resources": {
                resource: {
                    "requested": _written(resource, group.requested.get(resource, 0)),
                    "allocatable": _written(resource, group.allocatable.get(resource, 0)),
                    "percent": group.percent(resource),
                }
                for resource in (*_ALWAYS, *_others([found]))
            },
        }
        for name, group in found.groups.items()
    ]  # fmt: skip
    return {"groups": groups, "pending": found.pending, "waiting": [one._asdict() for one in found.waiting]}


def _written(resource: str, amount: int) -> str:
    formats = {"cpu": format_milli, "memory": format_bytes}
    return formats.get(resource, str)(amount)


def _others(states: Sequence[State]) -> list[str]:
    """Return the resources besides cpu and memory that any pod requests."""
    asked = {
        name for each in states for group in each.groups.values() for name, amount in group.requested.items() if amount
    }
    return sorted(asked - _OTHER)


def table(before: State, after: State | None, lost: Sequence[objects.Key], notes: Sequence[str]) -> str:
    """Return it for people; a cell says before → after where they differ."""
    states = [before] if after is None else [before, after]
    others = _others(states)
    header = ["GROUP", "NODES", "PODS", "CPU", "MEMORY", *(name.upper() for name in others)]
    names = sorted({name for each in states for name in each.groups})
    rows = [[name, *_cells([each.groups.get(name, _group(())) for each in states], others)] for name in names]
    if names[1:]:
        rows.append(["all", *_cells([_all(each) for each in states], others)])
    lines = [output.aligned(header, rows, output.Paint()) if rows else "there are no nodes"]
    lines += ["", *_outcome(before, after), *_reasons(states[-1]), *_lost(lost), *notes]
    return "\n".join(lines)


def _all(found: State) -> Group:
    every = [*found.groups.values()]
    requested: Counter[str] = Counter()
    allocatable: Counter[str] = Counter()
    for one in every:
        requested.update(one.requested)
        allocatable.update(one.allocatable)
    return Group(sum(one.nodes for one in every), sum(one.pods for one in every), requested, allocatable)


def _cells(groups: Sequence[Group], others: Sequence[str]) -> list[str]:
    percents = [[_percent(group.percent(name)) for group in groups] for name in (*_ALWAYS, *others)]
    return [
        _arrow([str(each.nodes) for each in groups]), _arrow([str(each.pods) for each in groups]),
        *(_arrow(each) for each in percents),
    ]  # fmt: skip


def _percent(value: int | None) -> str:
    return "-" if value is None else f"{value} %"


def _arrow(values: Sequence[str]) -> str:
    return " → ".join(dict.fromkeys(values))


def _outcome(before: State, after: State | None) -> Iterator[str]:
    pending = [before.pending] if after is None else [before.pending, after.pending]
    yield f"without a node: {_arrow([str(count) for count in pending])} Pods"
    if after is not None:
        yield f"Pods deleted: {after.ended - before.ended}, created: {after.made - before.made}"


def _reasons(found: State) -> Iterator[str]:
    for one in found.waiting:
        yield f"{one.namespace} {one.workload}: {one.pods}: {one.reason}"


def _lost(lost: Sequence[objects.Key]) -> Iterator[str]:
    if lost:
        more = f" and {len(lost) - 5} more" if lost[5:] else ""
        yield f"gone with their node, and not recreated: {', '.join(map(str, lost[:5]))}{more}"
