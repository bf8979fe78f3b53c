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
from typing import Any, NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.base.backoff import CONTAINER_RESTART
from minik8s_modules.base.clock import parse_rfc3339
from minik8s_modules.reconcile import resources
from minik8s_modules.reconcile.environment import (
    ConfigurationMissing,
    Environment,
    environment,
    expand_arguments,
    own_secret,
)
from minik8s_modules.reconcile.images import decide_image
from minik8s_modules.reconcile.observed import ObservedContainer, ObservedPod
from minik8s_modules.reconcile.sandboxes import RESET_AFTER_S, pod_identity
from minik8s_modules.reconcile.security import MustNotBeRoot, effective, security, user
from minik8s_modules.reconcile.values import PodEvent, PodInputs, Sealed, Waiting
from minik8s_modules.reconcile.volumes import failed_mount, mounts

JsonObject = dict[str, Any]
DIALECT = "minik8s.io/dialect"
DEFAULT_GRACE_S = 30
CREATING = Waiting("ContainerCreating")
SANDBOX_MISSING = "SandboxMissing"
"""A node's reason for a container whose sandbox is not up; why that is so is told of the sandbox."""
FAILED_MOUNT = "FailedMount"
"""A node's reason for a volume it could not make, and for a container that mounts one."""
EPHEMERAL = "ephemeral"
"""The kind of a container that ``kubectl debug`` adds: started once, never again."""
START_ERROR = 128
"""Exit code of a container that could not be started (kubelet's StartError)."""


class PodContext(NamedTuple):
    """What the decisions about one pod's containers share."""

    pod: JsonObject
    seen: ObservedPod
    inputs: PodInputs
    now: datetime
    sandbox_attempt: int = 0
    sandbox_usable: bool = True
    sandbox_since: datetime | None = None

    def fresh(self, one: ObservedContainer) -> bool:
        """Return whether the container lives in the pod's current sandbox."""
        since = self.sandbox_since
        return since is not None and (one.created_at is None or one.created_at >= since)


class Step(NamedTuple):
    """What one container wants; ``finished`` means that it will not run again."""

    entry: JsonObject | None = None
    waiting: Waiting | None = None
    wake_at: datetime | None = None
    pull: str = ""
    events: tuple[PodEvent, ...] = ()
    finished: bool = False
    exit_code: int = 0
    references: frozenset[str] = frozenset()
    sealed: Sealed = Sealed()


def decide_container(context: PodContext, container: JsonObject, kind: str) -> Step:
    """Return what the container (``kind`` app or init) wants now."""
    last = context.seen.last(container["name"])
    if last is None:
        return _unseen(context, container, kind)
    if last.alive:
        return _alive(context, container, kind, last)
    if not last.over and context.fresh(last):
        return declare(context, container, kind, last.attempt)
    return _ended(context, container, kind, last)


def _unseen(context: PodContext, container: JsonObject, kind: str) -> Step:
    """Decide about a container of which nothing exists: never made, or removed behind our back."""
    recorded = recorded_status(context.pod, container["name"])
    ended = objects.dig(recorded, "state", "terminated")
    if kind == EPHEMERAL and recorded.get("containerID"):
        return Step(finished=True)
    if ended and not _restarts(context.pod, kind, int(ended.get("exitCode") or 0)):
        return Step(finished=True, exit_code=int(ended.get("exitCode") or 0))
    attempt = int(recorded.get("restartCount") or 0) + 1 if recorded.get("containerID") else 0
    needed_since = parse_rfc3339(objects.dig(context.pod, "metadata", "creationTimestamp") or _EPOCH)
    return _start(context, container, kind, attempt, needed_since)


_EPOCH = "1970-01-01T00:00:00Z"


def recorded_status(pod: JsonObject, name: str) -> JsonObject:
    """Return the status the API has of a container, or an empty map."""
    status = objects.status(pod)
    fields = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
    known = [one for field in fields for one in status.get(field) or []]
    return next((one for one in known if one.get("name") == name), {})


def _alive(context: PodContext, container: JsonObject, kind: str, last: ObservedContainer) -> Step:
    name = container["name"]
    if not context.fresh(last):
        return stop(context, container, kind, f"Stopping container {name}")
    if last.image != container["image"] and not last.image.startswith("sha256:"):
        return stop(context, container, kind, f"Container {name} definition changed, will be restarted")
    if _configured_from_objects(container):
        # the node compares what is declared with what runs; a changed ConfigMap, Secret or label must not replace it
        return _untouched(context, container, kind, last.attempt)
    return declare(context, container, kind, last.attempt)._replace(waiting=None, events=())


