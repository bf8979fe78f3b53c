"""What an API server may ask for, and what is handed over for it: one connection of Docker's, or to a port of the pod.

What goes to Docker is put together here, from the signed request and nothing else; a container is found by its labels
(finding.py). Questions later on are about that one exec, log or pod.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import orjson

from minik8s_modules.api.errors import BadRequest
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.errors import Minik8sError
from minik8s_modules.gateway.streams import finding
from minik8s_modules.gateway.streams.dockerd import Dockerd, DockerRefused, Opened
from minik8s_modules.streams.requests import StreamRequest

# Docker takes ctrl-p ctrl-q out of what is typed into a terminal, and holds a lone ctrl-p back; nobody types this
DETACH_KEYS = ",".join(["ctrl-@"] * 16)
# between the end of an exec's output and Docker's knowing the exit code lie some milliseconds
_EXIT_TRIES, _EXIT_PAUSE_S = 100, 0.02
_LARGEST_SIZE = 0xFFFF
_MOST_LINES, _LATEST_S = 10_000, 1 << 40


class File(Protocol):
    """What can be handed over."""

    def fileno(self) -> int:
        """Return the descriptor."""

    def close(self) -> None:
        """Close it."""


class Given(NamedTuple):
    """An answer, and the files that go with it, which are closed here once they are sent."""

    message: JsonObject
    files: Sequence[File] = ()


Action = Callable[[JsonObject], Awaitable[Given]]


async def _nothing() -> None:
    return


class Opening(NamedTuple):
    """What is answered first, what may be asked then (by the word in ``do``), and what is to be done in the end."""

    first: Given
    actions: Mapping[str, Action]
    close: Callable[[], Awaitable[None]] = _nothing


async def of_exec(docker: Dockerd, request: StreamRequest) -> Opening:
    """Make a command ready in the pod's running container; ``start`` runs it. Raises StatusError, as Dockerd."""
    container = await finding.running(docker, request)
    tty, channels = request.flag("tty"), request.channels()
    body = {
        "AttachStdin": "stdin" in channels,
        "AttachStdout": "stdout" in channels,
        "AttachStderr": "stderr" in channels,
        "Tty": tty,
        "Cmd": request.options.get("command", []),
        "DetachKeys": DETACH_KEYS,
    }
    made = await docker.call("POST", f"/containers/{container.id}/exec", body=body)
    path = f"/exec/{made['Id']}"

    async def start(message: JsonObject) -> Given:
        numbers(message)
        return _given(await docker.upgraded(f"{path}/start", body={"Detach": False, "Tty": tty}))

    async def ended(message: JsonObject) -> Given:
        numbers(message)
        return Given({"code": await _exit_code(docker, path)})

    return Opening(Given({"tty": tty}), {"start": start, "exit": ended, "resize": _resizer(docker, path)})


async def of_attach(docker: Dockerd, request: StreamRequest) -> Opening:
    """Make ready to join the running container's own streams; ``start`` does. Raises StatusError, as Dockerd."""
    container = await finding.running(docker, request)
    path = f"/containers/{container.id}"
    query = {"stream": "1", "detachKeys": DETACH_KEYS, **dict.fromkeys(request.channels(), "1")}

    async def start(message: JsonObject) -> Given:
        numbers(message)
        return _given(await docker.upgraded(f"{path}/attach", query))

    first = {"tty": container.tty, "stays_open": container.stdin and not container.stdin_once}
    return Opening(Given(first), {"start": start, "resize": _resizer(docker, path)})


