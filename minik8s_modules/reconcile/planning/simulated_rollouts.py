"""Where changed workloads lead: a Deployment that is applied is rolled out in a simulated cluster, to its pods.

The controllers' own deciders and the scheduler's act until none has a step; then all pods with a node become ready, a
turn ends, and they act again. Deleted pods go at once. What comes out is the order in which pods come and go, turn by
turn, and on which nodes; where pods find no node, it ends as the real rollout would stall. Names of pods that do not
exist yet are placeholders.

Of several workloads each is followed turn by turn. When a turn of one ends beside the others is up to their containers,
so no order is told between them, and a message says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.defaulting.conversion import stored_kind, to_storage
from minik8s_modules.api.errors import Forbidden, NotFound
from minik8s_modules.api.kinds import DAEMON_SET, POD, REPLICA_SET, SERVICE, SERVICE_ACCOUNT, Kind
from minik8s_modules.api.network.gateway_api import GATEWAY_KINDS, gateway_kind, name_of_parts
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.base.clock import rfc3339
from minik8s_modules.client.interface import Lister
from minik8s_modules.controllers.core.pods import is_ready
from minik8s_modules.controllers.core.steps import Patch, Step
from minik8s_modules.controllers.network.gateways import PARTS
from minik8s_modules.controllers.simulation.deciders import DECIDERS, GATEWAY_DECIDERS, LOOKED_AT
from minik8s_modules.controllers.simulation.extended import extended, known_kinds
from minik8s_modules.controllers.simulation.simulated_cluster import Decider, World, placeholder_uid, run_deciders
from minik8s_modules.reconcile.feeds.plan_subjects import About, Note, of, of_pod, rows
from minik8s_modules.reconcile.planning.simulated_admission import Admitting, controllers_of, declared
from minik8s_modules.reconcile.planning.simulated_storage import (
    STORAGE_KINDS,
    StorageKeeper,
    awaited,
    has_its_claims,
    scheduled,
    standing,
    storage_world,
    with_storage,
)
from minik8s_modules.reconcile.planning.storage_notes import last_messages_of
from minik8s_modules.scheduler.deciding.cycle import Decision
from minik8s_modules.scheduler.framework.infos import PodInfo
from minik8s_modules.scheduler.profiles.deciding import SPREAD_BY, Profiles, Scene

_SEVERAL, _NAMED = 2, 3


class Change(NamedTuple):
    """A workload as it would stand (create, update), or as it stood (delete)."""

    operation: str
    object: JsonObject


class SimulatedRollout(NamedTuple):
    """What follows: ``pods`` by uid (None: gone), the ``order`` of comings and goings, and what to tell besides.

    ``storage`` are claims, volumes and classes in the end, ``last_messages`` those of their last Events. ``services``
    are those that controllers would make, change or delete, by ``<namespace>/<name>`` (None: gone). ``accounts`` are
    ServiceAccounts that controllers would make, as declared.
    """

    pods: Mapping[str, JsonObject | None]
    order: tuple[JsonObject, ...]
    messages: tuple[Note, ...]
    storage: tuple[JsonObject, ...] = ()
    last_messages: Mapping[tuple[str, Key], str] = {}
    services: Mapping[str, JsonObject | None] = {}
    accounts: tuple[JsonObject, ...] = ()


def workload_kind(obj: JsonObject) -> Kind | None:
    """Return the kind whose decider unrolls ``obj``, or None."""
    kind = known_kinds().by_api_version(str(obj.get("apiVersion")), str(obj.get("kind")))
    stored = stored_kind(kind) if kind is not None else None
    of_gateway = stored in PARTS and (objects.controller_of(obj) or {}).get("kind") == GATEWAY_KINDS.gateways.kind
    return stored if stored in _deciders() or stored == GATEWAY_KINDS.classes or of_gateway else None


def _deciders() -> Mapping[Kind, Decider]:
    """Return the deciders of our controllers, and those of packages."""
    return {**GATEWAY_DECIDERS, **DECIDERS, **extended()}


def workloads(changed: Iterable[JsonObject], api: Lister) -> tuple[JsonObject, ...]:
    """Return all objects that controllers act on or look at, if one of ``changed`` is such; raises as the API does."""
    if not any(workload_kind(obj) is not None for obj in changed):
        return ()
    found = tuple(obj for kind in (*DECIDERS, *LOOKED_AT) for obj in api.list(kind).items)
    gateways = [obj for kind in (GATEWAY_KINDS.classes, GATEWAY_KINDS.gateways) for obj in if_served(api, kind)]
    accounts = api.list(SERVICE_ACCOUNT).items if any(map(_is_of_gateways, (*changed, *gateways))) else ()
    return (*found, *gateways, *accounts, *(obj for kind in extended() for obj in if_served(api, kind)))


def _is_of_gateways(obj: JsonObject) -> bool:
    return obj.get("kind") == GATEWAY_KINDS.gateways.kind and gateway_kind(obj) is not None


def if_served(api: Lister, kind: Kind) -> list[JsonObject]:
    """Return the objects of a custom kind; none where its definition is not there, or roles do not let us read it."""
    try:
        return list(api.list(kind).items)
    except (NotFound, Forbidden):
        return []


def simulated_rollout(
    changes: Sequence[Change],
    known: Iterable[JsonObject],
    pods: Iterable[JsonObject],
    nodes: Sequence[JsonObject],
    now: datetime,
    scene: Scene | None = None,
    storage: Iterable[JsonObject] = (),
    later: Sequence[Change] = (),
    admitting: Admitting | None = None,
) -> SimulatedRollout:
    """Return what becomes of the pods when workloads change.

    Args:
        changes: of workloads.
        known: the workloads there are.
        pods: all pods, as they would stand without ``changes``.
        nodes: all nodes.
        now: the time that decisions are made at.
        scene: what the scheduler looks at besides.
        storage: claims, volumes and classes, as they would stand without ``changes``.
        later: what others change of workloads once these changes have been rolled out.
        admitting: makes of new pods what the API server would.
    """
    scene = scene or Scene(Profiles())
    existing = list(pods)
    known = [*known]
    world = storage_world([*known, *storage], nodes, existing, now)
    touched: set[str] = set()
    if admitting is not None:
        world.admit = admitting
    keeper = StorageKeeper(world)
    keeper.settle()  # a volume that nobody has looked at yet is there for claims by then
    scheduler = _Scheduler(nodes, scene)
    deciders = [*_within(touched), *keeper.deciders, (POD, scheduler.steps)]
    ended = True
    for wave in (changes, later):
        for change in wave:
            touched |= _enter(world, change)
        ended = run_deciders(world, deciders, _live) and ended
    messages = [*_unplaced(world, scheduler, touched), *_of_gateways(world, touched), *_of_admission(world, admitting)]
    if not ended:
        messages.append(Note("the rollout was not followed to its end: it has too many steps"))
    before = {objects.uid(pod): pod for pod in existing}
    order = [*_order(world, known)]
    messages += _overlap(order, len(nodes))
    coming = tuple(place for _, place in order)
    told = last_messages_of(world)
    services = _services(world, known, [each.object for each in changes])
    rest = (standing(world), told, services, tuple(_accounts(world)))
    return SimulatedRollout(_differences(world, before), coming, tuple(messages), *rest)


def _accounts(world: World) -> Iterable[JsonObject]:
    kind = SERVICE_ACCOUNT
    made = {objects.key(each.obj) for each in world.happened if (each.action, each.kind) == ("create", kind)}
    return (declared(kind, each) for each in world.all(kind) if objects.key(each) in made)


def _of_admission(world: World, admitting: Admitting | None) -> Iterable[Note]:
    workloads = (each for kind in _deciders() for each in world.all(kind))
    return admitting.notes(world, workloads) if admitting is not None else ()


def _services(world: World, known: Iterable[JsonObject], changed: Iterable[JsonObject]) -> dict[str, JsonObject | None]:
    before = {str(objects.key(each)): each for each in known if each.get("kind") == SERVICE.kind}
    after = {str(objects.key(each)): each for each in world.all(SERVICE)}
    # one that somebody would change, and controllers would revert, stands as before
    asked = {str(objects.key(each)) for each in changed if each.get("kind") == SERVICE.kind}
    return {key: after.get(key) for key in {**before, **after} if key in asked or before.get(key) != after.get(key)}


def _enter(world: World, change: Change) -> set[str]:
    """Put a changed workload into the world, or take it out with what it controls; return the uids it touches."""
    obj = change.object
    shown = known_kinds().by_api_version(str(obj.get("apiVersion")), str(obj.get("kind")))
    kind = workload_kind(obj)
    if kind is None or shown is None:
        return set()
    obj = to_storage(shown, obj)
    before = world.get(kind, objects.key(obj))
    if change.operation == "delete" or objects.is_deleting(obj):
        if before is not None:
            _remove(world, kind, before)
        return set()
    own: JsonObject = {"uid": placeholder_uid(objects.namespace(obj), f"{obj['kind']}/{objects.name(obj)}")}
    own["generation"] = 1
    if before is not None:
        own = {"uid": objects.uid(before), "generation": objects.generation(before)}
    status = objects.status(before or {})
    world.put(kind, _unhurried({**obj, "metadata": {**obj["metadata"], **own}, "status": status}))
    for below in world.controlled(REPLICA_SET, before or {}):
        world.put(REPLICA_SET, _unhurried(below))
    return {own["uid"]}


def _remove(world: World, kind: Kind, obj: JsonObject) -> None:
    """Take an object out, and all that it controls, as the garbage collector does."""
    world.remove(kind, obj)
    for below in (*_deciders(), SERVICE, POD):
        for each in world.controlled(below, obj):
            if below == POD:
                world.gone(POD, each)
            _remove(world, below, each)


def _within(touched: set[str]) -> Iterable[tuple[Kind, Any]]:
    """Return the deciders, silent for what is not touched; what a touched object controls is touched, too."""

    def only(kind: Kind, decide: Decider) -> Decider:
        def steps(world: World, obj: JsonObject) -> Iterable[Step]:
            if (objects.controller_of(obj) or {}).get("uid") in touched:
                touched.add(objects.uid(obj))
            if objects.uid(obj) in touched:
                return decide(world, obj)
            if kind not in GATEWAY_DECIDERS:
                return ()
            # its class or its parts may be what changes; where they do not, there is nothing to do
            found = decide(world, obj)
            touched.update([objects.uid(obj)] if found else [])
            return found

        return steps

    return [(kind, only(kind, decide)) for kind, decide in _deciders().items()]


def _of_gateways(world: World, touched: set[str]) -> Iterable[Note]:
    """Say which objects controllers would make of Gateways, and which they would not, as somebody else has the name."""
    for gateway in world.all(GATEWAY_KINDS.gateways):
        if objects.uid(gateway) not in touched:
            continue
        space, name = objects.key(gateway)
        said, own = f"Gateway {space}/{name}:", of(GATEWAY_KINDS.gateways, space, name)
        made = [
            each
            for each in world.happened
            if each.kind in PARTS and (objects.controller_of(each.obj) or {}).get("uid") == objects.uid(gateway)
        ]
        for action in ("create", "delete"):
            kinds = [each.kind for each in made if each.action == action]
            if kinds:
                parts = name_of_parts(name)
                text = f"{said} the controllers would {action} {_listed(each.kind for each in kinds)} {parts}"
                yield Note(text, (own, *(of(kind, space, parts) for kind in kinds)))
        messages = {each.message for each in world.events if objects.uid(each.obj) == objects.uid(gateway)}
        yield from (Note(f"{said} {text}", (own,)) for text in sorted(messages))


def _listed(words: Iterable[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


class _Scheduler:
    """Binds pods that were made; asks for one again only when something has come or gone, or what claims it has.

    A pod that waits for its claims counts on the node that was chosen for it, as the scheduler assumes it there.
    """

    def __init__(self, nodes: Sequence[JsonObject], scene: Scene) -> None:
        self._nodes = nodes
        self._scene = scene
        self._tried: set[tuple[str, int, int]] = set()
        self._assumed: dict[str, JsonObject] = {}

    def steps(self, world: World, pod: JsonObject) -> Iterable[Step]:
        """Return the binding of a pod, if there is a node for it."""
        if objects.spec(pod).get("nodeName") or objects.status(pod):
            return []
        claimed = sum(world.writes[kind] for kind in STORAGE_KINDS) if PodInfo.of(pod).claims else 0
        tried = (objects.uid(pod), len(world.happened), claimed)
        if tried in self._tried:
            return []
        self._tried.add(tried)
        assumed = self._assumed.get(objects.uid(pod))
        if assumed is not None and has_its_claims(world, pod):
            return [Patch(POD, pod, {"spec": {"nodeName": objects.spec(assumed)["nodeName"]}})]
        decision = self.decision(pod, world)
        if not decision.node:
            return []
        self._assumed[objects.uid(pod)] = {**pod, "spec": {**objects.spec(pod), "nodeName": decision.node}}
        return scheduled(world, pod, decision)

    def decision(self, pod: JsonObject, world: World) -> Decision:
        """Return where a pod of the world goes; of what it is spread by, only Services are outside of the world."""
        others = [one for one in world.all(POD) if objects.uid(one) != objects.uid(pod)]
        placed = [one if objects.spec(one).get("nodeName") else self._assumed.get(objects.uid(one)) for one in others]
        services = [one for one in self._scene.workloads if one.get("kind") == SERVICE.kind]
        own = [{**one, "kind": kind.kind} for kind in SPREAD_BY if kind != SERVICE for one in world.all(kind)]
        seen = with_storage(self._scene._replace(workloads=(*services, *own)), pod, world)
        snapshot = seen.snapshot(pod, self._nodes, [one for one in placed if one is not None])
        return self._scene.profiles.decide(pod, snapshot)


def _live(world: World) -> bool:
    """Let pods that have a node be ready, which ends a turn; return whether there were any."""
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": rfc3339(world.now)}
    lived = False
    for happened in world.happened:
        pod = world.get(POD, objects.key(happened.obj))
        if happened.action != "create" or happened.kind != POD or pod is None or is_ready(pod):
            continue
        if objects.spec(pod).get("nodeName"):
            world.put(POD, {**pod, "status": {"phase": "Running", "conditions": [ready]}})
            lived = True
    world.turn += lived
    return lived


def _unhurried(obj: JsonObject) -> JsonObject:
    """Return a workload for which ready pods are available: between two turns there is time enough."""
    spec = {field: value for field, value in objects.spec(obj).items() if field != "minReadySeconds"}
    return {**obj, "spec": spec}


def _unplaced(world: World, scheduler: _Scheduler, touched: set[str]) -> Iterable[Note]:
    for pod in world.all(POD):
        owner = objects.controller_of(pod) or {}
        if owner.get("uid") in touched and not objects.spec(pod).get("nodeName"):
            decision = scheduler.decision(pod, world)
            reason = decision.message or awaited(world, pod, decision)
            further = f"{owner.get('kind')} {owner.get('name')} would get no further"
            yield Note(f"Pod {objects.key(pod)}: {reason}; {further}", of_pod(pod))


def _differences(world: World, before: Mapping[str, JsonObject]) -> dict[str, JsonObject | None]:
    after = {objects.uid(pod): pod for pod in world.all(POD)}
    gone: dict[str, JsonObject | None] = {uid: None for uid in before if uid not in after}
    made: dict[str, JsonObject | None] = {
        uid: {**pod, "status": {}}
        for uid, pod in after.items()
        if uid not in before and objects.spec(pod).get("nodeName")
    }
    return {**gone, **made}


def _overlap(order: Sequence[tuple[About, JsonObject]], nodes: int) -> Iterable[Note]:
    """Say what is not predicted of pods of several workloads: their order, and so who gets which node."""
    several = dict.fromkeys(workload for workload, _ in order)
    if len(several) < _SEVERAL:
        return
    named = [f"{one.kind} {one.namespace}/{one.name}" for one in several]
    more = f" and {len(named) - _NAMED} more" if named[_NAMED:] else ""
    text = f"the order between {', '.join(named[:_NAMED])}{more} is not predicted: each takes its own turns"
    placed = {workload for workload, place in order if place["action"] == "create"}
    if nodes > 1 and len([one for one in placed if one.kind != DAEMON_SET.kind]) >= _SEVERAL:
        text += "; which of them comes first may change which nodes their pods get"
    yield Note(text, tuple(several))


def _workload(pod: JsonObject, parents: Mapping[str, JsonObject]) -> About:
    """Return what makes a pod in the end: of a ReplicaSet its Deployment."""
    owner = [{}, *controllers_of(pod, parents)][-1]
    versions = str(owner.get("apiVersion") or "")
    return About(versions, str(owner.get("kind") or ""), objects.namespace(pod), str(owner.get("name") or ""))


def _order(world: World, known: Iterable[JsonObject]) -> Iterable[tuple[About, JsonObject]]:
    made = [each.obj for each in world.happened if each.kind != POD]
    parents = {objects.uid(each): each for each in (*known, *made)}
    bound = {objects.uid(each.obj): each.obj for each in world.happened if objects.spec(each.obj).get("nodeName")}
    for happened in world.happened:
        if happened.kind == POD:
            # a pod that goes may have a successor of its name, and one that comes may go again
            later = world.get(POD, objects.key(happened.obj)) if happened.action == "create" else None
            pod = later or bound.get(objects.uid(happened.obj)) or happened.obj
            owner, workload = objects.controller_of(pod) or {}, _workload(pod, parents)
            yield (
                workload,
                {
                    "action": happened.action,
                    "pod": str(objects.key(pod)),
                    "node": str(objects.spec(pod).get("nodeName") or ""),
                    "owner": f"{owner.get('kind', '')}/{owner.get('name', '')}",
                    "turn": happened.turn,
                    "workload": f"{workload.kind}/{workload.name}",
                    **({} if happened.named else {"nameUnknown": True}),
                    "about": rows(of_pod(pod)),
                },
            )
