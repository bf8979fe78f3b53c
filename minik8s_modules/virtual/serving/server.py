"""The listener of the kubelet's API: HTTPS with mutual TLS, one for all nodes of a process.

Whoever connects must have a certificate of the cluster that names one of ``clients``, by default the API servers': they
have asked who may do what. A connection carries one request. Which node is meant follows from the Pod; of paths without
one from the header Host, if the process carries several.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple, Protocol

from minik8s_modules.api import objects
from minik8s_modules.api.access.certificate_names import peer_names
from minik8s_modules.api.errors import StatusError
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.base.places import parse_place
from minik8s_modules.base.tls import server_context
from minik8s_modules.streams.connections import Connection
from minik8s_modules.streams.listener import CALLER
from minik8s_modules.streams.serving import Serving
from minik8s_modules.virtual.provider import Provider
from minik8s_modules.virtual.serving.answering import (
    RoutedRequest,
    serve_attach,
    serve_exec,
    serve_forward,
    serve_log,
    status_of,
)
from minik8s_modules.virtual.serving.bridging import Threads
from minik8s_modules.virtual.serving.requests import KubeletRequest, parse

log = logging.getLogger(__name__)

HEAD_S = 10.0
STOP_S = 5.0
_STREAMS: Mapping[str, Callable[[Connection, RoutedRequest], Awaitable[None]]] = {
    "log": serve_log,
    "exec": serve_exec,
    "attach": serve_attach,
    "portforward": serve_forward,
}
_TEXT, _JSON = "text/plain; version=0.0.4; charset=utf-8", "application/json"


class Files(NamedTuple):
    """Certificate and key of the server, the authority of its clients, and the names that these must have."""

    cert: Path
    key: Path
    client_ca: Path
    clients: frozenset[str] = frozenset({CALLER})


class Carried(Protocol):
    """What the server knows of the nodes of its process."""

    @property
    def providers(self) -> Mapping[str, Provider]:
        """The providers by node."""

    def find(self, namespace: str, name: str) -> JsonObject | None:
        """Return a Pod of one of the nodes."""

    def pods_of(self, node: str) -> list[JsonObject]:
        """Return the Pods of a node."""


class KubeletServer:
    """Listens on ``host``:``port`` (0: any free one) from its making on.

    Raises:
        ConfigurationError: it cannot listen there, or a file cannot be used.
    """

    def __init__(self, host: str, port: int, files: Files, carried: Carried) -> None:
        self._clients, self._carried = files.clients, carried
        try:
            self._context = server_context(files.cert, files.key, files.client_ca)
        except OSError as error:
            raise ConfigurationError(f"serving: cert, key or client_ca cannot be used: {error}") from error
        self._threads = Threads()
        self._serving = Serving("virtual-serving", host, port, self._context, self._answer)
        self.port = self._serving.port

    def start(self) -> None:
        """Serve from now on."""
        self._serving.start()

    def stop(self) -> None:
        """Close the listener and cut all streams."""
        self._serving.stop()
        self._threads.stop()

    def renew(self, cert: Path, key: Path) -> None:
        """Show another certificate to whoever connects from now on."""
        self._context.load_cert_chain(cert, key)

    async def _answer(self, client: Connection) -> None:
        try:
            async with asyncio.timeout(HEAD_S):
                head = await client.reader.readuntil(b"\r\n\r\n")
            self._admit(client)  # before anything is parsed
            await self._serve(client, parse(head))
        except LookupError as error:
            await _refuse(client, StatusError(HTTPStatus.NOT_FOUND, "NotFound", str(error)))
        except (ValueError, asyncio.LimitOverrunError, TimeoutError) as error:
            text = str(error) or "no request within 10 s"
            await _refuse(client, StatusError(HTTPStatus.BAD_REQUEST, "BadRequest", text))
        except StatusError as error:
            await _refuse(client, error)

    def _admit(self, client: Connection) -> None:
        try:
            caller = peer_names(client.writer.get_extra_info("peercert")).common_name
        except ValueError as error:
            raise StatusError(HTTPStatus.FORBIDDEN, "Forbidden", str(error)) from error
        if caller not in self._clients:
            text = f"this node answers {', '.join(sorted(self._clients))}, not {caller} (serving.clients)"
            raise StatusError(HTTPStatus.FORBIDDEN, "Forbidden", text)

    async def _serve(self, client: Connection, request: KubeletRequest) -> None:
        handler = _STREAMS.get(request.what)
        if handler is None:
            await self._tell(client, request)
            return
        asked = RoutedRequest(request, self._provider_of(request), self._threads)
        work = asyncio.ensure_future(handler(client, asked))
        gone = asyncio.ensure_future(client.closed())
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (work, gone):
                task.cancel()
            await asyncio.gather(work, gone, return_exceptions=True)
        with contextlib.suppress(asyncio.CancelledError):
            work.result()

    def _provider_of(self, request: KubeletRequest) -> Provider:
        pod = self._carried.find(request.namespace, request.pod)
        provider = self._carried.providers.get(str(objects.spec(pod or {}).get("nodeName") or ""))
        if provider is None:
            text = f"no Pod {request.namespace}/{request.pod} is on the nodes of this process"
            raise StatusError(HTTPStatus.NOT_FOUND, "NotFound", text)
        return provider

    async def _tell(self, client: Connection, request: KubeletRequest) -> None:
        if request.what == "healthz":
            await _send(client, HTTPStatus.OK, _TEXT, b"ok")
            return
        node = self._node_of(request)
        provider = self._carried.providers[node]
        try:
            media, body = await self._threads.run(lambda: self._figures(request.what, node, provider))
        except Exception as error:
            raise status_of(error) from error
        await _send(client, HTTPStatus.OK, media, body)

    def _node_of(self, request: KubeletRequest) -> str:
        given = request.stream.headers.get("host", "")
        host = parse_place(given)[0] or given
        nodes = self._carried.providers
        if host in nodes:
            return host
        if len(nodes) == 1:
            return next(iter(nodes))
        text = "this process carries several nodes: name one in the header Host"
        raise StatusError(HTTPStatus.BAD_REQUEST, "BadRequest", text)

    def _figures(self, what: str, node: str, provider: Provider) -> tuple[str, bytes]:
        if what == "summary":
            return _JSON, json.dumps(provider.get_stats_summary()).encode()
        if what == "resource":
            return _TEXT, provider.get_metrics_resource().encode()
        pods = provider.get_pods() if what == "runningpods" else self._carried.pods_of(node)
        items = [{**each, "apiVersion": "v1", "kind": "Pod"} for each in pods]
        return _JSON, json.dumps({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}).encode()


async def _refuse(client: Connection, error: StatusError) -> None:
    if client.started:  # it has its answer; that the stream ends without its proper end says the rest
        log.warning("an answer was cut: %s", error)
        return
    await _send(client, HTTPStatus(error.code), _JSON, json.dumps(error.status()).encode())


async def _send(client: Connection, code: HTTPStatus, media: str, body: bytes) -> None:
    head = (
        f"HTTP/1.1 {code.value} {code.phrase}\r\nContent-Type: {media}\r\n"
        f"Content-Length: {len(body)}\r\nCache-Control: no-cache, private\r\nConnection: close\r\n\r\n"
    )
    await client.write(head.encode() + body)
