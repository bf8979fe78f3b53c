"""What a node should be: kubelet's syncPod as a pure function of objects and observations.

``decide_pod`` says what one pod wants *now*; waiting for anything (an image, an init container, a grace
period, a probe, a back-off) is a state in which it wants less or the same, and the next observation, result or
``wake_at`` leads on. ``assemble`` puts the pods of a node together. Sandboxes: ``sandboxes.py``; containers:
``containers.py``; their end: ``stopping.py``; probes and hooks: ``probes.py``; what is carried out: ``loop.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import parse_rfc3339
from minik8s_modules.module_utils.minik8s.core.sections import SECTIONS
from minik8s_modules.module_utils.minik8s.entries.secrets import SecretEntry
from minik8s_modules.reconcile.network.networks import network_entries
from minik8s_modules.reconcile.pods.container_entries import failed_mount_event, kept
from minik8s_modules.reconcile.pods.containers import decide_container
from minik8s_modules.reconcile.pods.node_admission import unfit
from minik8s_modules.reconcile.pods.observed import ObservedPod
from minik8s_modules.reconcile.pods.pod_context import (
    CREATING,
    EPHEMERAL,
    SIDECAR,
    ContainerDecision,
    PodContext,
    kinds,
)
from minik8s_modules.reconcile.pods.resizing import AGAIN_S, Resizing, decide_resizing
from minik8s_modules.reconcile.pods.sandboxes import Sandbox, decide_sandbox, sandbox_entry
from minik8s_modules.reconcile.pods.security import Refusal, refusal
from minik8s_modules.reconcile.pods.sidecars import sidecar_entry
from minik8s_modules.reconcile.pods.stopping import stop_all, stop_or_keep
from minik8s_modules.reconcile.storage.pull_secrets import missing_event
from minik8s_modules.reconcile.storage.volumes import Volumes, volumes
from minik8s_modules.reconcile.values.sealing import secret_entry, values_of
from minik8s_modules.reconcile.values.values import (
    NOTHING_NAMED,
    Entries,
    Entry,
    Named,
    NodeDocument,
    PodDecision,
    PodEvent,
    PodInputs,
    Sealed,
    Settings,
    Waiting,
)

Steps = Mapping[str, ContainerDecision]
INITIALIZING = Waiting("PodInitializing")
TERMINAL = frozenset({"Succeeded", "Failed"})
_TOO_LONG = "Pod was active on the node longer than the specified deadline"
DEADLINE = PodEvent("Normal", "DeadlineExceeded", _TOO_LONG, "deadline")


def decide_pod(pod: JsonObject, seen: ObservedPod, inputs: PodInputs, now: datetime) -> PodDecision:
    """Return what the pod, bound to this node, wants now; see ``PodDecision``."""
    if objects.is_deleting(pod):
        return _decide_deleted(pod, seen, inputs, now)
    if (phase := str(objects.status(pod).get("phase") or "")) in TERMINAL:
        return _over(PodContext(pod, seen, inputs, now), phase)
    if seen.empty and (refused := _refusal(pod, inputs)):
        return _refused(refused)
    end = _deadline_of(pod)
    if end is not None and now >= end:
        return _over(PodContext(pod, seen, inputs, now), "Failed", DEADLINE)
    decision = _decide_wanted(pod, seen, inputs, now)
    moments = [moment for moment in (decision.wake_at, end) if moment is not None]
    return decision._replace(wake_at=min(moments, default=None))


def _deadline_of(pod: JsonObject) -> datetime | None:
    """Return when ``activeDeadlineSeconds`` are over, None without them or before the start (active_deadline.go)."""
    seconds, began = objects.spec(pod).get("activeDeadlineSeconds"), objects.status(pod).get("startTime")
    if seconds is None or not began:
        return None
    return parse_rfc3339(str(began)) + timedelta(seconds=int(seconds))


def address_comes_first(pod: JsonObject, seen: ObservedPod, inputs: PodInputs, now: datetime) -> bool:
    """Return whether a pod whose tokens are still asked for wants an address meanwhile: two writes go side by side."""
    over = objects.is_deleting(pod) or objects.status(pod).get("phase") in TERMINAL
    if over or not seen.empty or inputs.address_error or _refusal(pod, inputs):
        return False
    return decide_sandbox(pod, seen, inputs, now).address_wanted


def _refusal(pod: JsonObject, inputs: PodInputs) -> Refusal | None:
    """Return why the node does not take the pod."""
    return refusal(pod) or (None if inputs.beside is None else unfit(pod, inputs.node, inputs.beside))


def _refused(why: Refusal) -> PodDecision:
    """Return the decision of a pod that the node does not take; it is Failed and will not be tried again."""
    event = PodEvent("Warning", why.reason, why.message, f"refused/{why.reason}")
    message = f"Pod was rejected: {why.message}"  # kubelet's rejectPod
    return PodDecision({}, phase="Failed", reason=why.reason, message=message, events=(event,))


def _decide_deleted(pod: JsonObject, seen: ObservedPod, inputs: PodInputs, now: datetime) -> PodDecision:
    grace_s = objects.dig(pod, "metadata", "deletionGracePeriodSeconds")
    if (grace_s is None or grace_s > 0) and _any_alive(seen):
        return _stopping(PodContext(pod, seen, inputs, now))
    return PodDecision({}, address_released=seen.empty, gone=seen.empty, phase=_ended_phase(pod))


def _ended_phase(pod: JsonObject) -> str:
    phase = str(objects.status(pod).get("phase") or "")
    return phase if phase in TERMINAL else ""


def _any_alive(seen: ObservedPod) -> bool:
    return any(one.alive for one in seen.attempts())


def _stopping(context: PodContext) -> PodDecision:
    """Stop every live container within the grace period; what they use stays until they are gone."""
    pod, seen, inputs = context.pod, context.seen, context.inputs
    current = seen.sandbox
    context = context._replace(sandbox_attempt=current.attempt if current else 0)
    steps = stop_all(context)
    sandbox = Sandbox(sandbox_entry(pod, current.attempt, seen, inputs) if current else None)
    return _decision(context, sandbox, steps, volumes(pod, inputs))


def _over(context: PodContext, phase: str, why: PodEvent | None = None) -> PodDecision:
    """Keep the ended containers of a pod that is over, for their logs; its sandbox and volumes go.

    The pod is told to be over only when none of its containers lives (``why``: what ended it from outside).
    """
    recorded = str(objects.status(context.pod).get("phase") or "") in TERMINAL
    if _any_alive(context.seen):
        decision = _stopping(context)
        decision = decision._replace(phase=phase if recorded else "", events=(*_as_events(why), *decision.events))
    else:
        steps = {one["name"]: ContainerDecision(kept(context, one, kind)) for kind, one in kinds(context.pod)}
        decision = _decision(context, Sandbox(None), steps, Volumes({}, frozenset(), {}))
        decision = decision._replace(phase=phase, address_released=not context.seen.sandboxes, events=_as_events(why))
    return decision._replace(reason=why.reason, message=why.message) if why and decision.phase else decision


def _as_events(event: PodEvent | None) -> tuple[PodEvent, ...]:
    return (event,) if event else ()


def _decide_wanted(pod: JsonObject, seen: ObservedPod, inputs: PodInputs, now: datetime) -> PodDecision:
    made = volumes(pod, inputs)
    if made.errors and seen.empty:
        return _without_volumes(pod, made)
    resizing = decide_resizing(pod, seen, inputs)
    sandbox = decide_sandbox(resizing.roomy, seen, inputs, now)
    pod = resizing.pod
    context = PodContext(pod, seen, inputs, now, sandbox.attempt, sandbox.usable, sandbox.since, resizing.restarting)
    steps = _steps(context)
    if phase := _phase(pod, steps):
        return _over(context, phase)
    if sandbox.entry is None and not _any_alive(seen):
        made = Volumes({}, frozenset(), {})
    return _with_resizing(_decision(context, sandbox, steps, made), resizing, now)


def _with_resizing(decision: PodDecision, resizing: Resizing, now: datetime) -> PodDecision:
    """Return the decision with what it says of the pod's resources; one that is not done is looked at again."""
    again = now + timedelta(seconds=AGAIN_S) if resizing.conditions else None
    moments = [moment for moment in (decision.wake_at, again) if moment is not None]
    return decision._replace(
        resources=resizing.resources, resizes=resizing.conditions, wake_at=min(moments, default=None)
    )


