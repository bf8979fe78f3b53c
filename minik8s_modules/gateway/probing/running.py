"""Runs one check from the gateway: commands through Docker's exec, everything a pause program cannot do, and hooks.

Network checks come here where the pod's pause program is not ours, for HTTPS, and for hooks; they are dialled here, and
what is answered is read by a process without rights (answers.py). Of a command only Docker's frames are read, which
Docker makes, and its output is no more than a text. A command that outlives its timeout cannot be ended through Docker:
it counts as failed, and the next run waits for its end. Each run returns good or not, and why not.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from minik8s_modules.base.errors import Minik8sError
from minik8s_modules.gateway.errors import NobodyReads
from minik8s_modules.gateway.probing.answers import Answers
from minik8s_modules.gateway.probing.checks import Check
from minik8s_modules.gateway.probing.wire import Cause, cause_of, message_of
from minik8s_modules.gateway.streams.dockerd import Dockerd
from minik8s_modules.gateway.streams.reaching import NodeRoute, Reached, reach
from minik8s_modules.streams.frames import Demultiplexer

log = logging.getLogger(__name__)

_OUTPUT_BYTES = 10 * 1024  # of a command; kubelet keeps as much (maxReadLength)
_EXIT_TRIES, _EXIT_PAUSE_S = 100, 0.02


class Outcome(NamedTuple):
    """How one run ended."""

    good: bool
    message: str = ""


Sleep = Callable[[float], Awaitable[None]]


async def run_once(check: Check, route: NodeRoute, answers: Answers, sleep: Sleep = asyncio.sleep) -> Outcome | None:
    """Run the check's action within its timeout; None when nobody can tell. Raises nothing but for cancellation."""
    try:
        match check.kind:
            case "sleep":
                return await _slept(check, sleep)
            case "exec":
                return await _command(check, Dockerd(route.docker_socket))
            case _:
                cause = await _dialled(check, route, answers)
    except NobodyReads as error:
        log.info("check %s is not counted: %s", check.id, error)
        return None
    except Minik8sError as error:
        return Outcome(good=False, message=str(error))
    # a hook only asks: whatever is answered is well (pkg/kubelet/lifecycle/handlers.go)
    good = cause.good() or (check.once and cause.word == "http")
    return Outcome(good, "" if good else message_of(check, cause))


async def _slept(check: Check, sleep: Sleep) -> Outcome:
    try:
        async with asyncio.timeout(check.timeout_s):
            await sleep(check.action)
    except TimeoutError:
        return Outcome(good=False, message=f"sleep did not end within {check.timeout_s:g}s")
    return Outcome(good=True)


class Command:
    """A command in a container; a later run of the same check must not begin while it runs."""

    def __init__(self, docker: Dockerd, container: str, argv: list[str]) -> None:
        self._docker, self._container, self._argv = docker, container, argv

    async def run(self) -> tuple[int, str]:
        """Return the exit code and the end of what it wrote."""
        body = {"AttachStdout": True, "AttachStderr": True, "Cmd": self._argv}
        made = await self._docker.call("POST", f"/containers/{self._container}/exec", body=body)
        path = f"/exec/{made['Id']}"
        process = await self._docker.hijack(f"{path}/start", body={"Detach": False, "Tty": False})
        streams, output = Demultiplexer(), b""
        try:
            while data := await process.read():
                for _, written in streams.feed(data):
                    output = (output + written)[:_OUTPUT_BYTES]
        finally:
            process.close()
        return await self._exit_code(path), output.decode("utf-8", "replace")

    async def _exit_code(self, path: str) -> int:
        for _ in range(_EXIT_TRIES):
            found: dict[str, Any] = await self._docker.call("GET", f"{path}/json")
            if not found.get("Running") and found.get("ExitCode") is not None:
                return int(found["ExitCode"])
            await asyncio.sleep(_EXIT_PAUSE_S)
        return 137


async def _command(check: Check, docker: Dockerd) -> Outcome:
    code, output = await Command(docker, check.container, check.action).run()
    if code == 0:
        return Outcome(good=True)
    said = output.strip()
    return Outcome(good=False, message=said or f"command {check.action!r} exited with {code}")


async def _dialled(check: Check, route: NodeRoute, answers: Answers) -> Cause:
    loop = asyncio.get_running_loop()
    end = loop.time() + check.timeout_s
    try:
        async with asyncio.timeout_at(end):
            reached = await reach(route, check.action["host"], check.action["port"])
    except TimeoutError as error:
        return Cause("errno", error.errno) if error.errno else Cause("timeout")
    except OSError as error:
        return cause_of("errno", error.errno or 0)
    try:
        if check.kind == "tcp":
            return await _reached(reached, through_ssh=route.reach is not None)
        return await answers.of(check, reached, max(0.0, end - loop.time()))
    finally:
        await reached.close()


async def _reached(reached: Reached, *, through_ssh: bool) -> Cause:
    """Return whether a connection was made; through ssh only its end would tell that it was not."""
    if not through_ssh:
        return Cause("ok")
    try:
        async with asyncio.timeout(0.2):
            came = await asyncio.get_running_loop().sock_recv(reached.ends[0], 1)
            return Cause("ok") if came or not await reached.failure() else Cause("errno", errno.ECONNREFUSED)
    except TimeoutError:
        return Cause("ok")
