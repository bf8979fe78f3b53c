"""A container as an entry of the node document, and why it cannot be one. Pure.

``declare`` has an attempt exist and started, ``kept`` leaves the newest one as it is; when which of them is wanted is
decided in containers.py and stopping.py.
"""

from __future__ import annotations

from typing import cast

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.module_utils.minik8s.entries.containers import (
    ContainerEntry,
    ContainerType,
    RestartPolicy,
    TerminationMessage,
)
from minik8s_modules.reconcile.pods.device_entries import device_entries
from minik8s_modules.reconcile.pods.pod_context import (
    CREATING,
    DIALECT,
    FAILED_MOUNT,
    RULES_MISSING,
    SANDBOX_MISSING,
    SIDECAR,
    VOLUME_MISSING,
    ContainerDecision,
    PodContext,
)
from minik8s_modules.reconcile.pods.sandboxes import pod_identity
from minik8s_modules.reconcile.pods.security import MustNotBeRoot, effective, security, user
from minik8s_modules.reconcile.storage.volumes import failed_mount, mounts
from minik8s_modules.reconcile.values import resources
from minik8s_modules.reconcile.values.environment import (
    ConfigurationMissing,
    Environment,
    environment,
    expand_arguments,
    own_secret,
)
from minik8s_modules.reconcile.values.values import PodEvent, Sealed, Waiting

_REPORTED_ELSEWHERE = frozenset({SANDBOX_MISSING, RULES_MISSING, VOLUME_MISSING})


def _error(context: PodContext, container: JsonObject) -> JsonObject | None:
    for mount in container.get("volumeMounts") or []:
        # a volume that the node could not make is why its containers cannot be made either
        error = context.inputs.errors.get(f"volumes/{objects.uid(context.pod)}/{mount['name']}")
        if error is not None:
            return {"reason": FAILED_MOUNT, "message": failed_mount(mount["name"], str(error["message"]))}
    error = context.inputs.errors.get(f"containers/{objects.uid(context.pod)}/{container['name']}")
    return error if error is not None and error.get("reason") not in _REPORTED_ELSEWHERE else None


def creating(context: PodContext, container: JsonObject) -> Waiting:
    """Return why a container that is being made is not there yet."""
    error = _error(context, container)
    if not error:
        return CREATING
    if error["reason"] == FAILED_MOUNT:
        return CREATING._replace(message=str(error["message"]))
    return Waiting(str(error["reason"]), str(error["message"]))


def errors(context: PodContext, container: JsonObject) -> tuple[PodEvent, ...]:
    """Return the event of what the node could not do for the container, if there is something."""
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


def declare(
    context: PodContext, container: JsonObject, kind: str, attempt: int, *, made: bool = False
) -> ContainerDecision:
    """Return the step that has ``attempt`` exist and started, or says why it cannot be configured.

    ``made``: it exists, so which Services there are counts no more for it.
    """
    pod, name = context.pod, container["name"]
    try:
        variables = environment(pod, container, context.inputs)
        entry = _configured(_entry(context, container, kind, attempt), context, container, variables)
    except ConfigurationMissing as error:
        event = PodEvent("Warning", "Failed", f"Error: {error}", f"config/{name}/{error}", name)
        waiting = Waiting("CreateContainerConfigError", str(error))
        return ContainerDecision(kept(context, container, kind), waiting=waiting, events=(event,))
    if variables.links and not made:
        entry["links"] = variables.links
    if target := container.get("targetContainerName"):  # a debugging container sees the target's processes
        entry["security"]["pid"] = f"container/{target}"
    sealed = Sealed({own_secret(pod, name): dict(variables.made)} if variables.made else {})
    return ContainerDecision(entry, references=variables.references, sealed=sealed)


def kept(context: PodContext, container: JsonObject, kind: str) -> ContainerEntry | None:
    """Return the entry that leaves the newest attempt as it is, None where there is none."""
    last = context.seen.last(container["name"])
    return _entry(context, container, kind, last.attempt) | {"state": "kept"} if last else None


def _entry(context: PodContext, container: JsonObject, kind: str, attempt: int) -> ContainerEntry:
    original = (objects.dig(context.pod, "metadata", "annotations") or {}).get(DIALECT) == "original"
    limited = resources.as_limited(context.pod, container)
    entry: ContainerEntry = {
        "pod": pod_identity(context.pod),
        "name": container["name"],
        "type": cast("ContainerType", "init" if kind == SIDECAR else kind),
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
        "cpu_shares": resources.cpu_shares(limited),
        "cpu_quota_us": resources.cpu_quota_us(limited),
        "memory_bytes": resources.memory_bytes(limited),
        "oom_score_adj": resources.oom_score_adj(context.pod, container, context.inputs.node),
        "mounts": [],
        "restart_policy": _policy(context.pod, kind),
        "message": _message(container),
    }
    devices = device_entries(container, context.devices)
    return entry | {"devices": devices} if devices else entry


def _message(container: JsonObject) -> TerminationMessage | None:
    path = container.get("terminationMessagePath")
    return {"path": path, "policy": container.get("terminationMessagePolicy") or "File"} if path else None


def _policy(pod: JsonObject, kind: str) -> RestartPolicy:
    """Return what becomes of the container when it exits while nobody attends the node."""
    if kind == SIDECAR:
        return "Always"
    return objects.spec(pod).get("restartPolicy") or "Always" if kind == "app" else "Never"


def _configured(
    entry: ContainerEntry, context: PodContext, container: JsonObject, variables: Environment
) -> ContainerEntry:
    """Return the entry with what variables have a part in."""
    pod = context.pod
    original = (objects.dig(pod, "metadata", "annotations") or {}).get(DIALECT) == "original"
    command = expand_arguments("command", container.get("command"), variables.variables)
    arguments = expand_arguments("args", container.get("args"), variables.variables)
    if original:
        # there `command` is Docker's CMD: arguments to the image's own entry point
        joined = [*(command or []), *(arguments or [])]
        command, arguments = None, joined or None
    return entry | {
        "entrypoint": command,
        "cmd": arguments,
        "env": variables.plain,
        "secret_env": variables.secret,
        "user": _user(pod, container, original=original),
        "mounts": mounts(pod, container, variables.variables, context.inputs),
    }


def _user(pod: JsonObject, container: JsonObject, *, original: bool) -> str | None:
    if original and effective(pod, container).get("privileged"):
        return None
    try:
        return user(pod, container)
    except MustNotBeRoot as error:
        raise ConfigurationMissing(str(error)) from error
