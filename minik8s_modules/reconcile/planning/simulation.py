"""What would be if objects were applied: the pure half of ``plan``.

Takes the cluster's pods and nodes and the operations of a question, and answers with the pods as they would
stand: bound by the scheduler's own decision, with placeholder UIDs that depend on the name alone, so that
the same question has the same answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import NAMESPACE, POD, POD_DISRUPTION_BUDGET
from minik8s_modules.api.nodes.drift_policies import of_node
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.mirror_pods import static_uid
from minik8s_modules.base.clock import rfc3339
from minik8s_modules.controllers.simulation.simulated_cluster import placeholder_uid
from minik8s_modules.reconcile.feeds.plan_subjects import About, Note, of, of_pod, rows
from minik8s_modules.reconcile.feeds.references import references
from minik8s_modules.reconcile.planning.foretold_autoscalers import is_autoscaler
from minik8s_modules.reconcile.planning.simulated_rollouts import Change, unrolled, workload_kind
from minik8s_modules.reconcile.planning.simulated_storage import storage_kind, storage_notes
from minik8s_modules.reconcile.pods.desired import decide_pod
from minik8s_modules.reconcile.pods.observed import ObservedContainer, ObservedPod
from minik8s_modules.reconcile.values.values import Entry, NodeDocument, PodDecision, PodInputs
from minik8s_modules.scheduler.deciding.cycle import Decision
from minik8s_modules.scheduler.profiles.deciding import SPREAD_BY, Profiles, Scene

OPERATIONS = frozenset({"create", "update", "delete"})


class Operation(NamedTuple):
    """One object as it would stand, or (delete) as it stood."""

    operation: str
    object: JsonObject


NETWORK_KINDS = frozenset({"Service", "EndpointSlice", "Endpoints", "DNS", "Ingress", "IngressClass", "HostGrant"})


class Question(NamedTuple):
    """What to plan; no operations ask for drift, no nodes for all.

    Attributes:
        others: nodes with a reconciler of their own, to which the answer says what to tell them.
        foretold: what such a node is told (``standalone_plans.read_foretold``), in place of operations.
    """

    operations: tuple[Operation, ...]
    nodes: frozenset[str]
    others: frozenset[str] = frozenset()
    foretold: Any = None


class Hypothesis(NamedTuple):
    """What would be.

    Attributes:
        pods: by UID, those that would differ (None: gone).
        overlay: ConfigMaps, Secrets and Nodes (those with other policies for drift) by kind and key.
        messages: what to tell.
        order: in which order pods come and go.
        network: objects of ``NETWORK_KINDS`` that would differ, by kind and key (None: gone).
    """

    pods: Mapping[str, JsonObject | None]
    overlay: Mapping[tuple[str, str], JsonObject | None]
    messages: tuple[Note, ...]
    order: tuple[JsonObject, ...] = ()
    network: Mapping[tuple[str, str], JsonObject | None] = {}

    @property
    def services(self) -> dict[str, JsonObject | None]:
        """The Services that would differ, by namespace/name (None: gone)."""
        return {key: obj for (kind, key), obj in self.network.items() if kind == "Service"}


def parse_question(body: Any) -> Question:
    """Return the question in a request's JSON.

    Raises:
        ValueError: it is none; the message says what is wrong.
    """
    if not isinstance(body, Mapping) or not isinstance(body.get("objects", []), list):
        raise ValueError('a plan is {"objects": [{"operation", "object"}], "nodes": [names]}')  # noqa: TRY004
    return Question(
        tuple(_operation(index, one) for index, one in enumerate(body.get("objects") or [])),
        _names("nodes", body.get("nodes") or ([body["node"]] if body.get("node") else [])),
        _names("others", body.get("others") or []),
        body.get("foretold"),
    )


def _names(field: str, found: Any) -> frozenset[str]:
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise ValueError(f"{field} must be a list of names")
    return frozenset(found)


def _operation(index: int, raw: Any) -> Operation:
    if not isinstance(raw, Mapping) or raw.get("operation") not in OPERATIONS:
        raise ValueError(f"objects[{index}].operation must be create, update or delete")
    obj = raw.get("object")
    if not isinstance(obj, dict) or not isinstance(obj.get("metadata"), dict):
        raise ValueError(f"objects[{index}].object must be an object with metadata")  # noqa: TRY004 - content
    return Operation(str(raw["operation"]), obj)


def hypothesis(
    question: Question,
    pods: Iterable[JsonObject],
    nodes: Sequence[JsonObject],
    now: datetime,
    workloads: Iterable[JsonObject] = (),
    scene: Scene | None = None,
    storage: Iterable[JsonObject] = (),
) -> Hypothesis:
    """Return what the operations would make of the cluster's ``pods``, and of those of its ``workloads``.

    ``scene`` is what the scheduler looks at besides; it changes with the operations. ``storage`` has claims, volumes
    and classes, where operations are of such.
    """
    scene = _after(question, scene or Scene(Profiles()))
    known = {objects.key(pod): pod for pod in pods}
    changed: dict[str, JsonObject | None] = {}
    overlay: dict[tuple[str, str], JsonObject | None] = {}
    network: dict[tuple[str, str], JsonObject | None] = {}
    messages: list[Note] = []
    order: list[JsonObject] = []
    alone: list[tuple[str, JsonObject]] = []
    for operation in question.operations:
        obj = operation.object
        kind, key = str(obj.get("kind") or ""), objects.key(obj)
        if kind == "Pod":
            alone += _take_pod(operation, known, changed, messages, now)
        elif kind in {"ConfigMap", "Secret"}:
            overlay[kind, str(key)] = None if operation.operation == "delete" else obj
        elif kind == "Node" and _steers_drift(operation, nodes):
            overlay[kind, str(key)] = obj
        elif kind in NETWORK_KINDS:
            network[kind, str(key)] = None if operation.operation == "delete" else obj
        elif kind == "Namespace" and is_gone(operation):
            order += _take_namespace(objects.name(obj), known, changed, messages)
        elif is_autoscaler(obj) and not is_gone(operation):
            continue  # the cluster as it was read tells of it
        elif workload_kind(obj) is None and storage_kind(obj) is None:
            about = About(str(obj.get("apiVersion") or ""), kind, objects.namespace(obj), objects.name(obj))
            messages.append(Note(f"{kind} {key}: nothing on a node follows from it alone", (about,)))
    messages += storage_notes(storage, question.operations, (*nodes, *known.values()), now)
    bound = _bound(changed, known.values(), nodes, scene, messages)
    changed |= bound | {
        objects.uid(pod): pod for pod in _waiting(known.values(), overlay) if objects.uid(pod) not in bound
    }
    order = [*(_place(action, bound.get(objects.uid(pod)) or pod) for action, pod in alone), *order]
    changes = [Change(*each) for each in question.operations if workload_kind(each.object) is not None]
    standing = tuple(bound.get(objects.uid(pod)) or pod for pod in known.values())
    if not changes:
        return Hypothesis(changed, overlay, tuple(messages), tuple(order), network)
    found = unrolled(changes, workloads, standing, nodes, now, scene)
    return Hypothesis({**changed, **found.pods}, overlay, (*messages, *found.messages), (*order, *found.order), network)


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
        named = {(one.kind, f"{one.namespace}/{one.name}") for one in references(pod)}
        if objects.spec(pod).get("nodeName") and never_ran(pod) and named & set(overlay):
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
    messages: list[Note],
) -> dict[str, JsonObject | None]:
    """Return the changed pods that no node has yet, bound where the scheduler would bind them."""
    everywhere = {objects.uid(pod): pod for pod in pods}
    bound: dict[str, JsonObject | None] = {}
    for uid, pod in changed.items():
        if pod is None or objects.spec(pod).get("nodeName"):
            continue
        placed = [one for one in everywhere.values() if objects.spec(one).get("nodeName")]
        decision = scene.profiles.decide(pod, scene.snapshot(pod, nodes, placed))
        if not decision.node:
            messages.append(Note(f"Pod {objects.key(pod)}: {decision.message}", of_pod(pod)))
            messages += _preemption(pod, decision)
            continue
        bound[uid] = everywhere[uid] = _with_node(pod, decision.node)
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
    return {
        **pod,
        "spec": {**objects.spec(pod), "nodeName": node},
        "status": {**status, "conditions": conditions},
    }


def settled(pod: JsonObject, seen: ObservedPod, inputs: PodInputs, now: datetime) -> tuple[NodeDocument, PodDecision]:
    """Return all the pod wants until it runs, as if each init container ended well at once, and its last decision."""
    document: dict[str, dict[str, Entry]] = {}
    while True:
        decision = decide_pod(pod, seen, inputs, now)
        for section, entries in decision.entries.items():
            document.setdefault(section, {})
            for key, entry in entries.items():
                document[section].setdefault(key, entry)
        started = [entry for entry in decision.entries.get("containers", {}).values() if _runs_init(entry, seen)]
        if not started:
            return document, decision
        seen = _with_success(pod, seen, started, now)


def _runs_init(entry: Mapping[str, Any], seen: ObservedPod) -> bool:
    last = seen.last(entry["name"])
    ended = last is not None and last.attempt >= entry["attempt"] and last.over
    return entry["type"] == "init" and entry["state"] == "running" and not ended


def _with_success(
    pod: JsonObject, seen: ObservedPod, started: Sequence[Mapping[str, Any]], now: datetime
) -> ObservedPod:
    sandbox = seen.sandbox
    if sandbox is None or not sandbox.alive or sandbox.attempt != started[0]["sandbox_attempt"]:
        sandbox = _imagined(pod, "sandbox", "", started[0]["sandbox_attempt"], "running", now)
    ended = {
        entry["name"]: (_imagined(pod, "init", entry["name"], entry["attempt"], "exited", now, entry["image"]),)
        for entry in started
    }
    return ObservedPod((sandbox,), {**seen.containers, **ended})


def _imagined(
    pod: JsonObject, kind: str, name: str, attempt: int, state: str, now: datetime, image: str = ""
) -> ObservedContainer:
    finished_at = now if state == "exited" else None
    return ObservedContainer(
        id=f"imagined-{name}",
        type=kind,
        pod_uid=objects.uid(pod),
        pod_name=objects.name(pod),
        pod_namespace=objects.namespace(pod),
        container=name,
        attempt=attempt,
        state=state,
        exit_code=0,
        oom_killed=False,
        error="",
        created_at=now,
        started_at=now,
        finished_at=finished_at,
        image=image,
        image_id="",
    )