def _without_volumes(pod: JsonObject, made: Volumes) -> PodDecision:
    events = tuple(failed_mount_event(text) for text in made.errors.values())
    creating = CREATING._replace(message="; ".join(made.errors.values()))
    waiting = {
        one["name"]: INITIALIZING if kind == "app" and objects.init_containers(pod) else creating
        for kind, one in kinds(pod)
    }
    return PodDecision({}, events=events, waiting=waiting)


def _steps(context: PodContext) -> dict[str, ContainerDecision]:
    """Return each container's step: init containers one after the other, then the others together."""
    pod, seen = context.pod, context.seen
    apps = objects.containers(pod)
    started = any((last := seen.last(one["name"])) is not None and context.fresh(last) for one in apps)
    steps: dict[str, ContainerDecision] = {}
    blocked = False
    for container in objects.init_containers(pod):
        kind = SIDECAR if container.get("restartPolicy") == "Always" else "init"
        if started and kind == "init":
            steps[container["name"]] = ContainerDecision(kept(context, container, kind), finished=True)
            continue
        decide = _held if blocked else decide_container
        step = steps[container["name"]] = decide(context, container, kind)
        blocked = blocked or (not started and not _lets_go_on(step, kind))
    for container in apps:
        decide = _held if blocked else decide_container
        steps[container["name"]] = decide(context, container, "app")
    for container in objects.spec(pod).get("ephemeralContainers") or []:
        # whatever else waits: they are there to find out why
        steps[container["name"]] = decide_container(context, container, EPHEMERAL)
    return steps


