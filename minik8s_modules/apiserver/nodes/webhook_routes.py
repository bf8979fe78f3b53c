"""How the API server gets to a webhook in a pod: directly where it has a route, else through the gateway of its node.

An endpoint's address is tried first. Where that leads nowhere, and the address is that of a pod, a port-forward to the
pod is opened as kubectl would open one (WebSocket, ``v4.channel.k8s.io``: a byte for the channel before the data, and
first of all the port). TLS goes through it from end to end, so the gateway and what parses streams read nothing. The
pod must be the endpoint's own, of the Service's namespace and with that very address (proxying.py).
"""

from __future__ import annotations

import base64
import os
import select
import socket
import threading
import time
from collections.abc import Iterator

from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Ping
from wsproto.utilities import RemoteProtocolError

from minik8s_modules.api.errors import ServiceUnavailable
from minik8s_modules.api.kinds import POD
from minik8s_modules.api.objects import JsonObject, dig, name, namespace, spec
from minik8s_modules.api.pods.mirror_pods import node_uid
from minik8s_modules.apiserver.intake.connections import WOULD_BLOCK
from minik8s_modules.apiserver.nodes import gateways
from minik8s_modules.apiserver.nodes.gateways import Gateways
from minik8s_modules.apiserver.nodes.pod_streams import PodStream
from minik8s_modules.apiserver.webhooks.places import Address
from minik8s_modules.apiserver.webhooks.transport import direct, left_s
from minik8s_modules.store.cache import WatchCache

_DIRECT_S = 1.0
_REMEMBERED_S = 60.0
_DATA, _ERROR = 0, 1
_PORT_BYTES = 2
_HEAD_BYTES = 16 * 1024
_READ_BYTES = 64 * 1024
_BUFFER_BYTES = 512 * 1024
_HEADERS = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Protocol": "v4.channel.k8s.io",
}


