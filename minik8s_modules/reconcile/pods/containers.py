"""One container of a pod: which attempt should exist and run, from what was observed of it alone.

An attempt's number and the pauses between attempts are read from the containers themselves, so a reconciler
that lost its memory decides the same. A container that ended is left alone until its back-off is over, then
the next attempt is declared. Containers created before the pod's current sandbox belong to an earlier one:
alive they are stopped, dead they are followed by a new attempt without back-off. Source:
pkg/kubelet/kuberuntime/kuberuntime_manager.go (computePodActions, doBackOff).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.backoff import CONTAINER_RESTART
from minik8s_modules.base.clock import parse_rfc3339
from minik8s_modules.reconcile.pods.container_entries import creating, declare, errors, kept
from minik8s_modules.reconcile.pods.observed import ObservedContainer
from minik8s_modules.reconcile.pods.pod_context import (
    CREATING,
    EPHEMERAL,
    SIDECAR,
    ContainerDecision,
    PodContext,
    recorded_status,
)
from minik8s_modules.reconcile.pods.probes import Verdict, examine
from minik8s_modules.reconcile.pods.sandboxes import RESET_AFTER_S
from minik8s_modules.reconcile.pods.service_links import takes_in_links
from minik8s_modules.reconcile.pods.stopping import stop, watched
from minik8s_modules.reconcile.storage.claims import takes_claims
from minik8s_modules.reconcile.values.images import decide_image
from minik8s_modules.reconcile.values.values import PodEvent, Waiting

START_ERROR = 128
"""Exit code of a container that could not be started (kubelet's StartError)."""


def decide_container(context: PodContext, container: JsonObject, kind: str) -> ContainerDecision:
    """Return what the container (``kind`` app or init) wants now."""
    last = context.seen.last(container["name"])
    if last is None or (last.over and context.fresh(last) and _later_attempt_is_gone(context, container, last)):
        return _unseen(context, container, kind)
    if last.alive:
        return _alive(context, container, kind, last)
    if not last.over and context.fresh(last):
        return declare(context, container, kind, last.attempt)
    return _ended(context, container, kind, last)


def _later_attempt_is_gone(context: PodContext, container: JsonObject, last: ObservedContainer) -> bool:
    """Return whether the API has seen a later attempt run: ``last`` is over, and so is the pause after it.

    The later one was removed behind our back. How long that pause should be can no longer be told from containers, for
    the one before ``last`` went when the later one was made.
    """
    recorded = recorded_status(context.pod, container["name"])
    return bool(recorded.get("containerID")) and int(recorded.get("restartCount") or 0) > last.attempt


def _unseen(context: PodContext, container: JsonObject, kind: str) -> ContainerDecision:
    """Decide about a container whose newest attempt does not exist: never made, or removed behind our back."""
    recorded = recorded_status(context.pod, container["name"])
    ended = objects.dig(recorded, "state", "terminated")
    if kind == EPHEMERAL and recorded.get("containerID"):
        return ContainerDecision(finished=True)
    if ended and not _restarts(context.pod, kind, int(ended.get("exitCode") or 0)):
        return ContainerDecision(finished=True, exit_code=int(ended.get("exitCode") or 0))
    attempt = int(recorded.get("restartCount") or 0) + 1 if recorded.get("containerID") else 0
    needed_since = parse_rfc3339(objects.dig(context.pod, "metadata", "creationTimestamp") or _EPOCH)
    return _start(context, container, kind, attempt, needed_since)


_EPOCH = "1970-01-01T00:00:00Z"


def _alive(context: PodContext, container: JsonObject, kind: str, last: ObservedContainer) -> ContainerDecision:
    name = container["name"]
    if not context.fresh(last):
        return stop(context, container, kind, f"Stopping container {name}")
    if last.image != container["image"] and not last.image.startswith("sha256:"):
        text = f"Container {name} definition changed, will be restarted"
        return watched(context, container, stop(context, container, kind, text))  # until it ends it is what it was
    if name in context.restarting:
        text = f"Container {name} resize requires restart"
        return watched(context, container, stop(context, container, kind, text))
    verdict = examine(context, container, last)
    if verdict.kill:
        return _condemned(context, container, kind, verdict)
    if _configured_from_objects(container) or takes_claims(context.pod, container):
        # the node compares what is declared with what runs; a changed ConfigMap, label or claim must not replace it
        step = _untouched(context, container, kind, last.attempt)
    else:
        step = declare(context, container, kind, last.attempt, made=True)
    waiting = CREATING if verdict.health.held else None
    return step._replace(waiting=waiting, events=verdict.events, checks=verdict.checks, health=verdict.health)


def _condemned(context: PodContext, container: JsonObject, kind: str, verdict: Verdict) -> ContainerDecision:
    """Return the step that ends a container for what its probes or its hook said."""
    text = f"Container {container['name']} {verdict.kill}"
    if verdict.kill.startswith("failed ") and _restarts(context.pod, kind, START_ERROR):
        text += ", will be restarted"
    step = stop(context, container, kind, text, verdict.grace_s)
    waiting = CREATING if verdict.health.held else None
    return step._replace(
        events=verdict.events + step.events, checks=verdict.checks + step.checks, health=verdict.health, waiting=waiting
    )


def _untouched(context: PodContext, container: JsonObject, kind: str, attempt: int) -> ContainerDecision:
    """Return the step that leaves an attempt as it is, with the secrets it was made from."""
    step = declare(context, container, kind, attempt)
    return step._replace(entry=kept(context, container, kind), waiting=None, events=())


def _configured_from_objects(container: JsonObject) -> bool:
    sources = [variable.get("valueFrom") or {} for variable in container.get("env") or []]
    return bool(container.get("envFrom") or takes_in_links(container)) or any(
        source.get("configMapKeyRef")
        or source.get("secretKeyRef")
        or source.get("resourceFieldRef")
        or "['" in str(objects.dig(source, "fieldRef", "fieldPath"))
        for source in sources
    )


def _ended(context: PodContext, container: JsonObject, kind: str, last: ObservedContainer) -> ContainerDecision:
    exit_code = exit_code_of(last)
    fresh = context.fresh(last)
    # an init container of an earlier sandbox runs again, whatever came of it
    rerun = kind == "init" and not fresh and objects.spec(context.pod).get("restartPolicy") != "Never"
    resized = container["name"] in context.restarting
    if last.over and not rerun and not resized and not _restarts(context.pod, kind, exit_code):
        return ContainerDecision(kept(context, container, kind), finished=True, exit_code=exit_code)
    attempts = context.seen.containers[container["name"]]
    due = (last.finished_at or last.created_at or context.now) + timedelta(seconds=backoff_s(attempts))
    if fresh and not resized and last.image == container["image"] and context.now < due:
        return _backing_off(context, container, kind, due)
    needed_since = last.finished_at or last.created_at or context.now
    return _start(context, container, kind, last.attempt + 1, needed_since)


def exit_code_of(ended: ObservedContainer) -> int:
    """Return the exit code; a container that never started failed with 128."""
    return ended.exit_code or (START_ERROR if ended.started_at is None else 0)


def _restarts(pod: JsonObject, kind: str, exit_code: int) -> bool:
    policy = objects.spec(pod).get("restartPolicy") or "Always"
    if kind == EPHEMERAL:
        return False
    if kind == SIDECAR:
        return True
    if kind == "init":
        return exit_code != 0 and policy != "Never"
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)


