"""A weight that changes, on fifty real sidecars: how long until each sends requests elsewhere. It prints what it found.

One thread a client asks 20 times a second over a connection that it keeps, so times are exact to 50 ms; the rest of a
step (kubectl, 0.1 s and more) is not in them: they begin with the answer of the API server.
"""

from __future__ import annotations

import ctypes
import http.client
import os
import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from minik8s_modules.api.kinds import VIRTUAL_SERVICE
from minik8s_modules.api.objects import JsonObject
from tests.integration.control.conftest import Daemon
from tests.integration.mesh.conftest import LONG_S, PORT, Client, Mesh, serves
from tests.support.waiting import until

SIDECARS = int(os.environ.get("MINIK8S_SIDECARS", "50"))
CHANGES = 6
CLONE_NEWNET = 0x40000000
V1: list[JsonObject] = [{"name": "v1", "weight": 1}, {"name": "v2", "weight": 0}]
V2: list[JsonObject] = [{"name": "v1", "weight": 0}, {"name": "v2", "weight": 1}]


class Watched:
    """What a client is answered, and since when."""

    def __init__(self, client: Client, address: str, over: threading.Event) -> None:
        self._client, self._address, self._over = client, address, over
        self.body, self.since_s = "", 0.0
        self.failures = 0

    def run(self) -> None:
        """Ask, in the client's network namespace, until it is over."""
        with Path("/run/netns", self._client.namespace).open("rb") as namespace:
            assert ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET) == 0
        connection = http.client.HTTPConnection(self._address, PORT, timeout=LONG_S)
        while not self._over.wait(0.05):
            connection.request("GET", "/")
            answer = connection.getresponse()
            body = answer.read().decode()
            self.failures += answer.status != http.HTTPStatus.OK
            if body != self.body:
                self.body, self.since_s = body, time.monotonic()
        connection.close()


def test_a_weight_is_everywhere_at_once(mesh: Mesh, controllers: Daemon):
    assert controllers.process is not None
    address, over = mesh.service(), threading.Event()
    for name in ("a", "b"):
        mesh.pod(name, name)
    mesh.subset("v1", "a")
    mesh.subset("v2", "b")
    mesh.split(V1)
    clients = [mesh.client(f"client-{number}") for number in range(SIDECARS)]
    for each in clients:
        serves(each, address)
    watched = [Watched(each, address, over) for each in clients]
    with ThreadPoolExecutor(SIDECARS) as pool:
        running = [pool.submit(each.run) for each in watched]
        times: list[float] = []
        for number in range(CHANGES):
            body, weights = ("b b", V2) if number % 2 == 0 else ("a a", V1)
            until(lambda: len({each.body for each in watched}) == 1, LONG_S)
            mesh.cluster.admin.patch(VIRTUAL_SERVICE, "reviews", mesh.namespace, {"spec": {"subsets": weights}})
            begun = time.monotonic()
            until(lambda: all(each.body == body for each in watched), LONG_S)  # noqa: B023 - at once
            times += [1000 * (each.since_s - begun) for each in watched]
        over.set()
        for future in running:
            future.result(LONG_S)
    assert sum(each.failures for each in watched) == 0
    cuts = statistics.quantiles(times, n=20)
    found = f"p50 {cuts[9]:.0f} ms, p95 {cuts[18]:.0f} ms, worst {max(times):.0f} ms"
    print(f"{SIDECARS} sidecars, {CHANGES} changes: {found}")
