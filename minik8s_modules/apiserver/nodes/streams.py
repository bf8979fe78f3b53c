"""log, exec, attach, port-forward: from an authorized request to a tunnel to the node's gateway.

The answer's head is the gateway's, as is every error it finds; only what can be told from the pod alone is told here
(pod_streams.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from flask import Request, Response

from minik8s_modules.api.errors import BadRequest, MethodNotAllowed
from minik8s_modules.apiserver.http import responses
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.intake.limits import Holder
from minik8s_modules.apiserver.nodes import gateways, pod_streams
from minik8s_modules.apiserver.nodes.gateways import Gateways
from minik8s_modules.apiserver.nodes.pod_streams import Wanted
from minik8s_modules.apiserver.nodes.tunnels import Tunnels
from minik8s_modules.apiserver.reads.watchers import take_socket

WsgiStart = Callable[..., Any]
_TEXT = "text/plain"


class Streams(NamedTuple):
    """Where streams go; without ``gateways`` they say so."""

    tunnels: Tunnels
    gateways: Gateways | None


class TunnelResponse(Response):
    """The answer to a stream: the connection goes to the tunnels, and the thread on to the next request."""

    def __init__(self, streams: Streams, url: str, request: bytes, holder: Holder) -> None:
        super().__init__()
        self._holder = holder
        self._gateway = gateways.connect(streams.gateways, url, request)
        self._tunnels = streams.tunnels

    def __call__(self, environ: dict[str, Any], start_response: WsgiStart) -> Any:  # noqa: ARG002 - WSGI
        """Hand over; StopIteration is how the server is told that there is nothing left to answer."""
        client, ahead = take_socket(environ)
        self._tunnels.join(client, self._gateway, self._holder, ahead)
        raise StopIteration


def answer(streams: Streams, backend: Backend, target: Target, request: Request, holder: Holder) -> Response:
    """Return the answer to a request for one of the streamed subresources."""
    if request.method == "HEAD":
        raise MethodNotAllowed(target.kind, "head")
    streams.tunnels.admit(holder)
    pod = backend.get(target).object
    arguments = request.args
    wanted: Wanted | None
    if target.subresource == "log":
        wanted = pod_streams.log_request(pod, arguments, backend.clock.now())
        if wanted is None:
            return responses.raw(b"", media=_TEXT)
    else:
        if not request.headers.get("Upgrade"):
            raise BadRequest("Upgrade request required")
        if target.subresource == "portforward":
            wanted = pod_streams.forward_request(pod, arguments)
        else:
            wanted = pod_streams.command_request(pod, target.subresource, arguments)
    url = gateways.endpoint_of(backend.cache, wanted.node)
    return TunnelResponse(streams, url, gateways.request_bytes(request.method, wanted, request.headers), holder)
