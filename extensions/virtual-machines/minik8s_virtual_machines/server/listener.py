"""The listener: HTTPS, one request a connection; API servers are the only ones who ask.

Two kinds of requests come. Admission reviews come without a client certificate: what they get does not depend on who
asks, and changes nothing. All else comes through the front proxy, whose certificate of an authority of its own is the
only reason to believe its headers about the user. Both are in ConfigMap
``kube-system/extension-apiserver-authentication`` (``authorities.py``).
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple

from minik8s_modules.api.access.certificate_names import peer_names
from minik8s_modules.api.errors import StatusError
from minik8s_modules.base.errors import ConfigurationError, TemporaryError
from minik8s_modules.base.tls import server_context
from minik8s_modules.streams.connections import Connection
from minik8s_modules.streams.serving import Serving
from minik8s_virtual_machines.server.asked import Answer, Asked, as_json, length_of, parse

log = logging.getLogger(__name__)

HEAD_S, STOP_S = 10.0, 5.0
BODY_BYTES = 8 * 1024 * 1024
"""A review has an object twice, each of at most 3 MB."""
REVIEWS = "/admission/"


class Proxy(NamedTuple):
    """The front proxy: its authority, PEM, and the names that its certificate may have (none: any)."""

    authority: str
    names: frozenset[str]


Handler = Callable[[Connection, Asked], Awaitable[Answer | None]]
"""Answers, or returns None where it has spoken to the connection itself."""


class Listener:
    """Listens on ``host``:``port`` (0: any free one) from its making on. Raises ConfigurationError."""

    def __init__(self, host: str, port: int, cert: Path, key: Path, proxy: Proxy, handler: Handler) -> None:
        self._names, self._handler = proxy.names, handler
        try:
            self._context = server_context(cert, key)
            self._context.load_verify_locations(cadata=proxy.authority)
            self._context.verify_mode = ssl.CERT_OPTIONAL
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(f"serving: cert, key or the front proxy's authority: {error}") from error
        self._serving = Serving("vm-serving", host, port, self._context, self._serve)
        self.port = self._serving.port

    def start(self) -> None:
        """Serve from now on."""
        self._serving.start()

    def stop(self) -> None:
        """Close the listener and cut all streams."""
        self._serving.stop()

    async def _serve(self, client: Connection) -> None:
        try:
            answer = await self._answered(client)
        except (ValueError, asyncio.LimitOverrunError, TimeoutError) as error:
            text = str(error) or "no request within 10 s"
            answer = refusal(StatusError(HTTPStatus.BAD_REQUEST, "BadRequest", text))
        except StatusError as error:
            answer = refusal(error)
        except TemporaryError as error:
            answer = refusal(StatusError(HTTPStatus.SERVICE_UNAVAILABLE, "ServiceUnavailable", str(error)))
        if answer is not None and not client.started:
            await _send(client, answer)

    async def _answered(self, client: Connection) -> Answer | None:
        async with asyncio.timeout(HEAD_S):
            asked = parse(await client.reader.readuntil(b"\r\n\r\n"))
            if not asked.path.startswith(REVIEWS):
                self._admit(client)  # before a body is read, and before the headers are believed
            length = length_of(asked)
            if length > BODY_BYTES:
                text = f"a body has at most {BODY_BYTES} bytes"
                raise StatusError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "RequestEntityTooLarge", text)
            asked = asked._replace(body=await client.reader.readexactly(length))
        return await self._handler(client, asked)

    def _admit(self, client: Connection) -> None:
        """Let only the front proxy in. Raises StatusError (401, 403)."""
        try:
            name = peer_names(client.writer.get_extra_info("peercert")).common_name
        except ValueError as error:
            text = f"this server answers the front proxy of API servers alone: {error}"
            raise StatusError(HTTPStatus.UNAUTHORIZED, "Unauthorized", text) from error
        if self._names and name not in self._names:
            text = f"{name} is no front proxy; these are: {', '.join(sorted(self._names))}"
            raise StatusError(HTTPStatus.FORBIDDEN, "Forbidden", text)


def refusal(error: StatusError) -> Answer:
    """Return the answer that an error is."""
    return as_json(error.status(), HTTPStatus(error.code))


async def _send(client: Connection, answer: Answer) -> None:
    head = (
        f"HTTP/1.1 {answer.code.value} {answer.code.phrase}\r\nContent-Type: {answer.media}\r\n"
        f"Content-Length: {len(answer.body)}\r\nCache-Control: no-cache, private\r\nConnection: close\r\n\r\n"
    )
    await client.write(head.encode() + answer.body)


def loads(text: str) -> frozenset[str]:
    """Return the names in a JSON list, as the ConfigMap has them."""
    found = json.loads(text or "[]")
    return frozenset(str(each) for each in found) if isinstance(found, list) else frozenset()
