"""The few calls on a node's Docker that streams need, in asyncio, one connection a call.

Plain calls speak HTTP/1.0: the answer ends with the connection, and a log comes without a chunk head around every line.
exec and attach upgrade the connection, which then carries the container's streams in both directions. Behind either
answer Docker reads no further request, so such a connection can be given away: it is that one stream and nothing else.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlencode

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.errors import Minik8sError
from minik8s_modules.gateway.engine import API_VERSION
from minik8s_modules.gateway.errors import DockerUnavailable
from minik8s_modules.streams.connections import READ_BYTES, Connection, adopt

Query = Mapping[str, str]
TIMEOUT_S = 10.0
_SWITCHING, _OK = 101, 200
_ERROR = 300
_HEAD_BYTES = 64 * 1024
_PIECE_BYTES = 4096


class DockerRefused(Minik8sError):
    """Docker answered with an error; the message is its own."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Opened(NamedTuple):
    """A connection to Docker behind the head of its answer, and what was read of the rest already."""

    socket: socket.socket
    came: bytes


class Dockerd:
    """Docker behind the unix socket ``path``."""

    def __init__(self, path: str) -> None:
        self._path = path

    async def call(self, method: str, path: str, query: Query | None = None, body: Any = None) -> Any:
        """Return the JSON of the answer, None when it has none.

        Raises:
            DockerRefused: Docker said no.
            DockerUnavailable: no answer within 10 s.
        """
        try:
            async with asyncio.timeout(TIMEOUT_S):
                opened = await self.stream(method, path, query, body)
                try:
                    data = await _rest(opened)
                finally:
                    opened.socket.close()
        except TimeoutError as error:
            raise DockerUnavailable(f"docker did not answer {method} {path} within {TIMEOUT_S:.0f} s") from error
        return json.loads(data) if data.strip() else None

    async def stream(self, method: str, path: str, query: Query | None = None, body: Any = None) -> Opened:
        """Return the connection, placed at the answer's body, which lasts until its end."""
        return await self._open("1.0", method, path, query, body, "")

    async def upgraded(self, path: str, query: Query | None = None, body: Any = None) -> Opened:
        """Return the connection after its upgrade: raw bytes both ways."""
        return await self._open("1.1", "POST", path, query, body, "Connection: Upgrade\r\nUpgrade: tcp\r\n")

    async def hijack(self, path: str, query: Query | None = None, body: Any = None) -> Connection:
        """Return the same for use in this process."""
        return await adopt(*await self.upgraded(path, query, body))

    async def _open(self, version: str, method: str, path: str, query: Query | None, body: Any, headers: str) -> Opened:
        payload = json.dumps(body).encode() if body is not None else b""
        target = f"/v{API_VERSION}{path}" + (f"?{urlencode(query)}" if query else "")
        head = (
            f"{method} {target} HTTP/{version}\r\nHost: docker\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(payload)}\r\n{headers}\r\n"
        )
        loop, connection = asyncio.get_running_loop(), socket.socket(socket.AF_UNIX)
        connection.setblocking(False)  # noqa: FBT003 - the standard library's signature
        try:
            await loop.sock_connect(connection, self._path)
        except OSError as error:
            connection.close()
            raise DockerUnavailable(f"docker: {error}") from error
        try:
            await loop.sock_sendall(connection, head.encode() + payload)
            return await _accepted(connection)
        except (OSError, EOFError, ValueError) as error:
            connection.close()
            raise DockerUnavailable(f"docker broke off {method} {path}: {error}") from error
        except BaseException:
            connection.close()
            raise


async def _accepted(connection: socket.socket) -> Opened:
    """Read the answer's head; raises DockerRefused for anything but success."""
    loop, head, end = asyncio.get_running_loop(), b"", -1
    while end < 0:
        data = await loop.sock_recv(connection, _PIECE_BYTES)
        head += data
        if not data or len(head) > _HEAD_BYTES:
            raise EOFError("the head of its answer is incomplete")
        end = head.find(b"\r\n\r\n")
    opened = Opened(connection, head[end + 4 :])
    status = int(head.split(b" ", 2)[1])
    if status < _ERROR:
        return opened
    data = await _rest(opened)
    try:
        message = str(json.loads(data)["message"])
    except (ValueError, KeyError, TypeError):
        message = data.decode("utf-8", "replace").strip() or f"status {status}"
    raise DockerRefused(status, message)


async def _rest(opened: Opened) -> bytes:
    """Return what comes until the connection's end."""
    pieces = [opened.came]
    while data := await asyncio.get_running_loop().sock_recv(opened.socket, READ_BYTES):
        pieces.append(data)
    return b"".join(pieces)


async def find(docker: Dockerd, labels: Sequence[str]) -> list[JsonObject]:
    """Return Docker's short entries of all containers that carry ``labels`` (``key=value``)."""
    filters = json.dumps({"label": list(labels)})
    found: list[JsonObject] = await docker.call("GET", "/containers/json", {"all": "1", "filters": filters})
    return found
