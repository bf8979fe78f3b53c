"""Runs one check from the gateway: commands through Docker's exec, everything a pause program cannot do, and hooks.

Network checks come here where the pod's pause program is not ours, for HTTPS, and for hooks; they dial as
port-forward does. A command that outlives its timeout cannot be ended through Docker: it counts as failed, and
the next run waits for its end. Each run returns good or not, and why not.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from minik8s_modules.base.errors import Minik8sError
from minik8s_modules.gateway.probing.checks import Check
from minik8s_modules.gateway.probing.tls import secured
from minik8s_modules.gateway.probing.wire import Cause, message_of, request_of
from minik8s_modules.gateway.streams.dockerd import Dockerd
from minik8s_modules.gateway.streams.frames import Demultiplexer
from minik8s_modules.gateway.streams.reaching import Door, Reached, reach

_OUTPUT_BYTES = 10 * 1024  # of a command; kubelet keeps as much (maxReadLength)
_BODY_BYTES = 10 * 1024
_EXIT_TRIES, _EXIT_PAUSE_S = 100, 0.02
_FRAME_HEAD = 9


class Outcome(NamedTuple):
    """How one run ended."""

    good: bool
    message: str = ""


Sleep = Callable[[float], Awaitable[None]]


async def run_once(check: Check, door: Door, sleep: Sleep = asyncio.sleep) -> Outcome:
    """Run the check's action within its timeout; never raises but for cancellation."""
    try:
        async with asyncio.timeout(check.timeout_s if check.kind != "exec" else None):
            match check.kind:
                case "sleep":
                    await sleep(check.action)
                    return Outcome(good=True)
                case "exec":
                    return await _command(check, Dockerd(door.docker_socket))
                case _:
                    cause = await _dialled(check, door)
    except TimeoutError:
        if check.kind == "sleep":
            return Outcome(good=False, message=f"sleep did not end within {check.timeout_s:g}s")
        cause = Cause("timeout")
    except Minik8sError as error:
        return Outcome(good=False, message=str(error))
    # a hook only asks: whatever is answered is well (pkg/kubelet/lifecycle/handlers.go)
    good = cause.good() or (check.once and cause.word == "http")
    return Outcome(good, "" if good else message_of(check, cause))


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


async def _dialled(check: Check, door: Door) -> Cause:
    try:
        connection = await reach(door, check.action["host"], check.action["port"])
    except OSError as error:
        return Cause("errno", error.errno or 0)
    try:
        if check.kind == "tcp":
            return await _reached(connection, through_ssh=door.reach is not None)
        if check.action.get("scheme") == "https":
            connection = await secured(connection)
        await connection.write(request_of(check))
        return await _answered(check, connection.read)
    except ssl.SSLError:
        return Cause("malformed")
    except OSError as error:
        return Cause("errno", error.errno or 0)
    finally:
        connection.close()


async def _reached(connection: Reached, *, through_ssh: bool) -> Cause:
    """Return whether a connection was made; through ssh only its end would tell that it was not."""
    if not through_ssh:
        return Cause("ok")
    try:
        async with asyncio.timeout(0.2):
            data = await connection.read()
    except TimeoutError:
        return Cause("ok")
    return Cause("ok") if data or not await connection.failure() else Cause("errno", 111)


async def _answered(check: Check, read: Callable[[], Awaitable[bytes]]) -> Cause:
    """Return what the answer says: an HTTP status line, or the frames of a gRPC answer."""
    got = b""
    while data := await read():
        got += data
        if check.kind == "grpc" and (cause := grpc_answer(got)):
            return cause
        if check.kind == "http" and len(got) > _BODY_BYTES:
            break
    return http_answer(got) if check.kind == "http" else Cause("closed")


def http_answer(got: bytes) -> Cause:
    """Return the status an answer begins with."""
    words = got[:64].split(b" ", 2)
    if not got:
        return Cause("closed")
    if not got.startswith(b"HTTP/") or len(words) < 2 or not words[1][:3].isdigit():  # noqa: PLR2004 - version, status
        return Cause("malformed")
    return Cause("http", int(words[1][:3]))


def grpc_answer(got: bytes) -> Cause | None:
    """Return the serving status once the frames tell it, None while they do not."""
    at = 0
    while len(got) - at >= _FRAME_HEAD:
        length, kind, flags = int.from_bytes(got[at : at + 3], "big"), got[at + 3], got[at + 4]
        payload = got[at + _FRAME_HEAD : at + _FRAME_HEAD + length]
        if len(payload) < length:
            return None
        if kind == 0 and length:
            return Cause("grpc", payload[6] if len(payload) > 6 and payload[5] == 8 else 0)  # noqa: PLR2004 - field 1
        if (kind == 1 and flags & 1) or kind in {3, 7}:
            return Cause("grpc", -1)
        at += _FRAME_HEAD + length
    return None