def backoff_s(attempts: Sequence[ObservedContainer]) -> float:
    """Return the seconds between the end of the last attempt and the next one.

    The pause before the last attempt tells how far the back-off had grown; where it is not known, the
    attempt's number does.
    """
    last, previous = attempts[-1], attempts[-2] if len(attempts) > 1 else None
    failures = last.attempt
    if last.ran_s >= RESET_AFTER_S:
        failures = 0
    elif previous is not None and previous.attempt == last.attempt - 1:
        failures = min(failures, 1 + _pauses_taken(previous, last))
    return CONTAINER_RESTART.delay_s(failures)


def _pauses_taken(previous: ObservedContainer, last: ObservedContainer) -> int:
    if previous.ran_s >= RESET_AFTER_S or not previous.finished_at or not last.created_at:
        return 0
    gap_s = (last.created_at - previous.finished_at).total_seconds()
    steps = 0
    while CONTAINER_RESTART.delay_s(steps + 1) <= gap_s and steps < last.attempt:
        steps += 1
    return steps


def _backing_off(context: PodContext, container: JsonObject, kind: str, due: datetime) -> ContainerDecision:
    name, pod = container["name"], context.pod
    pause = int(backoff_s(context.seen.containers[name]))
    where = f"{objects.name(pod)}_{objects.namespace(pod)}({objects.uid(pod)})"
    text = f"back-off {_duration(pause)} restarting failed container={name} pod={where}"
    last = context.seen.containers[name][-1]
    message = f"Back-off restarting failed container {name} in pod {where}"
    event = PodEvent("Warning", "BackOff", message, f"backoff/{name}/{last.attempt}", name)
    step = _untouched(context, container, kind, last.attempt)
    return step._replace(waiting=Waiting("CrashLoopBackOff", text), wake_at=due, events=(event,))


def _duration(seconds: int) -> str:
    minutes, rest = divmod(seconds, 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


def _start(
    context: PodContext, container: JsonObject, kind: str, attempt: int, needed_since: datetime
) -> ContainerDecision:
    before = kept(context, container, kind)
    if not context.sandbox_usable:
        return ContainerDecision(before, waiting=CREATING)
    inputs, image = context.inputs, container["image"]
    policy = container.get("imagePullPolicy") or ""
    pull = inputs.pulls.get(image)
    decided = decide_image(image, policy, inputs.images, pull, needed_since, context.now)
    events = tuple(event._replace(container=container["name"]) for event in decided.events)
    if not decided.ready:
        wanted = image if decided.pull else ""
        return ContainerDecision(before, decided.waiting or CREATING, decided.wake_at, wanted, events)
    step = declare(context, container, kind, attempt)
    if step.waiting is not None:
        return step._replace(entry=before)
    text = f'Container image "{image}" already present on machine'
    key = f"present/{container['name']}/{attempt}"
    present = () if pull else (PodEvent("Normal", "Pulled", text, key, container["name"]),)
    return step._replace(waiting=creating(context, container), events=present + errors(context, container))
