"""The named socket over which ``minik8s-streams`` asks, and connections are handed to it (streams/asking.py).

Only that process's user is answered (SO_PEERCRED), and only what an API server has signed is done (signatures.py): who
breaks into it holds the streams that pass through it, and can open no other ones. One thread, one asyncio loop.
"""

from __future__ import annotations

import asyncio
import logging
import pwd
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from minik8s_modules.api.errors import BadRequest, NotFound, ServiceUnavailable
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.gateway.streams import forwarding, opening
from minik8s_modules.gateway.streams.conversing import converse
from minik8s_modules.gateway.streams.dockerd import Dockerd
from minik8s_modules.gateway.streams.forwarding import Forwarding
from minik8s_modules.gateway.streams.opening import Opening
from minik8s_modules.gateway.streams.reaching import Routes
from minik8s_modules.gateway.streams.signatures import Signatures
from minik8s_modules.streams.passing import BadPacket, Channel
from minik8s_modules.streams.requests import METRICS, StreamRequest, parse_line

log = logging.getLogger(__name__)

ROLE = {"answers": True}
STOP_S = 5.0
FIRST_S = 10.0
# each is some file descriptors; the process that asks carries 1,000 streams
MOST = 2000
_FULL_S = 1.0
_CREDENTIALS = struct.Struct("3i")

Metrics = Callable[[bool], Mapping[str, Any]]
"""Returns what nodes and containers use; True asks for all samples."""
Answers = Callable[[socket.socket], None]
"""Takes the connection on which answers to probes are read for us (probing/answers.py); from any thread."""


class HandingServer:
    """Answers the user ``uid`` at the named socket ``path``."""

    def __init__(
        self, path: Path, uid: int, signatures: Signatures, routes: Routes, metrics: Metrics, answers: Answers
    ) -> None:
        self._path, self._uid, self._signatures = path, uid, signatures
        self._routes, self._metrics, self._answers = routes, metrics, answers
        self._listener = _listen(path)
        self._loop = asyncio.new_event_loop()
        self._conversations: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run, name="streams", daemon=True)

    def start(self) -> None:
        """Serve from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Close the socket and end all conversations."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(STOP_S)
        self._listener.close()
        self._path.unlink(missing_ok=True)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        accepting = self._loop.create_task(self._accept())
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(_ended({accepting, *self._conversations}))
            self._loop.close()

    async def _accept(self) -> None:
        while True:
            try:
                connection, _ = await self._loop.sock_accept(self._listener)
            except OSError as error:  # no descriptors are left: streams that end give some back
                log.warning("%s: %s", self._path, error)
                await asyncio.sleep(_FULL_S)
                continue
            if not self._welcome(connection):
                connection.close()
                continue
            task = self._loop.create_task(self._serve(connection))
            self._conversations.add(task)
            task.add_done_callback(self._conversations.discard)

    def _welcome(self, connection: socket.socket) -> bool:
        found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid, uid, _ = _CREDENTIALS.unpack(found)
        if uid != self._uid:
            log.warning("process %d of user %d was refused at %s: it is for user %d", pid, uid, self._path, self._uid)
            return False
        if len(self._conversations) >= MOST:
            log.warning("%s: %d connections are open already; refusing another", self._path, MOST)
            return False
        return True

    async def _serve(self, connection: socket.socket) -> None:
        channel = Channel(connection)
        try:
            async with asyncio.timeout(FIRST_S):
                first = await channel.receive()
        except (BadPacket, TimeoutError) as error:
            log.warning("%s: no request: %s", self._path, str(error) or f"nothing came within {FIRST_S:.0f} s")
            first = None
        if first is None:
            channel.close()
        elif first.message == ROLE:
            self._answers(connection)
        else:
            try:
                await converse(channel, lambda: self._opening(first.message))
            except Exception:
                log.exception("a stream failed")

    async def _opening(self, message: JsonObject) -> Opening:
        """Return what is asked for, when an API server asks."""
        fields = [message.get(key) for key in ("line", "signed", "certificate")]
        if len(message) != len(fields) or not all(isinstance(each, str) for each in fields):
            raise BadRequest("a request must consist of line, signature and certificate")
        line, signed, certificate = map(str, fields)
        self._signatures.check(line, signed, certificate)
        return await self._opened(parse_line(line))

    async def _opened(self, request: StreamRequest) -> Opening:
        if request.what == METRICS:
            return opening.of_metrics(self._metrics(request.flag("history")))
        route = self._routes(request.node)
        if route is None:
            raise ServiceUnavailable(f"the gateway has no connection to node {request.node}")
        docker = Dockerd(route.docker_socket)
        match request.what:
            case "exec":
                return await opening.of_exec(docker, request)
            case "attach":
                return await opening.of_attach(docker, request)
            case "log":
                return await opening.of_log(docker, request)
            case "portforward":
                return await Forwarding.of(docker, request, route)
            case "proxy":
                return await forwarding.of_proxy(docker, request, route)
        raise NotFound.path()


async def _ended(tasks: set[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _listen(path: Path) -> socket.socket:
    """Return the listening socket; anybody may connect, for who does is told by the kernel."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.setblocking(False)  # noqa: FBT003 - the standard library's signature
    try:
        path.unlink(missing_ok=True)
        listener.bind(str(path))
        path.chmod(0o666)
    except OSError as error:
        listener.close()
        raise ConfigurationError(f"streams.socket: cannot listen on {path}: {error.strerror or error}") from error
    listener.listen(128)
    return listener


def uid_of(user: str) -> int:
    """Return the number of the user ``streams.user``; ConfigurationError when there is none."""
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError as error:
        raise ConfigurationError(f"streams.user: there is no user {user} on this machine") from error
