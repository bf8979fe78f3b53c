"""What the loop makes of a node that is decided about: requests for its modules, the basis of plans, a pod's place.

Each is read off the node's state and the shard's objects at one moment; the loop holds its lock meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import POD
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.schema.structural import type_errors
from minik8s_modules.api.storage.attachments import in_use
from minik8s_modules.reconcile.loop.basis import Basis
from minik8s_modules.reconcile.loop.drift_holds import NO_HOLD, holding, holds
from minik8s_modules.reconcile.loop.nodestate import NodeState
from minik8s_modules.reconcile.loop.section_changes import Request
from minik8s_modules.reconcile.loop.shard import Shard, node_blob
from minik8s_modules.reconcile.pods.desired import assemble
from minik8s_modules.reconcile.pods.observed import ObservedPod
from minik8s_modules.reconcile.status.claim_sizes import finished
from minik8s_modules.reconcile.status.status import Place
from minik8s_modules.reconcile.status.writer import View
from minik8s_modules.reconcile.storage.drivers import used_volumes
from minik8s_modules.reconcile.values.items import FACTS, Outcome, SectionRequest, WorkItem
from minik8s_modules.reconcile.values.node_file import Declared
from minik8s_modules.reconcile.values.resources import host_ips
from minik8s_modules.reconcile.values.values import PodDecision, PodInputs, Settings

FACTS_RETRY_S = 5.0


def all_decided(shard: Shard, state: NodeState) -> bool:
    """Return whether nothing on the node belongs to a pod that is not decided about yet.

    A pod that cannot be read never will be: what runs of it ends, so that the node's other pods go on.
    """
    known = state.decisions.keys() | state.unreadable
    return all(uid in known or shard.objects.pod(uid) is None for uid in state.observed.uids())


def note_unreadable(shard: Shard, state: NodeState, uid: str) -> None:
    """Note a pod whose decision failed, if it has values of wrong types, as somebody may have stored them by hand."""
    pod = shard.objects.pod(uid)
    if pod is not None and type_errors(POD, pod):
        state.unreadable.add(uid)


def requests_of(shard: Shard, state: NodeState, node: JsonObject, now_s: float) -> dict[str, Request]:
    """Return by section what leads from what the node confirmed to what is decided; {} for nothing."""
    services = shard.objects.services(node)
    named = shard.objects.named(state.name)
    policies = shard.objects.policies(node)
    document = assemble(node, state.decisions.values(), shard.settings, services, named, policies)
    retained = state.retained(document)
    wanted = {**document, "volumes": {**document["volumes"], **retained}}
    held = holds(node, shard.objects.pod, wanted, healing=state.healing)
    state.on_holds(held, now_s)
    items = state.next_item(wanted, now_s).items()
    requests = {section: holding(request, held.get(section, NO_HOLD)) for section, request in items}
    if "secrets" in requests:
        options = requests["secrets"].options
        entries = options.get("entries") or options.get("upsert") or {}
        options["blob"] = node_blob({**state.decisions, "": named.certificates}, shard.references, entries)
    return requests


def item_of(item_id: str, node: str, token: tuple[int, int], requests: Mapping[str, Request]) -> WorkItem:
    """Return the item that has the requests carried out; each section sees the fencing token."""
    own = {"token": list(token)}
    sections = {section: SectionRequest(request.options | own) for section, request in requests.items()}
    return WorkItem(item_id, node, False, token, sections)  # noqa: FBT003


def facts_item(item_id: str, node: str, settings: Settings) -> WorkItem:
    """Return the item that asks a node of itself, and which of its declared devices are there.

    Facts are only read: without a token, whoever led before may look, too.
    """
    devices = [one.as_json() for one in settings.declared.get(node, Declared()).devices]
    options = {"devices": devices} if devices else {}
    return WorkItem(item_id, node, False, (), {FACTS: SectionRequest(options)})  # noqa: FBT003


def take_facts(shard: Shard, state: NodeState, outcome: Outcome, now_s: float) -> bool:
    """Hand on what a node says of itself and return whether it said it; if not, it is asked again after a while."""
    facts = outcome.sections.get(FACTS, {}).get("facts")
    if outcome.status != "ok" or not isinstance(facts, dict):
        state.facts_at_s = now_s + FACTS_RETRY_S
        return False
    state.facts_wanted = False
    shard.registrar.on_facts(state.name, facts)
    return True


def has_devices(settings: Settings, node: str) -> bool:
    """Return whether devices of the node are counted: one may come, or go, at any time."""
    return bool(settings.declared.get(node, Declared()).devices)


def unused_addresses(shard: Shard, state: NodeState) -> Iterator[str]:
    """Yield the UIDs whose pod is gone, or over, and whose sandbox the node has no more: their address is free.

    That of a pod which is about to leave the API goes before it (status/writer.py).
    """
    for claim in shard.addresses.on_node(state.name):
        decision = state.decisions.get(claim.pod_uid)
        over = decision.address_released if decision else shard.objects.pod(claim.pod_uid) is None
        leaves = decision is not None and decision.gone and not state.holds(claim.pod_uid)
        if over and not leaves and not state.holds_sandbox(claim.pod_uid):
            yield claim.pod_uid


def basis_of(shard: Shard, state: NodeState, node: JsonObject, pods: tuple[JsonObject, ...]) -> Basis:
    """Return the node, with its ``pods``, as a plan is made over it."""
    return Basis(
        node=node,
        pods=pods,
        decisions=dict(state.decisions),
        observed={uid: state.observed.pod(uid) for uid in state.observed.uids()},
        confirmed=state.confirmed(),
        images=state.images,
        busy=state.sent is not None or bool(state.dirty),
        services=shard.objects.services(node),
        policies=shard.objects.policies(node),
        named=shard.objects.named(state.name),
        tokens={uid: shard.tokens.of(uid) for uid in state.decisions},
        links=shard.objects.links,
        unenforced=shard.objects.unenforced,
        realized=state.realized.known(),
        held={section: frozenset(found) for section, found in state.realized.held.items()},
        errors=dict(state.errors),
    )


def take_decision(shard: Shard, state: NodeState, pod: JsonObject, inputs: PodInputs, decision: PodDecision) -> None:
    """Keep what a pod wants, and which attached volumes it asks for; tell its claims of those that have grown."""
    uid, ends = objects.uid(pod), objects.is_deleting(pod) or bool(decision.phase)
    state.decisions[uid] = decision
    state.volumes.used[uid] = frozenset() if ends else used_volumes(pod, inputs)
    for claim, status in finished(pod, inputs, state.volumes.sizes.get(uid, {})):
        shard.tell_size(claim, status, state.name)


def tell_volumes(shard: Shard, state: NodeState) -> None:
    """Have the Node list the attached volumes that its machine may have mounted, before it mounts any."""
    node = shard.objects.node(state.name)
    if node is not None:
        shard.registrar.on_volumes(state.name, state.volumes_in_use(in_use(node)))


def place_of(shard: Shard, name: str, uid: str, seen: ObservedPod) -> Place:
    """Return where a pod of the node ``name`` is: the node's address, and its own while its sandbox is up."""
    up = seen.sandbox is not None and seen.sandbox.alive
    seen_ip = seen.sandbox.ip if seen.sandbox is not None else ""
    own = (seen_ip or shard.addresses.of(uid) or "") if up else ""
    hosts = host_ips(shard.objects.node(name) or {})
    return Place(next(iter(hosts), ""), own, shard.settings.dual_stack, tuple(hosts))


def view_of(shard: Shard, state: NodeState, pod: JsonObject) -> View | None:
    """Return what the status writer writes of a pod, None before it was decided about."""
    uid = objects.uid(pod)
    decision = state.decisions.get(uid)
    if decision is None:
        return None
    seen = state.observed.pod(uid)
    gone, busy = decision.gone and not state.holds(uid), state.works_on(uid)
    return View(pod, seen, decision, place_of(shard, state.name, uid, seen), gone, busy, uid not in state.detached)
