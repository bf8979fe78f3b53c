"""``plan``: what would applying objects change on every node? Asked of the nodes themselves, in check mode.

The hypothetical pods go through the same decisions as real ones; what would be sent is sent as a check item
through the same live run, as a delta on what the node confirmed, so that the answer shows the effect of the
question alone, or a note says that it does not. No objects: a full check of what is declared now, which is drift.
Nothing is stored; the pure half is ``simulation.py``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple, Protocol

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import CONFIG_MAP, NODE, PERSISTENT_VOLUME_CLAIM, SECRET, Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.resizes import is_asked
from minik8s_modules.api.storage.attachments import with_attached
from minik8s_modules.base.clock import Clock
from minik8s_modules.client.interface import Getter
from minik8s_modules.module_utils.minik8s.core.sections import SECTIONS
from minik8s_modules.reconcile.feeds.plan_subjects import About, Hosts, Note, Subjects, of_pod
from minik8s_modules.reconcile.feeds.references import references
from minik8s_modules.reconcile.loop import section_changes
from minik8s_modules.reconcile.loop.basis import Basis
from minik8s_modules.reconcile.loop.drift_holds import NO_HOLD, holding, holds
from minik8s_modules.reconcile.loop.nodestate import retained_volumes
from minik8s_modules.reconcile.loop.section_changes import Request
from minik8s_modules.reconcile.network.services import Balancers, zone_of
from minik8s_modules.reconcile.planning.drifting import drift_of
from minik8s_modules.reconcile.planning.plan_requests import (
    Answer,
    awaiting,
    containers_of,
    deltas,
    joined,
    normalized_names,
    obstacles,
    pull_message,
    readable,
    silent,
    there,
    troubles,
    with_blob,
    with_host,
)
from minik8s_modules.reconcile.planning.questions import Question
from minik8s_modules.reconcile.planning.settled_pods import settled
from minik8s_modules.reconcile.planning.simulated_mesh import mesh_notes
from minik8s_modules.reconcile.planning.simulated_policies import ImaginedPolicies, imagined
from minik8s_modules.reconcile.planning.simulated_routes import Secrets
from minik8s_modules.reconcile.planning.simulated_services import (
    Cluster,
    PlannedServices,
    addresses,
    allocated,
    named_after,
    planned_services,
    with_services,
)
from minik8s_modules.reconcile.planning.simulation import PlannedState, planned_state
from minik8s_modules.reconcile.planning.standalone_plans import (
    SuppliedPlan,
    driver_secrets,
    mounted_of,
    plan_for_node,
    reading,
)
from minik8s_modules.reconcile.planning.storage_notes import planned_folders
from minik8s_modules.reconcile.planning.virtual_pods import on_virtual_nodes, unit_plans
from minik8s_modules.reconcile.pods.desired import assemble
from minik8s_modules.reconcile.pods.node_admission import arriving_beside
from minik8s_modules.reconcile.pods.observed import NOTHING, ObservedPod
from minik8s_modules.reconcile.storage.projections import token_needs
from minik8s_modules.reconcile.values.items import Outcome
from minik8s_modules.reconcile.values.values import Entry, Named, PodDecision, PodInputs, PullState, Settings, Tokens

log = logging.getLogger(__name__)
WITHIN_S = 38.0
"""Below the API server's patience (45 s): what is known by then is the answer, and who has said nothing is named."""
ANSWER_S = 30.0
_LEAST_S = 0.1
_TRIES = 3
_PATIENCE_S = 10.0
"""How long a plan waits for an item under way; a pass begins nothing after 2 s."""
_LOOK_S = 0.02
_PLANNED_TOKEN = b"planned"
"""Stands for the token of a pod that does not exist; a check writes nothing."""
_NODES_AT_ONCE = 16


class Present(Protocol):
    """The part of the loop a planner reads."""

    def basis(self, name: str) -> Basis | None:
        """Return the node, or None while it cannot be asked."""


