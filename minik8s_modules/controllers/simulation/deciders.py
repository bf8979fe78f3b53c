"""The deciders by kind, over an imagined world: what ``plan`` unrolls. A new controller is a line in ``DECIDERS``."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping

from minik8s_modules.api import objects
from minik8s_modules.api.defaulting.defaults import apply_defaults
from minik8s_modules.api.defaulting.defaults_workloads import generate_job_selector
from minik8s_modules.api.kinds import (
    CONTROLLER_REVISION,
    CRON_JOB,
    DAEMON_SET,
    DEPLOYMENT,
    JOB,
    LEGACY_JOB,
    NODE,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    REPLICA_SET,
    REPLICATION_CONTROLLER,
    ROLLING_UPDATE,
    SERVICE,
    STATEFUL_SET,
    STORAGE_CLASS,
    Kind,
)
from minik8s_modules.api.lifecycle.service_strategy import prepare_service_update
from minik8s_modules.api.merging import server_side_apply
from minik8s_modules.api.merging.apply import difference
from minik8s_modules.api.merging.managed_fields import plain
from minik8s_modules.api.network.gateway_api import GATEWAY_KINDS, name_of_parts
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.api.pods.pod_claims import claims_of
from minik8s_modules.api.storage import claims
from minik8s_modules.controllers.batch.cronjobs import decide_cron_job
from minik8s_modules.controllers.batch.jobs import decide_job
from minik8s_modules.controllers.batch.original_jobs import decide_original_job
from minik8s_modules.controllers.core.steps import Create, Delete, Patch, RecordEvent, Step
from minik8s_modules.controllers.network.gateways import (
    MANAGER,
    PARTS,
    Apply,
    Clear,
    Remove,
    Taken,
    decide_gateway,
    event_of,
)
from minik8s_modules.controllers.simulation.simulated_cluster import Decider, World
from minik8s_modules.controllers.storage.claims import Around, decide_claim
from minik8s_modules.controllers.storage.ephemeral import decide_ephemeral
from minik8s_modules.controllers.storage.provisioning import addresses, original_name
from minik8s_modules.controllers.storage.volumes import decide_volume
from minik8s_modules.controllers.workloads.daemonsets import decide_daemon_set
from minik8s_modules.controllers.workloads.deployments import decide_deployment
from minik8s_modules.controllers.workloads.replicasets import decide_replica_set
from minik8s_modules.controllers.workloads.rollingupdates import ObservedWorkload, decide_rolling_update
from minik8s_modules.controllers.workloads.statefulsets import decide_stateful_set
from minik8s_modules.runtime.informers import by_claim


def deployment_steps(world: World, deployment: JsonObject) -> list[Step]:
    """Return the steps of a deployment of the world."""
    sets = world.found(REPLICA_SET, deployment)
    pods = {objects.uid(each): world.controlled(POD, each) for each in sets}
    return decide_deployment(deployment, sets, pods, world.now)


def replica_set_steps(world: World, replica_set: JsonObject) -> list[Step]:
    """Return the steps of a replica set of the world."""
    controller = (objects.controller_of(replica_set) or {}).get("uid")
    siblings = [replica_set]
    if controller:
        siblings = world.controlled_by(REPLICA_SET, str(controller))
    related = [pod for each in siblings for pod in world.controlled(POD, each)]
    return decide_replica_set(replica_set, world.found(POD, replica_set), related, world.now)


def replication_controller_steps(world: World, controller: JsonObject) -> list[Step]:
    """Return the steps of a replication controller of the world."""
    found, own = world.found(POD, controller), world.controlled(POD, controller)
    return decide_replica_set(controller, found, own, world.now, kind=REPLICATION_CONTROLLER)


def job_steps(world: World, job: JsonObject) -> list[Step]:
    """Return the steps of a job of the world; one that a cron job has made there lacks what the API fills in."""
    if "selector" not in objects.spec(job):
        job = copy.deepcopy(job)
        apply_defaults(JOB, job)
        generate_job_selector(job)
    return decide_job(job, world.found(POD, job), world.now)


def original_job_steps(world: World, job: JsonObject) -> list[Step]:
    """Return the steps of a job of the original in the world."""
    return decide_original_job(job, world.controlled(POD, job))


def cron_job_steps(world: World, cron_job: JsonObject) -> list[Step]:
    """Return the steps of a cron job of the world."""
    return decide_cron_job(cron_job, world.controlled(JOB, cron_job), world.now)


def daemon_set_steps(world: World, daemon_set: JsonObject) -> list[Step]:
    """Return the steps of a daemon set of the world."""
    revisions = world.found(CONTROLLER_REVISION, daemon_set)
    nodes = sorted(world.all(NODE), key=objects.name)
    return decide_daemon_set(daemon_set, world.found(POD, daemon_set), revisions, nodes, world.now)


def stateful_set_steps(world: World, stateful_set: JsonObject) -> list[Step]:
    """Return the steps of a stateful set of the world."""
    space = objects.namespace(stateful_set)
    found = {objects.name(c): c for c in world.all(PERSISTENT_VOLUME_CLAIM) if objects.namespace(c) == space}
    revisions = world.found(CONTROLLER_REVISION, stateful_set)
    return decide_stateful_set(stateful_set, world.found(POD, stateful_set), revisions, found, world.now)


def rolling_update_steps(world: World, update: JsonObject) -> list[Step]:
    """Return the steps of a rolling update of the world, whose sidecars answer at once and where nobody waits."""
    space = objects.namespace(update)
    pods = {objects.name(pod): pod for pod in world.all(POD) if objects.namespace(pod) == space}
    spec = {**objects.spec(update), "interval": 0}
    acknowledged = {**update, "spec": spec, "status": {**objects.status(update), "acknowledged": [*pods]}}
    service = world.get(SERVICE, Key(space, spec["serviceRef"]))
    rivals = [each for each in world.all(ROLLING_UPDATE) if objects.namespace(each) == space]
    return decide_rolling_update(acknowledged, ObservedWorkload(service, pods, rivals), world.now)


def claim_steps(world: World, claim: JsonObject) -> list[Step]:
    """Return the steps of a claim of the world."""
    name = str(objects.spec(claim).get("volumeName") or "")
    around = Around(
        named=world.get(PERSISTENT_VOLUME, Key("", name)),
        volumes=world.all(PERSISTENT_VOLUME),
        storage_class=world.get(STORAGE_CLASS, Key("", claims.class_of(claim))),
        default=claims.default_class(world.all(STORAGE_CLASS)),
        node=world.get(NODE, Key("", objects.annotations(claim).get(claims.SELECTED_NODE, ""))),
        pods=[pod for pod in world.all(POD) if str(objects.key(claim)) in by_claim(pod)],
        namesake=world.get(PERSISTENT_VOLUME, Key("", original_name(claim))),
        machines=addresses(world.all(NODE)),
    )
    return decide_claim(claim, around)


def volume_steps(world: World, volume: JsonObject) -> list[Step]:
    """Return the steps of a volume of the world."""
    held = claims.holder(volume)
    claim = world.get(PERSISTENT_VOLUME_CLAIM, held.key) if held is not None else None
    return decide_volume(volume, claim, world.get(STORAGE_CLASS, Key("", claims.class_of(volume))))


def ephemeral_steps(world: World, pod: JsonObject) -> list[Step]:
    """Return the steps that make the claims of a pod's ephemeral volumes."""
    space, names = objects.namespace(pod), [*claims_of(pod)]
    found = {name: world.get(PERSISTENT_VOLUME_CLAIM, Key(space, name)) for name in names}
    return decide_ephemeral(pod, {name: claim for name, claim in found.items() if claim is not None})


