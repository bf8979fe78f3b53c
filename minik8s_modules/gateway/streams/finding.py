"""From a pod and a container's name to Docker's container, by labels: what no label of ours marks is never touched.

A container is the request's when its labels bear the pod's node, UID, namespace and name: a UID alone opens nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from minik8s_modules.api.errors import BadRequest
from minik8s_modules.gateway.streams.dockerd import Dockerd, DockerRefused, find
from minik8s_modules.module_utils.minik8s.core import labels
from minik8s_modules.module_utils.minik8s.core.memory_events import ENDED
from minik8s_modules.module_utils.minik8s.core.observations import observation_from_inspect
from minik8s_modules.streams.requests import StreamRequest

NOT_FOUND = 404


class FoundContainer(NamedTuple):
    """A container: its Docker id, whether it has a terminal, whether it runs, whether its stdin is open.

    ``stdin_once``: the first end of its stdin is the end of it. ``ended``: it ran, and nothing is added to its log.
    """

    id: str
    tty: bool
    running: bool
    stdin: bool
    stdin_once: bool = False
    ended: bool = False


async def of_log(docker: Dockerd, request: StreamRequest) -> FoundContainer:
    """Return the container whose log is asked for: the one with ``id``, else the newest of that name.

    Raises:
        BadRequest: there is none.
    """
    wanted = request.text("id") or await _newest(docker, request)
    found = await _inspected(docker, request, wanted) if wanted else None
    if found is None:
        raise BadRequest(f'container "{request.container}" in pod "{request.pod}" is not available')
    return found


async def running(docker: Dockerd, request: StreamRequest) -> FoundContainer:
    """Return the running container of that name; worded as the kubelet words it when there is none."""
    wanted = await _newest(docker, request)
    found = await _inspected(docker, request, wanted) if wanted else None
    if found is None or not found.running:
        raise BadRequest(f'unable to upgrade connection: container not found ("{request.container}")')
    return found


async def address(docker: Dockerd, request: StreamRequest) -> str:
    """Return the address of the pod's running sandbox: its own, or 127.0.0.1 on the node's network."""
    for each in sorted(await _of_pod(docker, request, f"{labels.TYPE}={labels.SANDBOX}"), key=_attempt, reverse=True):
        inspect = await docker.call("GET", f"/containers/{each['Id']}/json")
        seen = observation_from_inspect(inspect)
        if seen["state"] == "running":
            host = (inspect.get("HostConfig") or {}).get("NetworkMode") == "host"
            return "127.0.0.1" if host else str(seen["ip"])
    raise BadRequest(f'unable to forward ports: pod "{request.pod}" has no running sandbox')


async def is_running(docker: Dockerd, container_id: str) -> bool:
    """Return whether the container runs now."""
    try:
        inspect = await docker.call("GET", f"/containers/{container_id}/json")
    except DockerRefused:
        return False
    return bool((inspect.get("State") or {}).get("Running"))


async def _of_pod(docker: Dockerd, request: StreamRequest, *more: str) -> list[dict[str, Any]]:
    return await find(docker, [*(f"{key}={value}" for key, value in _marks(request).items()), *more])


def _marks(request: StreamRequest) -> dict[str, str]:
    return {
        labels.NODE: request.node,
        labels.POD_UID: request.uid,
        labels.POD_NAMESPACE: request.namespace,
        labels.POD_NAME: request.pod,
    }


async def _newest(docker: Dockerd, request: StreamRequest) -> str:
    found = await _of_pod(docker, request, f"{labels.CONTAINER}={request.container}")
    ours = [each for each in found if (each.get("Labels") or {}).get(labels.TYPE) != labels.SANDBOX]
    return str(max(ours, key=_attempt)["Id"]) if ours else ""


def _attempt(entry: dict[str, Any]) -> int:
    return labels.attempt_of(entry.get("Labels") or {})


async def _inspected(docker: Dockerd, request: StreamRequest, container_id: str) -> FoundContainer | None:
    if not container_id.isalnum():  # it stands in a path
        return None
    try:
        inspect = await docker.call("GET", f"/containers/{container_id}/json")
    except DockerRefused as error:
        if error.status == NOT_FOUND:
            return None
        raise
    config, state = inspect.get("Config") or {}, inspect.get("State") or {}
    marks = config.get("Labels") or {}
    if not _marks(request).items() <= marks.items():
        return None
    stdin, once = bool(config.get("OpenStdin")), bool(config.get("StdinOnce"))
    ended = state.get("Status") in ENDED
    return FoundContainer(inspect["Id"], bool(config.get("Tty")), bool(state.get("Running")), stdin, once, ended)
