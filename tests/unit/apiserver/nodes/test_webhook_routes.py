"""Where the API server has no route to a pod, a webhook in it is asked through the gateway of its node."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage

from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.nodes.webhook_routes import Routes
from minik8s_modules.apiserver.webhooks.calls import Webhooks
from minik8s_modules.apiserver.webhooks.places import Unreachable, client_of
from minik8s_modules.apiserver.webhooks.transport import Transport
from minik8s_modules.base.metrics import Registry
from tests.support.webhook import WebhookServer

NOWHERE = "192.0.2.55"  # RFC 5737: routed nowhere
SERVICE = {"metadata": {"name": "hook", "namespace": "default"}, "spec": {"ports": [{"port": 443}]}}


class Gateway:
    """Stands for the gateway and what parses streams: forwards channel 0 to a port of this machine."""

    def __init__(self, port: int, answer: bytes = b"HTTP/1.1 101 Switching Protocols\r\n\r\n") -> None:
        self.port, self.answer = port, answer
        self.asked: list[str] = []

    def connect(self, url: str, request: bytes) -> socket.socket:
        """Take a request."""
        self.asked.append(f"{url} {request.decode().splitlines()[0]}")
        ours, theirs = socket.socketpair()
        threading.Thread(target=self._guarded, args=(theirs,), daemon=True).start()
        return ours

    def _guarded(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            self._serve(client)

    def _serve(self, client: socket.socket) -> None:
        client.sendall(self.answer)
        frames, message = Connection(ConnectionType.SERVER), bytearray()
        with client, socket.create_connection(("127.0.0.1", self.port)) as pod:
            for channel in (0, 1):
                client.sendall(frames.send(BytesMessage(bytes([channel]) + self.port.to_bytes(2, "little"))))
            threading.Thread(target=self._back, args=(pod, client, frames), daemon=True).start()
            while data := client.recv(65536):
                frames.receive_data(data)
                for event in frames.events():
                    if isinstance(event, BytesMessage):
                        message += event.data
                        if event.message_finished:
                            pod.sendall(bytes(message[1:]))
                            message.clear()

    @staticmethod
    def _back(pod: socket.socket, client: socket.socket, frames: Connection) -> None:
        with contextlib.suppress(OSError):
            while data := pod.recv(1000):
                client.sendall(frames.send(BytesMessage(b"\0" + data)))


@pytest.fixture
def hook(tmp_path: Path) -> Iterator[WebhookServer]:
    with WebhookServer(tmp_path, names=("hook.default.svc",)) as server:
        yield server


def put(backend: Backend, key: str, obj: dict[str, Any]) -> None:
    backend.settle(backend.store.create(f"/registry/{key}", json.dumps(obj).encode()))


@pytest.fixture
def service(backend: Backend, hook: WebhookServer) -> None:
    """A Service with one endpoint, a pod that no route leads to."""
    put(backend, "core/services/default/hook", SERVICE)
    labels = {"kubernetes.io/service-name": "hook"}
    target = {"kind": "Pod", "namespace": "default", "name": "hook-0"}
    endpoints = {
        "metadata": {"name": "hook-1", "namespace": "default", "labels": labels},
        "ports": [{"port": hook.port}],
        "endpoints": [{"addresses": [NOWHERE], "targetRef": target}],
    }
    put(backend, "discovery.k8s.io/endpointslices/default/hook-1", endpoints)
    lease = {"metadata": {"name": "n1", "annotations": {"minik8s.io/stream-endpoint": "https://gateway:6446"}}}
    put(backend, "coordination.k8s.io/leases/kube-node-lease/n1", lease)


def add_pod(backend: Backend, ip: str = NOWHERE) -> None:
    meta = {"name": "hook-0", "namespace": "default", "uid": "u-0"}
    pod = {"metadata": meta, "spec": {"nodeName": "n1"}, "status": {"podIPs": [{"ip": ip}]}}
    put(backend, "core/pods/default/hook-0", pod)


def ask(backend: Backend, hook: WebhookServer, gateway: Gateway) -> bytes:
    config = {"service": {"namespace": "default", "name": "hook", "path": "/allow"}, "caBundle": hook.ca_bundle}
    webhooks = Webhooks(Registry(), Transport(Routes(backend.cache, gateway).connect))
    body = json.dumps({"request": {"uid": "u", "padding": "x" * 200_000}}).encode()
    try:
        return webhooks.call(client_of(config), body, 10, backend.cache)
    finally:
        webhooks.close()


@pytest.mark.usefixtures("service")
def test_a_pod_without_a_route_is_reached_through_its_gateway(backend: Backend, hook: WebhookServer) -> None:
    add_pod(backend)
    hook.answers["/allow"] = lambda _: {"allowed": True, "warnings": ["w" * 100_000]}
    gateway = Gateway(hook.port)
    answer = json.loads(ask(backend, hook, gateway))
    assert answer["response"]["allowed"] is True
    assert len(hook.reviews[0]["request"]["padding"]) == 200_000
    (asked,) = gateway.asked
    assert asked.startswith("https://gateway:6446 GET /nodes/n1/pods/u-0/portforward?")
    assert f"ports={hook.port}" in asked


@pytest.mark.usefixtures("service")
def test_only_the_pod_that_has_the_address_is_reached(backend: Backend, hook: WebhookServer) -> None:
    add_pod(backend, "192.0.2.56")
    gateway = Gateway(hook.port)
    webhooks = Webhooks(Registry(), Transport(Routes(backend.cache, gateway).connect))
    config = {"service": {"namespace": "default", "name": "hook"}, "caBundle": hook.ca_bundle}
    with pytest.raises(Unreachable):
        webhooks.call(client_of(config), b"{}", 1, backend.cache)
    assert gateway.asked == []


@pytest.mark.usefixtures("service")
def test_a_gateway_that_refuses_is_named(backend: Backend, hook: WebhookServer) -> None:
    add_pod(backend)
    with pytest.raises(Unreachable, match="the node's gateway answered HTTP"):
        ask(backend, hook, Gateway(hook.port, b"HTTP/1.1 404 Not Found\r\n\r\n"))