def _untouched(context: PodContext, container: JsonObject, kind: str, attempt: int) -> Step:
    """Return the step that leaves an attempt as it is, with the secrets it was made from."""
    step = declare(context, container, kind, attempt)
    return step._replace(entry=kept(context, container, kind), waiting=None, events=())


def _configured_from_objects(container: JsonObject) -> bool:
    sources = [variable.get("valueFrom") or {} for variable in container.get("env") or []]
    return bool(container.get("envFrom")) or any(
        source.get("configMapKeyRef")
        or source.get("secretKeyRef")
        or source.get("resourceFieldRef")
        or "['" in str(objects.dig(source, "fieldRef", "fieldPath"))
        for source in sources
    )


def _ended(context: PodContext, container: JsonObject, kind: str, last: ObservedContainer) -> Step:
    exit_code = exit_code_of(last)
    fresh = context.fresh(last)
    # an init container of an earlier sandbox runs again, whatever came of it
    rerun = kind == "init" and not fresh and objects.spec(context.pod).get("restartPolicy") != "Never"
    if last.over and not rerun and not _restarts(context.pod, kind, exit_code):
        return Step(kept(context, container, kind), finished=True, exit_code=exit_code)
    attempts = context.seen.containers[container["name"]]
    due = (last.finished_at or last.created_at or context.now) + timedelta(seconds=backoff_s(attempts))
    if fresh and last.image == container["image"] and context.now < due:
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


def _backing_off(context: PodContext, container: JsonObject, kind: str, due: datetime) -> Step:
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


def _start(context: PodContext, container: JsonObject, kind: str, attempt: int, needed_since: datetime) -> Step:
    before = kept(context, container, kind)
    if not context.sandbox_usable:
        return Step(before, waiting=CREATING)
    inputs, image = context.inputs, container["image"]
    policy = container.get("imagePullPolicy") or ""
    pull = inputs.pulls.get(image)
    decided = decide_image(image, policy, inputs.images, pull, needed_since, context.now)
    events = tuple(event._replace(container=container["name"]) for event in decided.events)
    if not decided.ready:
        wanted = image if decided.pull else ""
        return Step(before, decided.waiting or CREATING, decided.wake_at, wanted, events)
    step = declare(context, container, kind, attempt)
    if step.waiting is not None:
        return step._replace(entry=before)
    text = f'Container image "{image}" already present on machine'
    key = f"present/{container['name']}/{attempt}"
    present = () if pull else (PodEvent("Normal", "Pulled", text, key, container["name"]),)
    return step._replace(waiting=_creating(context, container), events=present + _errors(context, container))


def _error(context: PodContext, container: JsonObject) -> JsonObject | None:
    for mount in container.get("volumeMounts") or []:
        # a volume that the node could not make is why its containers cannot be made either
        error = context.inputs.errors.get(f"volumes/{objects.uid(context.pod)}/{mount['name']}")
        if error is not None:
            return {"reason": FAILED_MOUNT, "message": failed_mount(mount["name"], str(error["message"]))}
    error = context.inputs.errors.get(f"containers/{objects.uid(context.pod)}/{container['name']}")
    return error if error is not None and error.get("reason") != SANDBOX_MISSING else None


def _creating(context: PodContext, container: JsonObject) -> Waiting:
    error = _error(context, container)
    if not error:
        return CREATING
    if error["reason"] == FAILED_MOUNT:
        return CREATING._replace(message=str(error["message"]))
    return Waiting(str(error["reason"]), str(error["message"]))


def _errors(context: PodContext, container: JsonObject) -> tuple[PodEvent, ...]:
    error = _error(context, container)
    if not error:
        return ()
    if error["reason"] == FAILED_MOUNT:
        return (failed_mount_event(str(error["message"])),)
    text = f"Error: {error['message']}"
    return (PodEvent("Warning", "Failed", text, f"failed/{container['name']}/{text}", container["name"]),)


def failed_mount_event(text: str) -> PodEvent:
    """Return the event of a volume that could not be made; the same for all containers that mount it."""
    return PodEvent("Warning", FAILED_MOUNT, text, f"mount/{text}")