async def of_log(docker: Dockerd, request: StreamRequest) -> Opening:
    """Hand over a container's log and say how it is framed. Raises StatusError, as Dockerd.

    Of one that is followed, the first connection has the last line only; what is asked for next comes with timestamps,
    of both streams. A container that has ended has nothing to follow: Docker closes a log before it tells of an end.
    """
    container = await finding.of_log(docker, request)
    path, query = f"/containers/{container.id}/logs", docker_query(request)

    async def running(message: JsonObject) -> Given:
        numbers(message)
        return Given({"running": await finding.is_running(docker, container.id)})

    if container.ended:
        query.pop("follow", None)
    if container.tty or "follow" not in query:
        first = _given(await docker.stream("GET", path, query))
        frames = "plain" if container.tty else "multiplexed"
        return Opening(first._replace(message={**first.message, "frames": frames}), {"running": running})
    # by timestamps is known what Docker repeats and leaves out
    both = {"stdout": "1", "stderr": "1", "timestamps": "1"}

    async def log(message: JsonObject) -> Given:
        numbers(message)
        return await _log(docker, path, {name: query[name] for name in ("tail", "since") if name in query} | both)

    async def follow(message: JsonObject) -> Given:
        (lines,) = numbers(message, lines=_MOST_LINES)
        return await _log(docker, path, both | {"follow": "1"}, tail=lines)

    async def rest(message: JsonObject) -> Given:
        lines, since = numbers(message, lines=_MOST_LINES, since=_LATEST_S)
        return await _log(docker, path, both, tail=lines, since=since)

    first = _given(await docker.stream("GET", path, both | {"tail": "1"}))
    actions = {"log": log, "follow": follow, "rest": rest, "running": running}
    return Opening(first._replace(message={**first.message, "frames": "stamped"}), actions)


async def _log(docker: Dockerd, path: str, query: Mapping[str, str], **limits: int) -> Given:
    """Return a connection with a log, none when its container is gone; a limit of 0 is none."""
    asked = {name: str(limit) for name, limit in limits.items() if limit}
    try:
        return _given(await docker.stream("GET", path, {**query, **asked}))
    except DockerRefused as error:
        if error.status != finding.NOT_FOUND:
            raise
        return Given({})


def of_metrics(usage: Mapping[str, Any]) -> Opening:
    """Hand over ``usage`` as JSON, in a file in memory: it may be megabytes."""
    file = os.fdopen(os.memfd_create("metrics"), "w+b")
    file.write(orjson.dumps(usage))
    file.seek(0)
    return Opening(Given({}, [file]), {})


def docker_query(request: StreamRequest) -> dict[str, str]:
    """Return Docker's parameters for the options of a log."""
    stream = request.text("stream") or "All"
    found = {"stdout": str(int(stream != "Stderr")), "stderr": str(int(stream != "Stdout"))}
    found |= {name: "1" for name in ("follow", "timestamps") if request.flag(name)}
    if request.text("tailLines"):
        found["tail"] = request.text("tailLines")
    if request.text("since"):
        found["since"] = request.text("since")
    return found


def numbers(message: JsonObject, **most: int) -> list[int]:
    """Return the numbers from 0 to ``most`` that a question carries, and nothing else; BadRequest otherwise."""
    if set(message) != {"do", *most}:
        raise BadRequest(
            f"{message.get('do')} takes {', '.join(most) or 'nothing'}, not {sorted(set(message) - {'do'})}"
        )
    found = [message[name] for name in most]
    if not all(type(each) is int and 0 <= each <= limit for each, limit in zip(found, most.values(), strict=True)):
        raise BadRequest(f"{message['do']} takes numbers in their range, not {found}")
    return found


def _given(opened: Opened) -> Given:
    return Given({"came": opened.came.hex()}, [opened.socket])


def _resizer(docker: Dockerd, path: str) -> Action:
    async def resize(message: JsonObject) -> Given:
        height, width = numbers(message, height=_LARGEST_SIZE, width=_LARGEST_SIZE)
        await docker.call("POST", f"{path}/resize", {"h": str(height), "w": str(width)})
        return Given({})

    return resize


async def _exit_code(docker: Dockerd, path: str) -> int:
    for _ in range(_EXIT_TRIES):
        try:
            seen = await docker.call("GET", f"{path}/json")
        except DockerRefused:
            break
        if not seen["Running"] and seen["ExitCode"] is not None:
            return int(seen["ExitCode"])
        await asyncio.sleep(_EXIT_PAUSE_S)
    raise Minik8sError("the command's output ended, but Docker does not report its exit code")
