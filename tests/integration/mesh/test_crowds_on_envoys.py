"""Many Services of one port number, on a real Envoy: each is told when it is first called, and answers as few would."""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import ROLLING_UPDATE, SERVICE, VIRTUAL_SERVICE
from minik8s_modules.cli.mesh.sidecars import DUMP, Configuration, read_configuration
from minik8s_modules.mesh.crowds import CROWD, FEW
from minik8s_modules.mesh.resources import NO_ENDPOINT
from tests.integration.control.conftest import Daemon
from tests.integration.mesh.conftest import LONG_S, OK, PORT, Client, Mesh, run, serves
from tests.integration.mesh.test_looking_on_envoys import stand, statistics, traced
from tests.integration.mesh.test_many_sidecars import Watched
from tests.integration.mesh.test_routes_within_on_envoys import apply, route, to
from tests.support.gateway_api import definitions
from tests.support.waiting import until

CONNECT = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=60) as connection:
    connection.sendall(sys.argv[3].encode())
    print(connection.recv(1000).decode())
"""


def shop(mesh: Mesh) -> tuple[list[str], Client]:
    """Make more Services than are told at once, all of the same two Pods, and a client."""
    for name in ("a", "b"):
        mesh.pod(name)
        mesh.subset(f"v-{name}", name)
    addresses = [mesh.service()]
    for number in range(CROWD + 1):
        meta = {"name": f"more-{number}", "namespace": mesh.namespace}
        spec = {"selector": {"app": "reviews"}, "ports": [{"port": PORT, "targetPort": 8080}]}
        made = mesh.cluster.admin.create(SERVICE, {"metadata": meta, "spec": spec})
        addresses.append(str(objects.spec(made)["clusterIP"]))
    client = mesh.client()

    def is_told() -> bool:
        with contextlib.suppress(AssertionError):  # it has just begun
            return len(configuration(client).crowds.get(PORT, ())) == len(addresses)
        return False

    until(is_told, LONG_S)
    return addresses, client


def configuration(client: Client) -> Configuration:
    return read_configuration(json.loads(client.stats(DUMP)))


def connected(client: Client, address: str, said: str) -> str:
    return client.inside(sys.executable, "-c", CONNECT, address, str(PORT), said)


def test_each_service_is_told_when_it_is_called_and_stays_without_a_pilot(mesh: Mesh, controllers: Daemon):
    assert controllers.process is not None
    (_reviews, *more), client = shop(mesh)
    assert [each.name for each in configuration(client).listeners] == []
    assert traced(mesh, "/") == []
    serves(client, more[0])
    assert {client.get(more[0])[1] for _ in range(10)} == {"a v1", "b v1"}
    assert client.get(more[1], method="POST", headers=("x-minik8s-destination: 1.2.3.4:5",))[0] == OK
    assert all("x-minik8s" not in head for of in mesh.node.requests.values() for head in of)
    assert {each.name.partition(".")[0] for each in configuration(client).listeners} == {"more-0", "more-1"}
    until(lambda: stand(mesh) == {"client": "synced"}, LONG_S)
    counted = until(lambda: statistics(client.own, "envoy_cluster_upstream_rq"), LONG_S)
    assert {'service="more-0"', f'service_namespace="{mesh.namespace}"'} < counted[0] | counted[-1]

    # what is no HTTP, to a Service and to an address that is none
    assert connected(client, more[2], "hello\r\n\r\n").startswith("HTTP/1.1 200")
    with socket.create_server((client.gateway, PORT)) as server, ThreadPoolExecutor(1) as pool:
        talking = pool.submit(connected, client, client.gateway, "GET / HTTP/1.1\r\n\r\n")
        peer, _address = server.accept()
        with peer:
            assert peer.recv(1000) == b"GET / HTTP/1.1\r\n\r\n"
            peer.sendall(b"as it was sent")
            assert talking.result(LONG_S).strip() == "as it was sent"

    mesh.pilot.daemon.kill9()
    assert client.get(more[0])[0] == OK
    with led_by_the_node(more[3]) as heads:
        begun = time.monotonic()
        assert client.get(more[3], "/x", headers=("x-minik8s-late: 1",)) == (OK, "by the node")
        waited_s = time.monotonic() - begun
        assert {client.get(more[3], "/y", method="POST") for _ in range(5)} == {(OK, "by the node")}
        assert [head.split()[0] for head in heads] == ["GET", *["POST"] * 5]
        assert not any("x-minik8s" in head for head in heads)
        assert waited_s > 1  # what the caller says of itself is not believed
    mesh.pilot.daemon.start()
    until(lambda: client.get(more[3], timeout_s=60)[1] in {"a v1", "b v1"}, LONG_S)
    until(lambda: stand(mesh) == {"client": "synced"}, LONG_S)
    for name in ("a", "b"):
        mesh.node.breaking.add(name)
    until(lambda: client.get(more[0])[0] == 503, LONG_S)
    mesh.node.breaking.clear()
    meta = {"name": "nobody", "namespace": mesh.namespace}
    spec = {"selector": {"app": "nobody"}, "ports": [{"port": PORT}]}
    nobody = mesh.cluster.admin.create(SERVICE, {"metadata": meta, "spec": spec})
    until(lambda: client.get(str(objects.spec(nobody)["clusterIP"])) == (503, NO_ENDPOINT), LONG_S)


@contextlib.contextmanager
def led_by_the_node(address: str) -> Iterator[list[str]]:
    """Answer at the address of a Service, as who stands behind a node's rules; yield the heads of requests."""
    heads: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            heads.append(f"{self.requestline}\n{self.headers}")
            self.send_response(OK)
            self.end_headers()
            self.wfile.write(b"by the node")

    for each in ("GET", "POST"):
        setattr(Handler, f"do_{each}", Handler.answer)
    run("ip", "addr", "replace", f"{address}/32", "dev", "lo")
    server = ThreadingHTTPServer((address, PORT), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield heads
    finally:
        server.shutdown()
        server.server_close()
        run("ip", "addr", "del", f"{address}/32", "dev", "lo")


def test_open_connections_follow_what_a_virtual_service_says(mesh: Mesh, controllers: Daemon):
    assert controllers.process is not None
    (reviews, *more), client = shop(mesh)
    serves(client, reviews)
    with watching(client, reviews) as watched:
        for subsets in (
            [{"name": "v-a", "weight": 0}, {"name": "v-b", "weight": 1}],
            [{"name": "v-a", "url": "^/$"}, {"name": "v-b", "url": "/b"}],
        ):
            mesh.split(subsets)
            until(lambda: stays(watched, "b v1" if "weight" in subsets[0] else "a v1"), LONG_S)  # noqa: B023 - at once
        assert client.get(reviews, "/b") == (OK, "b v1")
        assert client.get(reviews, "/c") == (503, NO_ENDPOINT)
        assert client.get(more[0], "/c")[0] == OK
        assert watched.failures == 0
        mesh.split([{"name": "v-a", "weight": 1}], fault={"abort": {"httpStatus": 418}})
        until(lambda: client.get(reviews)[0] == 418, LONG_S)
        assert client.get(more[0])[0] == OK
        until(lambda: stand(mesh) == {"client": "synced"}, LONG_S)
        mesh.cluster.admin.delete(VIRTUAL_SERVICE, "reviews", mesh.namespace)
        until(lambda: {client.get(reviews)[1] for _ in range(6)} == {"a v1", "b v1"}, LONG_S)
        until(lambda: watched.body in {"a v1", "b v1"}, LONG_S)


@contextlib.contextmanager
def watching(client: Client, address: str) -> Iterator[Watched]:
    """Ask over one connection meanwhile."""
    over = threading.Event()
    watched = Watched(client, address, over)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(watched.run)
        try:
            until(lambda: watched.body != "" or running.done(), LONG_S)
            yield watched
        finally:
            over.set()
        running.result(LONG_S)


def stays(watched: Watched, body: str) -> bool:
    """Return whether half a second of answers are the same."""
    return watched.body == body and time.monotonic() - watched.since_s > 0.5


def test_open_connections_lead_on_where_one_service_more_makes_many_and_one_less_few(mesh: Mesh, controllers: Daemon):
    assert controllers.process is not None
    (reviews, *_more), client = shop(mesh)
    some = [f"more-{number}" for number in range(CROWD + 2 - FEW)]
    for name in some:
        mesh.cluster.admin.delete(SERVICE, name, mesh.namespace)
    until(lambda: len(configuration(client).listeners) == FEW, LONG_S)
    spec = {"selector": {"app": "reviews"}, "ports": [{"port": PORT, "targetPort": 8080}]}
    with watching(client, reviews) as watched:
        for many in (True, False):
            for name in some:
                if many:
                    meta = {"name": name, "namespace": mesh.namespace}
                    mesh.cluster.admin.create(SERVICE, {"metadata": meta, "spec": spec})
                else:
                    mesh.cluster.admin.delete(SERVICE, name, mesh.namespace)
            until(lambda: (len(configuration(client).crowds) == 1) == many, LONG_S)  # noqa: B023 - at once
            serves(client, reviews)
            until(lambda: stand(mesh) == {"client": "synced"}, LONG_S)
            begun, watched.body = time.monotonic(), ""
            until(lambda: watched.body != "" and time.monotonic() - begun > 2, LONG_S)  # noqa: B023 - at once
    assert watched.failures == 0


def test_updates_wait_for_sidecars_that_have_called_nobody_and_routes_lead(mesh: Mesh, controllers: Daemon):
    assert controllers.process is not None
    (reviews, *more), client = shop(mesh)
    mesh.client("idle")
    serves(client, reviews)
    load = client.asking(reviews, 250)
    spec = {"serviceRef": "reviews", "port": PORT, "minimumAlive": 1, "interval": 1, "newPodSpec": mesh.spec("v2")}
    meta = {"name": "to-2", "namespace": mesh.namespace}
    mesh.cluster.admin.create(ROLLING_UPDATE, {"metadata": meta, "spec": spec})

    def phase() -> object:
        return objects.status(mesh.cluster.admin.get(ROLLING_UPDATE, "to-2", mesh.namespace)).get("phase")

    until(lambda: phase() == "Finished", LONG_S)
    until(lambda: {client.get(reviews)[1] for _ in range(6)} == {"a v2", "b v2"}, LONG_S)
    assert load.stop()["failures"] == []

    apply(mesh, *definitions())
    mesh.cluster.server.kubectl("wait", "--for=condition=Established", "crd", "--all")
    gone = {"matches": [{"path": {"type": "Exact", "value": "/gone"}}], **to(none=1)}
    apply(mesh, route(mesh, "all", gone, to(reviews=1)))
    until(lambda: client.get(reviews, "/gone")[0] == 500, LONG_S)
    assert client.get(reviews)[0] == client.get(more[0], "/gone")[0] == OK
    until(lambda: set(stand(mesh).values()) == {"synced"}, LONG_S)
    mesh.cluster.server.kubectl("-n", mesh.namespace, "delete", "httproute", "all")
    until(lambda: client.get(reviews, "/gone")[0] == OK, LONG_S)