class Checking(Protocol):
    """How nodes are asked."""

    def run(self, node: str, requests: Mapping[str, Request], timeout_s: float) -> Outcome:
        """Return what the node would do."""


class Prospect(NamedTuple):
    """One node, and its pods as they would be.

    Attributes:
        decisions: of all pods that would stand, by UID.
        sources: Secrets that the changed ones refer to.
        stuck: UIDs of the changed ones that something keeps from running.
    """

    basis: Basis
    decisions: Mapping[str, PodDecision]
    sources: Mapping[str, JsonObject]
    stuck: frozenset[str]
    notes: tuple[Note, ...]


class Future(NamedTuple):
    """What the whole cluster would come to."""

    found: PlannedState
    given: Mapping[str, str]
    """Addresses by the UID of their pod."""
    seen: PlannedServices
    named: Named | None
    """Names and paths, None where they stay."""
    nodes: tuple[JsonObject, ...]
    """The shard's own, which alone make folders of volumes."""
    balancers: Balancers = Balancers()
    policies: ImaginedPolicies | None = None
    """What policies would come to; None where this shard is not told of them."""


def _own(cluster: Cluster) -> tuple[JsonObject, ...]:
    return tuple(node for node in cluster.nodes if objects.name(node) in cluster.names)


def _homeless(found: PlannedState, prospects: Iterable[Prospect | None]) -> set[str]:
    """Return the UIDs of the pods that something keeps from having a sandbox."""
    decided = [(uid, decision) for each in prospects if each for uid, decision in each.decisions.items()]
    return {
        uid for uid, decision in decided if found.pods.get(uid) and uid not in decision.entries.get("sandboxes", {})
    }


def _seen(basis: Basis, decisions: Mapping[str, PodDecision], uid: str) -> ObservedPod:
    return basis.observed.get(uid, NOTHING) if uid in decisions else NOTHING