def gateway_steps(world: World, gateway: JsonObject) -> list[Step]:
    """Return the steps that make what a Gateway of the world runs as; its Service has no address yet."""
    key = Key(objects.namespace(gateway), name_of_parts(objects.name(gateway)))
    gateway_class = world.get(GATEWAY_KINDS.classes, Key("", objects.spec(gateway)["gatewayClassName"]))
    steps = decide_gateway(gateway, gateway_class, {kind: world.get(kind, key) for kind in PARTS})
    return [step for each in steps for step in _of_part(world, gateway, each)]


def _of_part(world: World, gateway: JsonObject, step: Apply | Clear | Remove | Taken) -> Iterator[Step]:
    if (told := event_of(step)) is not None:
        yield RecordEvent(gateway, *told)
    if isinstance(step, Taken):
        return
    if isinstance(step, Clear):
        yield Patch(step.kind, step.obj, step.body)
    elif isinstance(step, Remove):
        yield Delete(step.kind, step.obj)
    elif (old := world.get(step.kind, objects.key(step.obj))) is None:
        made = copy.deepcopy(step.obj)
        apply_defaults(step.kind, made)
        yield Create(step.kind, made)
    else:
        before = plain(old)
        applier = server_side_apply.Applier(MANAGER, force=True)
        new = plain(server_side_apply.apply(step.kind, copy.deepcopy(old), copy.deepcopy(step.obj), applier, world.now))
        if step.kind == SERVICE:
            prepare_service_update(new["spec"], before["spec"])
        apply_defaults(step.kind, new)
        yield Patch(step.kind, old, difference(before, new))


STORAGE_DECIDERS: Mapping[Kind, Decider] = {
    POD: ephemeral_steps,
    PERSISTENT_VOLUME_CLAIM: claim_steps,
    PERSISTENT_VOLUME: volume_steps,
}

DECIDERS: Mapping[Kind, Decider] = {
    DEPLOYMENT: deployment_steps,
    REPLICA_SET: replica_set_steps,
    REPLICATION_CONTROLLER: replication_controller_steps,
    CRON_JOB: cron_job_steps,
    JOB: job_steps,
    LEGACY_JOB: original_job_steps,
    DAEMON_SET: daemon_set_steps,
    STATEFUL_SET: stateful_set_steps,
    ROLLING_UPDATE: rolling_update_steps,
}

GATEWAY_DECIDERS: Mapping[Kind, Decider] = {GATEWAY_KINDS.gateways: gateway_steps}
"""Of kinds that are there once somebody has defined them."""

# what the deciders look at besides the kinds they are for, pods, nodes and storage
LOOKED_AT = (CONTROLLER_REVISION, SERVICE)
