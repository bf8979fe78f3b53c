"""The few calls on a node's Docker that streams need, in asyncio, one connection a call.

Plain calls speak HTTP/1.0: the answer ends with the connection, and a log comes without a chunk head around every line.
exec and attach upgrade the connection, which then carries the container's streams in both directions.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from minik8s_modules.base.errors import Minik8sError
from minik8s_modules.gateway.engine import API_VERSION
from minik8s_modules.gateway.errors import DockerUnavailable
from minik8s_modules.gateway.streams.connections import BUFFER_BYTES, Connection

JsonObject = dict[str, Any]
Query = Mapping[str, str]
TIMEOUT_S = 10.0
_SWITCHING, _OK = 101, 200
_ERROR = 300


class DockerRefused(Minik8sError):
    """Docker answered with an error; the message is its own."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


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
                connection = await self.stream(method, path, query, body)
                try:
                    data = await connection.reader.read()
                finally:
                    connection.close()
        except TimeoutError as error:
            raise DockerUnavailable(f"docker did not answer {method} {path} within {TIMEOUT_S:.0f} s") from error
        return json.loads(data) if data.strip() else None

    async def stream(self, method: str, path: str, query: Query | None = None, body: Any = None) -> Connection:
        """Return the connection, placed at the answer's body, which lasts until its end."""
        return await self._open("1.0", method, path, query, body, "")

    async def hijack(self, path: str, query: Query | None = None, body: Any = None) -> Connection:
        """Return the connection after its upgrade: raw bytes both ways."""
        return await self._open("1.1", "POST", path, query, body, "Connection: Upgrade\r\nUpgrade: tcp\r\n")

    async def _open(
        self, version: str, method: str, path: str, query: Query | None, body: Any, headers: str
    ) -> Connection:
        payload = json.dumps(body).encode() if body is not None else b""
        target = f"/v{API_VERSION}{path}" + (f"?{urlencode(query)}" if query else "")
        head = (
            f"{method} {target} HTTP/{version}\r\nHost: docker\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(payload)}\r\n{headers}\r\n"
        )
        try:
            connection = Connection(*await asyncio.open_unix_connection(self._path, limit=BUFFER_BYTES))
        except OSError as error:
            raise DockerUnavailable(f"docker: {error}") from error
        try:
            await connection.write(head.encode() + payload)
            await _accept(connection)
        except (OSError, EOFError, ValueError) as error:
            connection.close()
            raise DockerUnavailable(f"docker broke off {method} {path}: {error}") from error
        except BaseException:
            connection.close()
            raise
        return connection


async def _accept(connection: Connection) -> None:
    """Read the answer's head; raises DockerRefused for anything but success."""
    head = await connection.reader.readuntil(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1])
    if status < _ERROR:
        return
    data = await connection.reader.read(BUFFER_BYTES)
    try:
        message = str(json.loads(data)["message"])
    except (ValueError, KeyError, TypeError):
        message = data.decode("utf-8", "replace").strip() or f"status {status}"
    raise DockerRefused(status, message)


async def find(docker: Dockerd, labels: Sequence[str]) -> list[JsonObject]:
    """Return Docker's short entries of all containers that carry ``labels`` (``key=value``)."""
    filters = json.dumps({"label": list(labels)})
    found: list[JsonObject] = await docker.call("GET", "/containers/json", {"all": "1", "filters": filters})
    return found
