"""What would be if objects were applied: the pure half of ``plan``.

Takes the cluster's pods and nodes and the operations of a question, and answers with the pods as they would
stand: bound by the scheduler's own decision, with placeholder UIDs that depend on the name alone, so that
the same question has the same answer.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.defaulting.defaults import apply_defaults
from minik8s_modules.api.kinds import NAMESPACE, NETWORK_POLICY, POD, POD_DISRUPTION_BUDGET, SERVICE
from minik8s_modules.api.network.gateway_api import gateway_kind
from minik8s_modules.api.nodes.drift_policies import of_node
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.mirror_pods import static_uid
from minik8s_modules.api.pods.sidecars import injection
from minik8s_modules.base.clock import rfc3339
from minik8s_modules.controllers.simulation.simulated_cluster import World, placeholder_uid
from minik8s_modules.reconcile.feeds.plan_subjects import MESH_KINDS, About, Note, of, of_pod, rows
from minik8s_modules.reconcile.feeds.references import references
from minik8s_modules.reconcile.planning.questions import Operation, Question
from minik8s_modules.reconcile.planning.simulated_admission import Admitting
from minik8s_modules.reconcile.planning.simulated_autoscalers import is_autoscaler
from minik8s_modules.reconcile.planning.simulated_rollouts import (
    Change,
    SimulatedRollout,
    simulated_rollout,
    workload_kind,
)
from minik8s_modules.reconcile.planning.simulated_storage import (
    StorageKeeper,
    awaited,
    standing,
    storage_kind,
    storage_world,
    take,
)
from minik8s_modules.reconcile.planning.storage_notes import last_messages_of, storage_notes, storage_overlay
from minik8s_modules.scheduler.deciding.cycle import Decision
from minik8s_modules.scheduler.profiles.deciding import SPREAD_BY, Profiles, Scene

NETWORK_KINDS = frozenset({"Service", "EndpointSlice", "Endpoints", "DNS", "Ingress", "IngressClass", "HostGrant"})


class PlannedState(NamedTuple):
    """What would be.

    Attributes:
        pods: by UID, those that would differ (None: gone).
        overlay: ConfigMaps, Secrets, claims, volumes (``/<name>``) and Nodes (those with other policies for drift) by
            kind and key.
        messages: what to tell.
        order: in which order pods come and go.
        network: objects of ``NETWORK_KINDS`` that would differ, by kind and key (None: gone).
        policies: NetworkPolicies that would differ, by ``<namespace>/<name>`` (None: gone).
        namespaces: those that would differ, by name.
        made: pods that controllers would make, one of each form, as ``Admitting`` has them.
        accounts: ServiceAccounts that controllers would make.
    """

    pods: Mapping[str, JsonObject | None]
    overlay: Mapping[tuple[str, str], JsonObject | None]
    messages: tuple[Note, ...]
    order: tuple[JsonObject, ...] = ()
    network: Mapping[tuple[str, str], JsonObject | None] = {}
    policies: Mapping[str, JsonObject | None] = {}
    namespaces: Mapping[str, JsonObject | None] = {}
    made: Mapping[str, JsonObject] = {}
    accounts: tuple[JsonObject, ...] = ()

    @property
    def services(self) -> dict[str, JsonObject | None]:
        """The Services that would differ, by namespace/name (None: gone)."""
        return {key: obj for (kind, key), obj in self.network.items() if kind == "Service"}


def planned_state(
    question: Question,
    pods: Iterable[JsonObject],
    nodes: Sequence[JsonObject],
    now: datetime,
    workloads: Iterable[JsonObject] = (),
    scene: Scene | None = None,
    storage: Iterable[JsonObject] = (),
    scaled: Iterable[JsonObject] = (),
    *,
    mesh: bool = False,
) -> PlannedState:
    """Return what the operations would make of the cluster's ``pods``, and of those of its ``workloads``.

    ``scene`` is what the scheduler looks at besides; it changes with the operations. ``storage`` has claims, volumes
    and classes, where the question concerns such. ``scaled`` are workloads as autoscalers would have them afterwards.
    In a ``mesh``, pods that controllers would make get sidecars as the API server would give them.
    """
    scene, asked = _after(question, scene or Scene(Profiles())), _taken(question, pods, nodes, now)
    known, changed, overlay, before = asked.known.values(), asked.changed, asked.overlay, tuple(storage)
    keeper = _kept(question, storage_world(before, nodes, known, now), changed)
    hoping = _hoping(known, storage_overlay(before, standing(keeper.world)))
    notes: list[Note] = []
    bound = _bound({**hoping, **changed}, known, nodes, scene, keeper, notes)
    overlay |= storage_overlay(before, standing(keeper.world))
    changed |= bound | {objects.uid(pod): pod for pod in _waiting(known, overlay) if objects.uid(pod) not in bound}
    order = [*(_place(action, bound.get(objects.uid(pod)) or pod) for action, pod in asked.alone), *asked.order]
    changes = [Change(*each) for each in question.operations if workload_kind(each.object) is not None]
    here = tuple(bound.get(objects.uid(pod)) or pod for pod in known)
    after, messages = standing(keeper.world), last_messages_of(keeper.world)
    later = [Change("update", each) for each in scaled]
    made, accounts = dict[str, JsonObject](), tuple[JsonObject, ...]()
    if changes or later:
        around = (changes, tuple(workloads), here, nodes, now, scene, after, later)
        found, made = _rolled_out(question, partial(simulated_rollout, *around))
        pods_after = _injected(found.pods, scene.namespaces) if mesh else found.pods
        changed, order = {**changed, **pods_after}, [*order, *found.order]
        after, messages = found.storage, {**messages, **found.last_messages}
        overlay |= storage_overlay(before, after)
        notes, accounts = [*notes, *found.messages], found.accounts
        asked.network |= {(SERVICE.kind, key): each for key, each in found.services.items()}
    everywhere = {objects.uid(pod): pod for pod in here} | changed
    notes = [*asked.messages, *storage_notes(before, after, filter(None, everywhere.values()), messages), *notes]
    rest = (asked.network, asked.policies, asked.namespaces, made, accounts)
    return PlannedState(changed, overlay, tuple(notes), tuple(order), *rest)


def _rolled_out(
    question: Question, rollout: Callable[..., SimulatedRollout]
) -> tuple[SimulatedRollout, dict[str, JsonObject]]:
    """Return what ``rollout`` comes to, and the Pods that controllers would make, one of each form."""
    endless: set[str] = set()
    while True:
        admitting = Admitting(question.admission, endless)
        found = rollout(admitting=admitting)
        if admitting.endless == endless:
            return found, admitting.made
        endless = admitting.endless  # again, without the Pods that were made until that showed


def _injected(pods: Mapping[str, JsonObject | None], namespaces: Iterable[JsonObject]) -> dict[str, JsonObject | None]:
    labels = {objects.name(one): objects.labels(one) for one in namespaces}
    found = dict(pods)
    for uid, pod in pods.items():
        if pod is not None and (spec := injection(pod, labels.get(objects.namespace(pod), {})).spec):
            made = {**pod, "spec": copy.deepcopy(spec)}  # its containers are those of the workload's template
            apply_defaults(POD, made)
            found[uid] = made
    return found


@dataclass
class _Asked:
    """What the operations do by themselves: all pods, and what else is as in ``PlannedState``.

    Attributes:
        alone: action and pod of those that come and go by themselves.
    """

    known: dict[objects.Key, JsonObject]
    changed: dict[str, JsonObject | None] = field(default_factory=dict)
    overlay: dict[tuple[str, str], JsonObject | None] = field(default_factory=dict)
    network: dict[tuple[str, str], JsonObject | None] = field(default_factory=dict)
    policies: dict[str, JsonObject | None] = field(default_factory=dict)
    namespaces: dict[str, JsonObject | None] = field(default_factory=dict)
    messages: list[Note] = field(default_factory=list)
    order: list[JsonObject] = field(default_factory=list)
    alone: list[tuple[str, JsonObject]] = field(default_factory=list)

    def placed(self, kind: str) -> dict[tuple[str, str], JsonObject | None] | None:
        """Return where objects of a kind are kept by kind and key, None for those that are not."""
        kept = self.network if kind in NETWORK_KINDS else None
        return self.overlay if kind in {"ConfigMap", "Secret"} else kept


def _taken(question: Question, pods: Iterable[JsonObject], nodes: Sequence[JsonObject], now: datetime) -> _Asked:
    found = _Asked({objects.key(pod): pod for pod in pods})
    for operation in question.operations:
        obj = operation.object
        kind, key = str(obj.get("kind") or ""), objects.key(obj)
        if kind == "Pod":
            found.alone += _take_pod(operation, found.known, found.changed, found.messages, now)
        elif (placed := found.placed(kind)) is not None:
            placed[kind, str(key)] = None if operation.operation == "delete" else obj
        elif kind == "Node" and _steers_drift(operation, nodes):
            found.overlay[kind, str(key)] = obj
        elif kind == NETWORK_POLICY.kind:
            found.policies[str(key)] = None if operation.operation == "delete" else obj
        elif kind == "Namespace" and is_gone(operation):
            found.namespaces[objects.name(obj)] = None
            found.order += _take_namespace(objects.name(obj), found.known, found.changed, found.messages)
        elif is_autoscaler(obj) and not is_gone(operation):
            continue  # the cluster as it was read tells of it
        elif kind not in MESH_KINDS and not (workload_kind(obj) or storage_kind(obj) or gateway_kind(obj)):
            if kind == NAMESPACE.kind:
                found.namespaces[objects.name(obj)] = obj
            about = About(str(obj.get("apiVersion") or ""), kind, objects.namespace(obj), objects.name(obj))
            found.messages.append(Note(f"{kind} {key}: by itself it changes nothing on a node", (about,)))
    return found


def _kept(question: Question, world: World, changed: Mapping[str, JsonObject | None]) -> StorageKeeper:
    """Return claims and volumes after the operations, which change some pods, too."""
    world.removed |= {uid for uid, pod in changed.items() if pod is None}
    keeper = StorageKeeper(world)
    keeper.settle()
    for operation in question.operations:  # what comes first is there, and bound, when the next comes
        if take(world, *operation):
            keeper.settle()
    return keeper


def _hoping(
    pods: Iterable[JsonObject], overlay: Mapping[tuple[str, str], JsonObject | None]
) -> dict[str, JsonObject | None]:
    """Return the pods without a node that name a claim which would differ: it may be what they wait for."""
    found = (pod for pod in pods if overlay and not objects.spec(pod).get("nodeName") and never_ran(pod))
    return {objects.uid(pod): pod for pod in found if _refers(pod, overlay)}


def _refers(pod: JsonObject, overlay: Mapping[tuple[str, str], JsonObject | None]) -> bool:
    return any((one.kind, f"{one.namespace}/{one.name}") in overlay for one in references(pod))


def _after(question: Question, scene: Scene) -> Scene:
    """Return what the scheduler would look at if the operations were done."""
    return scene._replace(
        namespaces=_with(scene.namespaces, question, {NAMESPACE.kind}),
        workloads=_with(scene.workloads, question, {kind.kind for kind in SPREAD_BY}),
        budgets=_with(scene.budgets, question, {POD_DISRUPTION_BUDGET.kind}),
    )


def _with(known: tuple[JsonObject, ...], question: Question, kinds: set[str]) -> tuple[JsonObject, ...]:
    changes = [one for one in question.operations if one.object.get("kind") in kinds]
    if not changes:
        return known
    found = {(one.get("kind"), objects.key(one)): one for one in known}
    for operation in changes:
        obj = operation.object
        before = found.pop((obj.get("kind"), objects.key(obj)), {})
        if not is_gone(operation):
            found[obj.get("kind"), objects.key(obj)] = {**obj, "status": objects.status(before)}
    return tuple(found.values())


def _steers_drift(operation: Operation, nodes: Iterable[JsonObject]) -> bool:
    """Return whether a Node would have other policies for drift."""
    known = next((one for one in nodes if objects.name(one) == objects.name(operation.object)), None)
    return known is not None and operation.operation == "update" and of_node(known) != of_node(operation.object)


def _waiting(pods: Iterable[JsonObject], overlay: Mapping[tuple[str, str], JsonObject | None]) -> Iterator[JsonObject]:
    """Yield the pods on a node that have not come to run, and name what differs: it may be what they wait for."""
    for pod in pods:
        if objects.spec(pod).get("nodeName") and never_ran(pod) and _refers(pod, overlay):
            yield pod


def never_ran(pod: JsonObject) -> bool:
    """Return whether a pod has not come to run yet; it may have an address, and is behind no Service."""
    return objects.status(pod).get("phase") in {None, "Pending"}


def is_gone(operation: Operation) -> bool:
    """Return whether an operation takes its object away, at once or after a grace."""
    return operation.operation == "delete" or objects.is_deleting(operation.object)


def _take_namespace(
    name: str, known: dict[objects.Key, JsonObject], changed: dict[str, JsonObject | None], messages: list[Note]
) -> Iterator[JsonObject]:
    """Take all pods of a namespace that goes, and yield them in their order; static ones only lose their mirrors."""
    graces_s = [0]
    for pod in [pod for pod in known.values() if objects.namespace(pod) == name]:
        key = objects.key(pod)
        if static_uid(pod):
            messages.append(
                Note(f"Pod {key}: it is static and keeps running; its manifest is on its node", of_pod(pod))
            )
            continue
        del known[key]
        changed[objects.uid(pod)] = None
        node = str(objects.spec(pod).get("nodeName") or "")
        graces_s += [int(objects.spec(pod).get("terminationGracePeriodSeconds") or 0)] if node else []
        yield _place("delete", pod, f"Namespace/{name}")
    if any(graces_s):
        text = f"Namespace {name}: its pods go first; their containers get up to {max(graces_s)} s to stop"
        messages.append(Note(text, (of(POD, name),)))


def _take_pod(
    operation: Operation,
    known: dict[objects.Key, JsonObject],
    changed: dict[str, JsonObject | None],
    messages: list[Note],
    now: datetime,
) -> Iterator[tuple[str, JsonObject]]:
    """Take an operation on a pod, and yield whether one comes or goes."""
    obj = operation.object
    key = objects.key(obj)
    before = known.get(key)
    if is_gone(operation):
        known.pop(key, None)
        if before is not None:
            changed[objects.uid(before)] = None
            yield "delete", before
            grace_s = objects.dig(obj, "metadata", "deletionGracePeriodSeconds")
            if grace_s:
                messages.append(Note(f"Pod {key}: its containers get up to {grace_s} s to stop first", of_pod(before)))
        return
    own = {"uid": placeholder_uid(*key), "creationTimestamp": rfc3339(now)}
    if before is not None:
        own = {"uid": objects.uid(before), "creationTimestamp": before["metadata"].get("creationTimestamp")}
    pod = {**obj, "metadata": {**obj["metadata"], **own}, "status": objects.status(before or {})}
    if before is not None and not objects.spec(pod).get("nodeName") and objects.spec(before).get("nodeName"):
        pod["spec"] = {**objects.spec(pod), "nodeName": before["spec"]["nodeName"]}
    known[key] = changed[objects.uid(pod)] = pod
    if before is None:
        yield "create", pod


def _place(action: str, pod: JsonObject, owner: str = "") -> JsonObject:
    """Return a pod's place in the order."""
    node = str(objects.spec(pod).get("nodeName") or "")
    place = {"action": action, "pod": str(objects.key(pod)), "node": node, "owner": owner}
    return {**place, "turn": 1, "about": rows(of_pod(pod))}


