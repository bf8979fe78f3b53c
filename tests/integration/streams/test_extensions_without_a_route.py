"""An extension in a pod whose address the API server has no route to is asked through the gateway of the pod's node."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import API_SERVICE, ENDPOINT_SLICE, POD, SERVICE
from minik8s_modules.api.objects import JsonObject
from tests.integration.streams.conftest import Streaming
from tests.support.extension import GROUP, PATH, VERSION, Extension

NOWHERE = "192.0.2.78"  # RFC 5737: routed nowhere
NAME = f"{VERSION}.{GROUP}"
FLUNDERS = f"{PATH}/namespaces/default/flunders"


@pytest.fixture(scope="module")
def extension(streaming: Streaming, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Extension]:
    """An available extension in a pod's network, where no other process of the machine is reached."""
    made, folder = streaming.pod("api", "sleep 3600"), tmp_path_factory.mktemp("extension")
    within = ["nsenter", "-t", str(streaming.inspect(made)["State"]["Pid"]), "-n"]
    with Extension(folder, streaming.front_proxy, name="api.default.svc", prefix=within) as found:
        publish(streaming, made, found)
        try:
            yield found
        finally:
            streaming.admin.delete(API_SERVICE, NAME)


def publish(streaming: Streaming, made: JsonObject, extension: Extension) -> None:
    """Have the pod's address be one that leads nowhere, and the Service's endpoint with it; wait until it is asked."""
    admin, meta = streaming.admin, {"name": "api", "namespace": "default"}
    status = {"podIP": NOWHERE, "podIPs": [{"ip": NOWHERE}]}
    admin.patch(POD, "api", "default", {"status": status}, subresource="status")
    admin.create(SERVICE, {"metadata": meta, "spec": {"ports": [{"port": 443, "targetPort": extension.port}]}})
    target = {"kind": "Pod", "namespace": "default", "name": "api", "uid": made["metadata"]["uid"]}
    admin.create(
        ENDPOINT_SLICE,
        {
            "metadata": {**meta, "labels": {"kubernetes.io/service-name": "api"}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [NOWHERE], "conditions": {"ready": True}, "targetRef": target}],
            "ports": [{"port": extension.port}],
        },
    )
    admin.create(API_SERVICE, extension.api_service(service=meta))
    streaming.until(lambda: available(streaming).get("status") == "True")


def available(streaming: Streaming) -> JsonObject:
    """Return the condition ``Available``."""
    return objects.condition(streaming.admin.get(API_SERVICE, NAME), "Available") or {}


def test_it_is_asked_watched_and_upgraded_through_the_tunnel(streaming: Streaming, extension: Extension) -> None:
    assert available(streaming)["reason"] == "Passed"
    server = streaming.server
    assert server.request("GET", f"{FLUNDERS}/one").json["spec"] == {"reference": "one"}
    (asked,) = extension.asked(f"{FLUNDERS}/one")
    assert asked["peer"] == ["front-proxy-client"]  # TLS goes through the tunnel from end to end
    made = server.request("POST", FLUNDERS, {"kind": "Flunder", "metadata": {"name": "x"}, "data": "y" * 2_000_000})
    assert made.code == 201
    connection = server.connection()
    connection.request("GET", f"{FLUNDERS}?watch=true")
    assert json.loads(connection.getresponse().readline())["type"] == "ADDED"
    connection.close()
    assert "hello " in upgraded(streaming)


def upgraded(streaming: Streaming) -> str:
    """Return what comes back on an upgraded connection, up to what was sent there."""
    server, found = streaming.server, b""
    head = f"GET {FLUNDERS}/one/echo HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"
    plain = socket.create_connection(("127.0.0.1", server.port), 60)
    with server.context(server.admin).wrap_socket(plain, server_hostname="127.0.0.1") as stream:
        stream.sendall(head.encode())
        for sent in (b"", b"and back"):
            stream.sendall(sent)
            while not found.endswith(sent or b"hello "):
                data: Any = stream.recv(4096)
                assert data, found
                found += data
    return found.decode("latin-1")


def test_a_gateway_that_is_gone_makes_it_unavailable_until_it_is_back(
    streaming: Streaming, extension: Extension
) -> None:
    streaming.kill_gateway()
    # the server looks again at once when something of the Service changes, else after half a minute
    streaming.admin.patch(SERVICE, "api", "default", {"metadata": {"annotations": {"example.com/look": "again"}}})
    streaming.until(lambda: available(streaming).get("reason") == "FailedDiscoveryCheck")
    assert streaming.server.request("GET", FLUNDERS).code == 503
    streaming.start_gateway()
    streaming.until(lambda: available(streaming).get("reason") == "Passed")
    assert streaming.server.request("GET", FLUNDERS).code == 200
    assert extension.asked(FLUNDERS)