def declare(context: PodContext, container: JsonObject, kind: str, attempt: int) -> Step:
    """Return the step that has ``attempt`` exist and started, or says why it cannot be configured."""
    pod, name = context.pod, container["name"]
    try:
        variables = environment(pod, container, context.inputs)
        entry = _entry(context, container, kind, attempt) | _configured(pod, container, variables)
        entry |= _among_processes_of(container, entry)
    except ConfigurationMissing as error:
        event = PodEvent("Warning", "Failed", f"Error: {error}", f"config/{name}/{error}", name)
        waiting = Waiting("CreateContainerConfigError", str(error))
        return Step(kept(context, container, kind), waiting=waiting, events=(event,))
    sealed = Sealed({own_secret(pod, name): dict(variables.made)} if variables.made else {})
    return Step(entry, references=variables.references, sealed=sealed)


def _among_processes_of(container: JsonObject, entry: JsonObject) -> JsonObject:
    """Return the part of the entry that puts a debugging container into the target's process namespace."""
    target = container.get("targetContainerName")
    return {"security": {**entry.get("security", {}), "pid": f"container/{target}"}} if target else {}


def kept(context: PodContext, container: JsonObject, kind: str) -> JsonObject | None:
    """Return the entry that leaves the newest attempt as it is, None where there is none."""
    last = context.seen.last(container["name"])
    return _entry(context, container, kind, last.attempt) | {"state": "kept"} if last else None


def stop(context: PodContext, container: JsonObject, kind: str, text: str) -> Step:
    """Return the step that ends the newest attempt within the pod's grace period."""
    entry = kept(context, container, kind)
    if entry is None:
        return Step()
    grace_s = objects.dig(context.pod, "metadata", "deletionGracePeriodSeconds")
    if grace_s is None:
        grace_s = objects.spec(context.pod).get("terminationGracePeriodSeconds", DEFAULT_GRACE_S)
    key = f"killing/{container['name']}/{entry['attempt']}"
    event = PodEvent("Normal", "Killing", text, key, container["name"])
    return Step(entry | {"stop": {"grace_s": int(grace_s)}}, events=(event,))


def _entry(context: PodContext, container: JsonObject, kind: str, attempt: int) -> JsonObject:
    original = (objects.dig(context.pod, "metadata", "annotations") or {}).get(DIALECT) == "original"
    return {
        "pod": pod_identity(context.pod),
        "name": container["name"],
        "type": kind,
        "attempt": attempt,
        "sandbox_attempt": context.sandbox_attempt,
        "state": "running",
        "stop": None,
        "image": container["image"],
        "entrypoint": None,
        "cmd": None,
        "env": [],
        "secret_env": [],
        "working_dir": container.get("workingDir") or None,
        "user": None,
        "security": security(context.pod, container),
        "privileged": bool(objects.dig(container, "securityContext", "privileged")),
        # init containers have no terminal: a shell or REPL with one would never end, and its pod never start
        "tty": (original and kind == "app") or bool(container.get("tty")),
        "stdin": bool(container.get("stdin")),
        "stdin_once": bool(container.get("stdinOnce")),
        "cpu_shares": resources.cpu_shares(container),
        "cpu_quota_us": resources.cpu_quota_us(container),
        "memory_bytes": resources.memory_bytes(container),
        "oom_score_adj": resources.oom_score_adj(context.pod, container, context.inputs.node),
        "mounts": [],
        "restart_policy": str(objects.spec(context.pod).get("restartPolicy") or "Always") if kind == "app" else "Never",
    }


def _configured(pod: JsonObject, container: JsonObject, variables: Environment) -> JsonObject:
    original = (objects.dig(pod, "metadata", "annotations") or {}).get(DIALECT) == "original"
    command = expand_arguments("command", container.get("command"), variables.variables)
    arguments = expand_arguments("args", container.get("args"), variables.variables)
    if original:
        # there `command` is Docker's CMD: arguments to the image's own entry point
        joined = [*(command or []), *(arguments or [])]
        command, arguments = None, joined or None
    return {
        "entrypoint": command,
        "cmd": arguments,
        "env": variables.plain,
        "secret_env": variables.secret,
        "user": _user(pod, container, original=original),
        "mounts": mounts(pod, container, variables.variables),
    }


def _user(pod: JsonObject, container: JsonObject, *, original: bool) -> str | None:
    if original and effective(pod, container).get("privileged"):
        return None
    try:
        return user(pod, container)
    except MustNotBeRoot as error:
        raise ConfigurationMissing(str(error)) from error