def _lets_go_on(step: ContainerDecision, kind: str) -> bool:
    """Return whether what comes after an init container may start: it ended well, or is a sidecar that has started."""
    return step.health.started if kind == SIDECAR else step.finished and step.exit_code == 0


def _held(context: PodContext, container: JsonObject, kind: str) -> ContainerDecision:
    """Return the step of a container that waits for init containers; one that was let go before goes on."""
    last = context.seen.last(container["name"])
    if kind != "app" and last is not None and last.alive and context.fresh(last):
        return decide_container(context, container, kind)
    return stop_or_keep(context, container, kind)._replace(waiting=INITIALIZING)


def _phase(pod: JsonObject, steps: Steps) -> str:
    """Return Succeeded or Failed when no container of the pod will run again, else ""; sidecars do not count."""
    inits = [steps[one["name"]] for one in objects.init_containers(pod) if one.get("restartPolicy") != "Always"]
    if any(step.finished and step.exit_code for step in inits):
        return "Failed"
    apps = [steps[one["name"]] for one in objects.containers(pod)]
    if not apps or not all(step.finished for step in inits + apps):
        return ""
    return "Failed" if any(step.exit_code for step in apps) else "Succeeded"


def _decision(context: PodContext, sandbox: Sandbox, steps: Steps, made: Volumes) -> PodDecision:
    pod, uid = context.pod, objects.uid(context.pod)
    sealed = Sealed({key: values for step in steps.values() for key, values in step.sealed.items()} | made.sealed)
    references = made.references.union(*(step.references for step in steps.values()))
    moments = [moment for moment in (sandbox.wake_at, *(step.wake_at for step in steps.values())) if moment]
    rules = sidecar_entry(pod, sandbox.entry["attempt"], context.inputs) if sandbox.entry else None
    return PodDecision(
        entries={
            "secrets": _secret_entries(references, sealed, context.inputs),
            "volumes": {f"{uid}/{name}": entry for name, entry in made.entries.items()},
            "sandboxes": {uid: sandbox.entry} if sandbox.entry else {},
            "sidecars": {uid: rules} if rules else {},
            "containers": {f"{uid}/{name}": step.entry for name, step in steps.items() if step.entry},
        },
        secrets=references,
        sealed=sealed,
        pulls=frozenset(image for image in (sandbox.pull, *(step.pull for step in steps.values())) if image),
        wake_at=min(moments, default=None),
        address_wanted=sandbox.address_wanted,
        waiting={name: _explained(step.waiting, sandbox) for name, step in steps.items() if step.waiting},
        events=_events(pod, sandbox, steps, made) + _about_pulls(context, steps),
        checks=tuple(check for step in steps.values() for check in step.checks),
        health={name: step.health for name, step in steps.items()},
    )


def _explained(waiting: Waiting, sandbox: Sandbox) -> Waiting:
    return waiting._replace(message=sandbox.message) if waiting == CREATING else waiting


def _about_pulls(context: PodContext, steps: Steps) -> tuple[PodEvent, ...]:
    if not any(step.pull for step in steps.values()):
        return ()
    return missing_event(context.pod, context.inputs.secrets)


def _events(pod: JsonObject, sandbox: Sandbox, steps: Steps, made: Volumes) -> tuple[PodEvent, ...]:
    mounts = (failed_mount_event(text) for text in ({} if objects.is_deleting(pod) else made.errors).values())
    return (*sandbox.events, *mounts, *(event for step in steps.values() for event in step.events))


def _secret_entries(references: frozenset[str], sealed: Sealed, inputs: PodInputs) -> dict[str, SecretEntry]:
    key = inputs.settings.hmac_key
    known = {one: values_of(inputs.secrets[one]) for one in references if one in inputs.secrets}
    return {one: secret_entry(key, one, values) for one, values in sorted((known | sealed).items())}


def assemble(
    node: JsonObject,
    decisions: Iterable[PodDecision],
    settings: Settings,
    services: Entries | None = None,
    named: Named = NOTHING_NAMED,
    policies: Entries | None = None,
) -> NodeDocument:
    """Return the document of a node whose pods want ``decisions``; whole sections are kept as they are."""
    document: dict[str, dict[str, Entry]] = {section: {} for section in SECTIONS}
    document["network"].update(network_entries(node, settings, named.machines))
    for decision in (*decisions, named.certificates):
        for section, entries in decision.entries.items():
            document[section].update(entries)
    whole = {"policies": policies or {}, "services": services or {}, "dns": named.dns, "ingress": named.ingress}
    return {**document, **whole, "folders": named.folders.get(objects.name(node), {})}
