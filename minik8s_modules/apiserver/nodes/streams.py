"""log, exec, attach, port-forward, proxy: from an authorized request to a tunnel to the node's gateway.

The answer's head is the gateway's, as is every error it finds; only what can be told from the pod alone is told here
(pod_streams.py, proxying.py).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

from flask import Request, Response

from minik8s_modules.api.errors import BadRequest, MethodNotAllowed
from minik8s_modules.api.kinds import ENDPOINT_SLICE, POD
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.apiserver.http import bodies, responses
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.intake.limits import Holder
from minik8s_modules.apiserver.nodes import gateways, pod_streams, proxying
from minik8s_modules.apiserver.nodes.gateways import Gateways
from minik8s_modules.apiserver.nodes.pod_streams import Arguments
from minik8s_modules.apiserver.nodes.proxying import Name, Place
from minik8s_modules.apiserver.nodes.tunnels import Tunnels
from minik8s_modules.apiserver.reads.watchers import take_socket

WsgiStart = Callable[..., Any]
_TEXT = "text/plain"


class Streams(NamedTuple):
    """Where streams go; without ``gateways`` they say so."""

    tunnels: Tunnels
    gateways: Gateways | None


class TunnelResponse(Response):
    """The answer to a stream: the connection goes to the tunnels, and the thread on to the next request.

    ``first`` goes to the gateway behind ``request``, as fast as it is taken there.
    """

    def __init__(self, streams: Streams, url: str, request: bytes, holder: Holder, first: bytes = b"") -> None:
        super().__init__()
        self._holder = holder
        self._first = first
        self._gateway = gateways.connect(streams.gateways, url, request)
        self._tunnels = streams.tunnels

    def __call__(self, environ: dict[str, Any], start_response: WsgiStart) -> Any:  # noqa: ARG002 - WSGI
        """Hand over; StopIteration is how the server is told that there is nothing left to answer."""
        client, ahead = take_socket(environ)
        self._tunnels.join(client, self._gateway, self._holder, self._first + ahead)
        raise StopIteration


def answer(streams: Streams, backend: Backend, target: Target, request: Request, holder: Holder) -> Response:
    """Return the answer to a request for one of the streamed subresources."""
    if request.method == "HEAD":
        raise MethodNotAllowed(target.kind, "head")
    streams.tunnels.admit(holder)
    pod = backend.get(target).object
    arguments = request.args
    if target.subresource == "log":
        return log(streams, backend, pod, arguments, request, holder)
    if not request.headers.get("Upgrade"):
        raise BadRequest("Upgrade request required")
    if target.subresource == "portforward":
        wanted = pod_streams.forward_request(pod, arguments)
    else:
        wanted = pod_streams.command_request(pod, target.subresource, arguments)
    url = gateways.endpoint_of(backend.cache, wanted.node)
    return TunnelResponse(streams, url, gateways.request_bytes(request.method, wanted, request.headers), holder)


def log(
    streams: Streams, backend: Backend, pod: JsonObject, arguments: Arguments, request: Request, holder: Holder
) -> Response:
    """Return the log of a container that ``arguments`` name."""
    streams.tunnels.admit(holder)
    wanted = pod_streams.log_request(pod, arguments, backend.clock.now())
    if wanted is None:
        return responses.raw(b"", media=_TEXT)
    url = gateways.endpoint_of(backend.cache, wanted.node)
    return TunnelResponse(streams, url, gateways.request_bytes(request.method, wanted, request.headers), holder)


def proxied(streams: Streams, backend: Backend, target: Target, request: Request, holder: Holder) -> Response:
    """Return the answer to a request for something below a proxy."""
    path = proxying.path_of(request.environ["RAW_URI"], request.path)
    if path.redirect and request.method in {"GET", "HEAD"} and not proxying.is_upgrade(request.headers):
        return Response(status=301, headers={"Location": path.redirect})
    name = proxying.name_of(target.name, target.kind.singular_name)
    place = _place(backend, target._replace(name=name.name, subresource=""), name)
    wanted = proxying.wanted(place, name.scheme, path.prefix)
    body = bodies.read(request)
    streams.tunnels.admit(holder, len(body))
    line = f"{request.method} {path.target} {request.environ['SERVER_PROTOCOL']}"
    head = proxying.forwarded(line, dict(request.headers), path, holder.address, len(body))
    url = gateways.endpoint_of(backend.cache, wanted.node)
    return TunnelResponse(streams, url, gateways.request_bytes(request.method, wanted, {}), holder, head + body)


def _place(backend: Backend, target: Target, wanted: Name) -> Place:
    """Return the port of the pod that is meant, or of one of the pods behind the service."""
    obj = backend.get(target).object
    if target.kind is POD:
        return Place(obj, proxying.pod_port(obj, wanted))

    def pod_of(name: str) -> JsonObject | None:
        found = backend.cache.get(POD.key(target.namespace, name))
        return found.object if found else None

    listed = backend.cache.list(f"{ENDPOINT_SLICE.prefix}{target.namespace}/").items
    slices = [each.object for each in listed if each.labels.get(proxying.SERVICE_NAME) == target.name]
    return random.choice(proxying.service_places(obj, wanted, slices, pod_of))  # noqa: S311 - load, no secret