class Routes:
    """See the top of this file; from any thread."""

    def __init__(self, cache: WatchCache, reach: Gateways | None) -> None:
        self._cache, self._gateways = cache, reach
        self._no_route: dict[str, float] = {}

    def connect(self, address: Address, deadline: float) -> socket.socket:
        """Return a connection to a webhook's address. Raises OSError."""
        pod = self._pod(address)
        if pod is None or self._gateways is None:
            return direct(address, deadline)
        node = str(spec(pod)["nodeName"])
        if self._no_route.get(node, 0.0) < time.monotonic():
            try:
                return direct(address, min(deadline, time.monotonic() + _DIRECT_S))
            except ConnectionRefusedError:
                raise
            except OSError:
                self._no_route[node] = time.monotonic() + _REMEMBERED_S
        return self._forwarded(pod, address.port, deadline)

    def _pod(self, address: Address) -> JsonObject | None:
        """Return the pod that has the address, if a Service says so and it is true."""
        found = self._cache.get(POD.key(*address.pod)) if address.pod else None
        if found is None or not dig(found.object, "spec", "nodeName"):
            return None
        own = {dig(each, "ip") for each in dig(found.object, "status", "podIPs") or []}
        return found.object if address.host in own else None

    def _forwarded(self, pod: JsonObject, port: int, deadline: float) -> socket.socket:
        options = (("namespace", namespace(pod)), ("pod", name(pod)), ("ports", str(port)))
        wanted = PodStream(spec(pod)["nodeName"], node_uid(pod), "portforward", options)
        headers = {**_HEADERS, "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode()}
        try:
            url = gateways.endpoint_of(self._cache, wanted.node)
            gateway = gateways.connect(self._gateways, url, gateways.request_bytes("GET", wanted, headers))
        except ServiceUnavailable as error:
            raise OSError(0, error.message) from error
        try:
            rest = _upgraded(gateway, deadline)
        except BaseException:
            gateway.close()
            raise
        ours, theirs = socket.socketpair()
        threading.Thread(target=_Pump(gateway, theirs, rest).run, name="webhook-tunnel", daemon=True).start()
        return ours


def _upgraded(gateway: socket.socket, deadline: float) -> bytes:
    """Return what came behind the head of the gateway's answer. Raises OSError unless it agrees."""
    head = b""
    while b"\r\n\r\n" not in head:
        gateway.settimeout(left_s(deadline))
        data = gateway.recv(_READ_BYTES)
        head += data
        if not data or len(head) > _HEAD_BYTES:
            raise OSError(0, "the node's gateway gave no answer")
    first, _, rest = head.partition(b"\r\n\r\n")
    if not first.startswith(b"HTTP/1.1 101 "):
        line = first.split(b"\r\n", 1)[0].decode("latin-1")[:100]
        raise OSError(0, f"the node's gateway answered {line}")
    return rest


class _Pump:
    """Carries bytes between a plain socket and the channels of a WebSocket, until one side ends."""

    def __init__(self, gateway: socket.socket, plain: socket.socket, rest: bytes) -> None:
        self._gateway, self._plain = gateway, plain
        self._frames = Connection(ConnectionType.CLIENT, trailing_data=rest)
        self._up, self._down = bytearray(), bytearray()
        self._message = bytearray()
        self._skip = {_DATA: _PORT_BYTES, _ERROR: _PORT_BYTES}
        self._open = True

    def run(self) -> None:
        """Carry until the end."""
        try:
            for each in (self._gateway, self._plain):
                each.setblocking(False)  # noqa: FBT003 - the standard library's signature
            self._take_frames()
            while self._open or self._down:
                if not self._turn():
                    self._wait()
        except (OSError, ValueError, RemoteProtocolError):
            pass  # either side is gone; the other is told by the close
        finally:
            self._gateway.close()
            self._plain.close()

    def _turn(self) -> int:
        """Move what can be moved now; return how many bytes."""
        moved = 0
        if self._open and len(self._down) < _BUFFER_BYTES:
            for data in _received(self._gateway):
                moved += len(data) or 1
                self._open = self._open and bool(data)
                if data:
                    self._frames.receive_data(data)
                    self._take_frames()
        if len(self._up) < _BUFFER_BYTES:
            for data in _received(self._plain):
                if not data:
                    raise ConnectionResetError("the call has ended")
                moved += len(data)
                self._up += self._frames.send(BytesMessage(bytes([_DATA]) + data))
        return moved + _sent(self._gateway, self._up) + _sent(self._plain, self._down)

    def _wait(self) -> None:
        poll = select.poll()
        for sock, reads, writes in (
            (self._gateway, self._open and len(self._down) < _BUFFER_BYTES, bool(self._up)),
            (self._plain, len(self._up) < _BUFFER_BYTES, bool(self._down)),
        ):
            if reads or writes:  # who waits for nothing would be told of a hang-up again and again
                poll.register(sock, (select.POLLIN if reads else 0) | (select.POLLOUT if writes else 0))
        poll.poll()

    def _take_frames(self) -> None:
        for event in self._frames.events():
            if isinstance(event, BytesMessage):
                self._message += event.data
                if event.message_finished:
                    self._take(bytes(self._message))
                    self._message.clear()
            elif isinstance(event, Ping):
                self._up += self._frames.send(event.response())
            elif isinstance(event, CloseConnection):
                self._open = False

    def _take(self, message: bytes) -> None:
        channel, data = message[0] if message else -1, message[1:]
        skipped = min(self._skip.get(channel, 0), len(data))
        if skipped:
            self._skip[channel] -= skipped
        if channel == _DATA:
            self._down += data[skipped:]
        elif channel == _ERROR and data[skipped:]:
            self._open = False


def _received(source: socket.socket) -> Iterator[bytes]:
    """Yield what has come, b"" for the end; nothing where nothing has."""
    try:
        yield source.recv(_READ_BYTES)
    except WOULD_BLOCK:
        return


def _sent(sink: socket.socket, held: bytearray) -> int:
    """Send what goes, take it from ``held``, and return how much it was."""
    if not held:
        return 0
    try:
        sent = sink.send(bytes(held[:_READ_BYTES]))
    except WOULD_BLOCK:
        return 0
    del held[:sent]
    return sent