class Planner:
    """Answers one question, within ``WITHIN_S``; thread-safe."""

    def __init__(
        self,
        present: Present,
        reader: Getter,
        checks: Checking,
        settings: Settings,
        clock: Clock,
        hosts: Hosts = lambda _: (),
    ) -> None:
        self._present, self._reader, self._checks = present, reader, checks
        self._settings, self._clock, self._hosts = settings, clock, hosts
        self._end = clock.monotonic() + WITHIN_S

    def _left_s(self, most_s: float) -> float:
        """Return how long one may wait yet."""
        return min(most_s, max(_LEAST_S, self._end - self._clock.monotonic()))

    def answer(self, question: Question, cluster: Cluster, supplied: SuppliedPlan | None = None) -> JsonObject:
        """Return ``{"nodes": {node: {"diff", "about", "steps"}}, "messages", "order", "others"}``.

        ``messages`` hold ``{"text", "about"}`` (plan_subjects.py), ``order`` holds ``{"action": "create|delete",
        "pod", "node", "owner", "about"}`` where workloads change, ``others`` what the nodes ``question.others`` are to
        be told. ``supplied`` is what this shard's node was sent itself. Only ``made`` counts where it is there.
        """
        self._end -= question.spent_s
        names = [name for name in cluster.names if not question.nodes or name in question.nodes]
        with ThreadPoolExecutor(_NODES_AT_ONCE) as pool:
            if supplied is None and not question.operations:
                return joined(names, pool.map(self._drift_of, names), [])
            found = supplied.found if supplied is not None else self._planned_state(question, cluster)
            if question.admits and found.made:
                return {"nodes": {}, "messages": [], "made": dict(found.made), "around": [*found.accounts]}
            given = supplied.given if supplied is not None else addresses(found.pods, cluster)
            prospects = list(pool.map(lambda name: self._prospect(name, found, given), cluster.names))
            if supplied is None and (homeless := _homeless(found, prospects)):
                # a pod that gets no sandbox claims no address, and so it is the next one's
                given = addresses({uid: pod for uid, pod in found.pods.items() if uid not in homeless}, cluster)
                prospects = list(pool.map(lambda name: self._prospect(name, found, given), cluster.names))
            stuck = frozenset(uid for each in prospects if each for uid in each.stuck)
            dual = self._settings.dual_stack
            seen = supplied.seen if supplied is not None else planned_services(found, cluster, given, stuck, dual)
            policies = imagined(cluster, found, given, self._settings) if supplied is None else None
            named = self._named(found, seen, cluster)
            future = Future(found, given, seen, named, _own(cluster), cluster.balancers, policies)
            known = dict(zip(cluster.names, prospects, strict=True))
            answers = pool.map(lambda name: self._effect_of(name, known[name], future), names)
            notes = [*found.messages, *cluster.scaling.notes, *awaiting(seen), *(policies.notes() if policies else ())]
            secrets = Secrets(reading(self._reader, {}), reading(self._reader, found.overlay))
            notes += mesh_notes(question, seen, cluster, secrets, found.pods) if supplied is None else []
            notes += on_virtual_nodes(found.pods, cluster.nodes)
            answer = joined(names, answers, notes, found.order, unit_plans(found.pods, cluster, question.nodes))
        others = {name: self._plan_for_node(name, future, cluster) for name in sorted(question.others)}
        return answer | ({"others": others} if others else {})

    def _planned_state(self, question: Question, cluster: Cluster) -> PlannedState:
        known = (self._clock.now(), cluster.workloads, cluster.scene, cluster.storage, cluster.scaling.scaled)
        found = planned_state(question, cluster.pods, cluster.nodes, *known, mesh=self._settings.mesh)
        return allocated(found, cluster.services, self._settings.service_cidr)

    def _named(self, found: PlannedState, seen: PlannedServices, cluster: Cluster) -> Named | None:
        if not (found.network or seen.services or any(kind == SECRET.kind for kind, _ in found.overlay)):
            return None
        read = reading(self._reader, found.overlay)
        return cluster.imagined(found.network, seen.slices, lambda key: read(SECRET.kind, key))

    def _plan_for_node(self, name: str, future: Future, cluster: Cluster) -> JsonObject:
        found, read = future.found, reading(self._reader, future.found.overlay)
        return plan_for_node(name, found, future.seen, future.given, cluster.pods, cluster.certificates, read)

    def _drift_of(self, name: str) -> Answer:
        if (basis := self._quiet(name)) is None:
            return silent(name)
        requests = self._drift(basis)
        subjects = self._subjects(basis, requests)
        outcome = self._checks.run(name, requests, self._left_s(ANSWER_S))
        return drift_of(name, outcome, requests, basis, subjects)

    def _effect_of(self, name: str, prospect: Prospect | None, future: Future) -> Answer:
        answer = silent(name)
        for attempt in range(_TRIES):
            if attempt:  # a real item came between reading and asking
                self._clock.wait(threading.Event(), 0.1 * attempt)
                prospect = self._prospect(name, future.found, future.given)
            if prospect is None:
                return silent(name)
            requests = self._effect(prospect, future)
            subjects = self._subjects(prospect.basis, requests, future.found)
            answer = self._asked(name, requests, subjects)._replace(before=prospect.notes)
            if not answer.outdated or self._clock.monotonic() > self._end:
                break
        return answer

    def _subjects(self, basis: Basis, requests: Mapping[str, Request], found: PlannedState | None = None) -> Subjects:
        pods = {objects.uid(pod): pod for pod in basis.pods}
        pods |= {uid: pod for uid, pod in (found.pods.items() if found else ()) if pod is not None}
        network = found.network if found else {}

        def hosts(host: str) -> Iterable[tuple[Kind, JsonObject]]:
            return (*self._hosts(host), *with_host(network, host))

        return Subjects(objects.name(basis.node), pods, hosts, containers_of(basis, requests))

    def _asked(self, name: str, requests: Mapping[str, Request], subjects: Subjects) -> Answer:
        if not requests:
            return Answer({"diff": {}, "steps": []})
        outcome = self._checks.run(name, requests, self._left_s(ANSWER_S))
        outdated = any(result.get("base_mismatch") for result in outcome.sections.values())
        return Answer(readable(outcome, subjects), tuple(troubles(name, outcome, subjects, requests)), outdated)

    def _quiet(self, name: str) -> Basis | None:
        """Return the node between two items, or as it is when that takes too long."""
        end = self._clock.monotonic() + self._left_s(_PATIENCE_S)
        basis = self._present.basis(name)
        while basis is not None and basis.busy and self._clock.monotonic() < end:
            self._clock.wait(threading.Event(), _LOOK_S)
            basis = self._present.basis(name)
        return basis

    def _drift(self, basis: Basis) -> dict[str, Request]:
        parts = (basis.services, basis.named, basis.policies)
        document = dict(assemble(basis.node, basis.decisions.values(), self._settings, *parts))
        kept = retained_volumes(basis.confirmed["volumes"], document, lambda uid: basis.observed.get(uid, NOTHING))
        document["volumes"] = {**document["volumes"], **kept}
        requests = {section: section_changes.full(document[section]) for section in SECTIONS}
        secrets = self._secrets(pod for pod in basis.pods if objects.uid(pod) in basis.decisions)
        return with_blob(requests, (*basis.decisions.values(), basis.named.certificates), secrets)

    def _prospect(self, name: str, found: PlannedState, given: Mapping[str, str]) -> Prospect | None:
        """Return the node with its pods as they would be, None when it does not answer."""
        basis = self._quiet(name)
        if basis is None:
            return None
        decisions, stuck, notes = dict(basis.decisions), set[str](), list[Note]()
        touched = self._touched(basis, found)
        for uid, pod in touched.items():
            decisions.pop(uid, None)
            if pod is None:
                continue
            inputs = self._inputs(pod, basis, found, given, notes)
            document, decision = settled(pod, basis.observed.get(uid, NOTHING), inputs, self._clock.now())
            decisions[uid] = decision._replace(entries=document)
            if decision.phase == "Failed" and decision.message:
                notes.append(Note(f"Pod {objects.key(pod)}: {decision.reason}: {decision.message}", of_pod(pod)))
            for one, why in obstacles(decision):
                stuck.add(uid)
                named = tuple(About("v1", *each) for each in sorted(references(pod)))
                notes.append(Note(f"Pod {objects.key(pod)}: {one}: {why.reason} {why.message}", (*of_pod(pod), *named)))
        sources = self._secrets(pod for pod in touched.values() if pod)
        return Prospect(basis, decisions, sources, frozenset(stuck), tuple(notes))

    def _effect(self, prospect: Prospect, future: Future) -> dict[str, Request]:
        """Return what would be sent beyond what the node confirmed, where that is known, for what changes alone."""
        basis, decisions = prospect.basis, prospect.decisions
        parts = (basis.services, basis.named, basis.policies)
        before = assemble(basis.node, basis.decisions.values(), self._settings, *parts)
        known = {section: confirmed.entries for section, confirmed in basis.confirmed.items() if confirmed}
        # a section of which it is not, as after an item that failed, is sent whole, and shows what that left undone
        wanted = {section: dict(known.get(section, before[section])) for section in SECTIONS}
        where = (objects.name(basis.node), future.balancers, zone_of(basis.node))
        services = with_services(basis.services, future.seen, *where)
        folders = planned_folders(basis.named.folders, future.found.overlay, future.nodes)
        named = named_after(basis.named, future.named, folders, future.seen, objects.name(basis.node))
        policies = future.policies.entries(basis.node) if future.policies else basis.policies
        after = assemble(basis.node, decisions.values(), self._settings, services, named, policies)
        # a pod that stands keeps what its containers use, also where the object it was made of goes
        kept = retained_volumes(basis.confirmed["volumes"], after, lambda uid: _seen(basis, decisions, uid))
        after = {**after, "volumes": {**after["volumes"], **kept}}
        for section in SECTIONS:
            old, new = before[section], after[section]
            ours = {key for key in (*old, *new) if old.get(key) != new.get(key)}
            wanted[section] |= {key: entry for key, entry in new.items() if key in ours}
            for key in ours - set(new):
                wanted[section].pop(key, None)
        requests = self._held(basis, future.found, wanted)
        return with_blob(requests, (*decisions.values(), named.certificates), prospect.sources, future.found)

    def _held(self, basis: Basis, found: PlannedState, wanted: Mapping[str, Mapping[str, Entry]]) -> dict[str, Request]:
        """Return the requests towards ``wanted``; what nobody holds any more would be put right with them."""
        pods = {objects.uid(pod): pod for pod in basis.pods} | {**found.pods}
        node = found.overlay.get((NODE.kind, objects.name(basis.node))) or basis.node
        held = holds(node, pods.get, wanted)
        freed = {section: keys - held.get(section, NO_HOLD).keys for section, keys in basis.held.items()}
        requests = deltas(basis.confirmed, wanted, freed).items()
        return {section: holding(request, held.get(section, NO_HOLD)) for section, request in requests}

    def _touched(self, basis: Basis, found: PlannedState) -> dict[str, JsonObject | None]:
        """Return the pods of this node that the plan changes, by UID; None for those that would go."""
        here = {objects.uid(pod): pod for pod in basis.pods}
        name = objects.name(basis.node)
        touched: dict[str, JsonObject | None] = {}
        for uid, pod in found.pods.items():
            if pod is not None and objects.spec(pod).get("nodeName") == name:
                touched[uid] = pod
            elif uid in here:
                touched[uid] = None
        for uid, pod in here.items():
            named = {(one.kind, f"{one.namespace}/{one.name}") for one in references(pod)}
            if uid not in found.pods and named & set(found.overlay):
                touched[uid] = pod
        return touched

    def _inputs(
        self, pod: JsonObject, basis: Basis, found: PlannedState, given: Mapping[str, str], notes: list[Note]
    ) -> PodInputs:
        uid, now = objects.uid(pod), self._clock.now()
        address = None if self._settings.plugin.driver else given.get(uid)
        images = {one["image"] for _, _, one in objects.all_containers(pod)}
        for image in sorted(images):
            notes += pull_message(pod, image, objects.name(basis.node), basis.images)
        claims = self._referenced(pod, PERSISTENT_VOLUME_CLAIM.kind, found)
        mounted = mounted_of(pod, claims.values(), read := reading(self._reader, found.overlay))
        return PodInputs(
            node=with_attached(basis.node, mounted.volumes.values()),
            configmaps=self._referenced(pod, CONFIG_MAP.kind, found),
            secrets=self._referenced(pod, SECRET.kind, found) | driver_secrets(mounted.volumes.values(), read),
            images=basis.images
            | {one for image in (*images, self._settings.pause_image) for one in normalized_names(image)},
            pulls={image: PullState(finished_at=now) for image in images},
            address=address,
            errors={},
            settings=self._settings,
            address_error=""
            if address or self._settings.plugin.driver
            else f"no free address on node {objects.name(basis.node)}",
            links=basis.links(objects.namespace(pod), found.services),
            unenforced=basis.unenforced(pod),
            tokens=basis.tokens.get(uid) or Tokens(dict.fromkeys(token_needs(pod), _PLANNED_TOKEN)),
            beside=arriving_beside(pod, partial(there, basis, found), basis.decisions.__contains__),
            claims=claims,
            **mounted._asdict(),
            neighbours=tuple(there(basis, found)) if is_asked(pod) else (),
        )

    def _referenced(self, pod: JsonObject, kind: str, found: PlannedState | None) -> dict[str, JsonObject]:
        read = reading(self._reader, found.overlay if found is not None else {})
        keys = (f"{one.namespace}/{one.name}" for one in references(pod) if one.kind == kind)
        return {key: obj for key in keys if (obj := read(kind, key)) is not None}

    def _secrets(self, pods: Iterable[JsonObject]) -> dict[str, JsonObject]:
        return {key: obj for pod in pods for key, obj in self._referenced(pod, SECRET.kind, None).items()}
