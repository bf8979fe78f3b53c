"""What a VirtualService does with requests besides splitting them, on a real Envoy: each field, served by xDS."""

from __future__ import annotations

import time
from collections import Counter

from tests.integration.control.conftest import Daemon
from tests.integration.mesh.conftest import LONG_S, OK, Client, Mesh
from tests.support.waiting import until

V1, V2 = {"name": "v1", "weight": 1}, {"name": "v2", "weight": 0}
BOTH = [V1, {**V2, "weight": 1}]


def shop(mesh: Mesh) -> tuple[str, Client]:
    address = mesh.service()
    for name in ("a", "b"):
        mesh.pod(name)
    mesh.subset("v1", "a")
    mesh.subset("v2", "b")
    mesh.split([V1, V2])
    client = mesh.client()
    until(lambda: client.get(address) == (OK, "a v1"), LONG_S)
    return address, client


def answers(client: Client, address: str, number: int) -> Counter[tuple[int, str]]:
    return Counter(client.get(address) for _ in range(number))


def test_each_field_does_what_it_says(mesh: Mesh, controllers: Daemon):
    assert controllers.process is not None
    address, client = shop(mesh)

    # headers
    mesh.split([V1, {**V2, "headers": {"end-user": "jason", "x-beta": "1"}}])
    jason = ("end-user: jason", "x-beta: 1")
    until(lambda: client.get(address, headers=jason)[1] == "b v1", LONG_S)
    assert client.get(address, headers=jason[:1])[1] == client.get(address)[1] == "a v1"

    # timeout: an answer that takes longer is 504, and one that does not is as ever
    mesh.node.delays_s["a"] = 1.0
    mesh.split([V1, V2], timeout="300ms")
    until(lambda: client.get(address)[0] == 504, LONG_S)
    mesh.split([V1, V2], timeout="20s")
    until(lambda: client.get(address) == (OK, "a v1"), LONG_S)
    mesh.node.delays_s.clear()

    # retries: the error of one Pod is answered by the other
    mesh.node.codes["a"] = 500
    mesh.split(BOTH)
    until(lambda: {code for code, _body in answers(client, address, 10)} == {OK, 500}, LONG_S)
    mesh.split(BOTH, retries={"attempts": 3, "retryOn": ["5xx"]})
    until(lambda: set(answers(client, address, 10)) == {(OK, "b v1")}, LONG_S)
    mesh.node.codes.clear()

    # faults
    mesh.split([V1, V2], fault={"abort": {"httpStatus": 418}})
    until(lambda: client.get(address)[0] == 418, LONG_S)
    mesh.split([V1, V2], fault={"delay": {"fixed": "500ms"}})
    until(lambda: client.get(address)[0] == OK, LONG_S)
    begun = time.monotonic()
    assert client.get(address) == (OK, "a v1")
    assert time.monotonic() - begun >= 0.5

    # copies go to the mirror, whose answers nobody sees
    mesh.split([V1, V2], mirror={"subset": "v2"})
    mesh.node.requests.clear()
    until(lambda: client.get(address) == (OK, "a v1") and mesh.node.requests.get("b"), LONG_S)
    assert "reviews" not in mesh.node.requests["b"][0]
    assert "-shadow" in mesh.node.requests["b"][0].lower(), "Envoy marks copies in their Host"

    # taken away again, nothing of it stays
    mesh.split([V1, V2])

    def is_plain() -> bool:
        mesh.node.requests.clear()
        return client.get(address) == (OK, "a v1") and "b" not in mesh.node.requests

    until(is_plain, LONG_S)
    assert set(answers(client, address, 5)) == {(OK, "a v1")}


def test_what_may_be_sent_twice_outlives_a_connection_that_ends_before_the_answer(mesh: Mesh, controllers: Daemon):
    assert controllers.process is not None
    address, client = shop(mesh)
    mesh.node.breaking.add("a")
    mesh.split(BOTH)
    until(lambda: {client.get(address, method="POST")[0] for _ in range(10)} == {OK, 503}, LONG_S)
    assert set(answers(client, address, 20)) == {(OK, "b v1")}
    assert {client.get(address, method="PUT")[0] for _ in range(20)} == {OK, 503}
    mesh.split(BOTH, retries={"attempts": 0})
    until(lambda: {code for code, _body in answers(client, address, 10)} == {OK, 503}, LONG_S)
