"""Validation of ephemeral containers, which come to a pod by their subresource alone.

Source: kubernetes ``pkg/apis/core/validation/validation.go`` (``ValidatePodEphemeralContainersUpdate``,
``validateEphemeralContainers``).
"""

from __future__ import annotations

from minik8s_modules.api import cause
from minik8s_modules.api.errors import Cause
from minik8s_modules.api.objects import JsonObject, all_containers, spec
from minik8s_modules.api.pods.mirror_pods import is_mirror
from minik8s_modules.api.validation.pods.containers import validate_containers
from minik8s_modules.api.validation.pods.security import strict_groups

FIELD = "spec.ephemeralContainers"
_ALLOWED = frozenset(
    {
        "name", "image", "command", "args", "workingDir", "env", "envFrom", "volumeMounts", "volumeDevices",
        "imagePullPolicy", "securityContext", "stdin", "stdinOnce", "tty", "terminationMessagePath",
        "terminationMessagePolicy", "targetContainerName",
    }
)  # fmt: skip


def validate_added(new: JsonObject, old: JsonObject) -> list[Cause]:
    """Return why the pod may not have the new list of ephemeral containers: it only grows."""
    after, before = spec(new).get("ephemeralContainers") or [], spec(old).get("ephemeralContainers") or []
    if is_mirror(new):
        return [cause.forbidden("", "static pods do not support ephemeral containers")]
    grown = strict_groups(new) if after != before else []
    return [*_changed(after, before), *_each(new, after), *grown]


def _changed(after: list[JsonObject], before: list[JsonObject]) -> list[Cause]:
    given = {one.get("name"): one for one in after}
    causes = []
    for one in before:
        if one["name"] not in given:
            detail = f'existing ephemeral containers "{one["name"]}" may not be removed'
            causes.append(cause.forbidden(FIELD, f"{detail}\n"))
        elif given[one["name"]] != one:
            detail = f'existing ephemeral containers "{one["name"]}" may not be changed'
            causes.append(cause.forbidden(FIELD, f"{detail}\n"))
    return causes


def _each(pod: JsonObject, added: list[JsonObject]) -> list[Cause]:
    volumes = {str(one.get("name")) for one in spec(pod).get("volumes") or []}
    host_network = bool(spec(pod).get("hostNetwork"))
    causes = validate_containers(FIELD, added, volumes, host_network=host_network, init=True) if added else []
    taken = {container.get("name") for _, _, container in all_containers(pod)}
    for index, container in enumerate(added):
        at = f"{FIELD}[{index}]"
        if container.get("name") in taken:
            causes.append(cause.duplicate(f"{at}.name", container["name"]))
        causes += _target(f"{at}.targetContainerName", container, taken)
        causes += _fields(at, container)
    return causes


def _target(at: str, container: JsonObject, known: set[str | None]) -> list[Cause]:
    target = container.get("targetContainerName")
    return [cause.not_found(at, target)] if target and target not in known else []


def _fields(at: str, container: JsonObject) -> list[Cause]:
    causes = [
        cause.forbidden(f"{at}.{field}", "cannot be set for an Ephemeral Container")
        for field, value in container.items()
        if field not in _ALLOWED and value not in (None, [], {})
    ]
    for index, mount in enumerate(container.get("volumeMounts") or []):
        for field in ("subPath", "subPathExpr"):
            if mount.get(field):
                detail = "cannot be set for an Ephemeral Container"
                causes.append(cause.forbidden(f"{at}.volumeMounts[{index}].{field}", detail))
    return causes
