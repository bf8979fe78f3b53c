"""log, exec, attach, port-forward, proxy: from an authorized request to a tunnel to the node's gateway, or its kubelet.

The answer's head is theirs, as is every error they find; only what can be told from the pod alone is told here
(pod_streams.py, proxying.py). Who is asked: ``kubelets.py``. What is proxied to a pod goes through gateways alone.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Callable
from typing import Any, NamedTuple

from flask import Request, Response

from minik8s_modules.api import objects
from minik8s_modules.api.errors import BadRequest, MethodNotAllowed
from minik8s_modules.api.kinds import ENDPOINT_SLICE, POD
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.apiserver.http import bodies, responses
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.intake.answer_heads import AnswerHead
from minik8s_modules.apiserver.intake.limits import Holder
from minik8s_modules.apiserver.nodes import gateways, kubelets, pod_streams, proxying
from minik8s_modules.apiserver.nodes.gateways import Gateways
from minik8s_modules.apiserver.nodes.kubelets import Kubelet, KubeletPath, Kubelets
from minik8s_modules.apiserver.nodes.pod_streams import Arguments, PodStream
from minik8s_modules.apiserver.nodes.proxying import Name, Place
from minik8s_modules.apiserver.nodes.tunnels import Tunnels
from minik8s_modules.apiserver.reads.watchers import take_socket
from minik8s_modules.store import readable

WsgiStart = Callable[..., Any]
_TEXT = "text/plain"


class Streams(NamedTuple):
    """Where streams go; without ``gateways`` they say so, without ``kubelets`` all nodes have gateways."""

    tunnels: Tunnels
    gateways: Gateways | None
    kubelets: Kubelets | None = None


class TunnelResponse(Response):
    """The answer to a stream: the connection goes to the tunnels, and the thread on to the next request.

    ``first`` goes to the ``gateway`` (or kubelet) behind the request it has got, as fast as it is taken there.
    """

    of_node = True

    def __init__(self, streams: Streams, gateway: socket.socket, holder: Holder, first: bytes = b"") -> None:
        super().__init__()
        self._holder = holder
        self._first = first
        self._gateway = gateway
        self._tunnels = streams.tunnels

    def __call__(self, environ: dict[str, Any], start_response: WsgiStart) -> Any:  # noqa: ARG002 - WSGI
        """Hand over; StopIteration is how the server is told that there is nothing left to answer."""
        client, ahead = take_socket(environ)
        head = AnswerHead(switches=bool(environ.get("HTTP_UPGRADE")), of_node=self.of_node)
        self._tunnels.join(client, self._gateway, self._holder, self._first + ahead, head)
        raise StopIteration


class ProxyResponse(TunnelResponse):
    """The answer of a Pod, which may lead where it wants to: ``streams/proxying.py`` has it lead through the proxy."""

    of_node = False


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
    kubelet = _kubelet(streams, backend, wanted.node)
    if kubelet is None:
        return TunnelResponse(streams, _by_gateway(streams, backend, wanted, request), holder)
    if target.subresource == "portforward":
        asked = kubelets.forward_wanted(pod, wanted.options)
    else:
        container = dict(wanted.options)["container"]
        asked = kubelets.command_wanted(pod, target.subresource, container, wanted.options)
    return TunnelResponse(streams, _by_kubelet(streams, kubelet, asked, request), holder)


def log(
    streams: Streams, backend: Backend, pod: JsonObject, arguments: Arguments, request: Request, holder: Holder
) -> Response:
    """Return the log of a container that ``arguments`` name."""
    streams.tunnels.admit(holder)
    kubelet = _kubelet(streams, backend, str(objects.spec(pod).get("nodeName") or ""))
    if kubelet is not None:
        container = pod_streams.log_of_kubelet(pod, arguments, backend.clock.now())
        options = {name: value for name in kubelets.LOG_OPTIONS if (value := arguments.get(name))}
        asked = kubelets.log_wanted(pod, container, options)
        return TunnelResponse(streams, _by_kubelet(streams, kubelet, asked, request), holder)
    wanted = pod_streams.log_request(pod, arguments, backend.clock.now())
    if wanted is None:
        return responses.raw(b"", media=_TEXT)
    return TunnelResponse(streams, _by_gateway(streams, backend, wanted, request), holder)


def _kubelet(streams: Streams, backend: Backend, node: str) -> Kubelet | None:
    return streams.kubelets.of(backend.cache, node) if streams.kubelets is not None and node else None


def _by_kubelet(streams: Streams, kubelet: Kubelet, asked: KubeletPath, request: Request) -> socket.socket:
    head = kubelets.request_bytes(request.method, kubelet, asked, request.headers)
    return kubelets.connected(streams.kubelets, kubelet, head)


def _by_gateway(streams: Streams, backend: Backend, wanted: PodStream, request: Request) -> socket.socket:
    url = gateways.endpoint_of(backend.cache, wanted.node)
    head = gateways.request_bytes(request.method, wanted, request.headers)
    return gateways.connect(streams.gateways, url, head)


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
    gateway = gateways.connect(streams.gateways, url, gateways.request_bytes(request.method, wanted, {}))
    return ProxyResponse(streams, gateway, holder, head + body)


def _place(backend: Backend, target: Target, wanted: Name) -> Place:
    """Return the port of the pod that is meant, or of one of the pods behind the service."""
    obj = backend.get(target).object
    if target.kind is POD:
        return Place(obj, proxying.pod_port(obj, wanted))

    def pod_of(name: str) -> JsonObject | None:
        found = backend.cache.get(POD.key(target.namespace, name))
        return found.object if found else None

    listed = backend.cache.list(f"{ENDPOINT_SLICE.prefix}{target.namespace}/").items
    slices = readable.objects_of(
        ENDPOINT_SLICE, [each for each in listed if each.labels.get(proxying.SERVICE_NAME) == target.name]
    )
    return random.choice(proxying.service_places(obj, wanted, slices, pod_of))  # noqa: S311 - load, no secret