def _bound(
    changed: Mapping[str, JsonObject | None],
    pods: Iterable[JsonObject],
    nodes: Sequence[JsonObject],
    scene: Scene,
    keeper: StorageKeeper,
    messages: list[Note],
) -> dict[str, JsonObject | None]:
    """Return the changed pods that no node has yet, bound where the scheduler would bind them."""
    everywhere = {objects.uid(pod): pod for pod in pods}
    bound: dict[str, JsonObject | None] = {}
    for uid, pod in changed.items():
        if pod is None or objects.spec(pod).get("nodeName"):
            continue
        placed = [one for one in everywhere.values() if objects.spec(one).get("nodeName")]
        decision, is_bound = keeper.schedule(pod, nodes, placed, scene)
        if not is_bound:
            reason = decision.message or awaited(keeper.world, pod, decision)
            messages.append(Note(f"Pod {objects.key(pod)}: {reason}", of_pod(pod)))
            messages += _preemption(pod, decision)
        if decision.node:  # the scheduler assumes it there also while it waits for its claims
            everywhere[uid] = _with_node(pod, decision.node)
        if is_bound:
            bound[uid] = everywhere[uid]
    return bound


def _preemption(pod: JsonObject, decision: Decision) -> Iterator[Note]:
    """Yield which pods would have to go for one that fits nowhere, to those who may know of all of them."""
    found = decision.nomination
    if found is not None and found.node:
        victims = ", ".join(str(victim.key) for victim in found.victims)
        about = tuple(one for each in (pod, *(victim.pod for victim in found.victims)) for one in of_pod(each))
        yield Note(f"Pod {objects.key(pod)}: it would preempt {victims} on node {found.node}", about)


def _with_node(pod: JsonObject, node: str) -> JsonObject:
    """Return the pod as a binding leaves it."""
    status = objects.status(pod)
    conditions = [*(status.get("conditions") or []), {"type": "PodScheduled", "status": "True"}]
    return {**pod, "spec": {**objects.spec(pod), "nodeName": node}, "status": {**status, "conditions": conditions}}
