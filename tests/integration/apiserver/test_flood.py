"""Floods of lists starve nobody's writes: one user's wait in line, and those of many are told to come back."""

from __future__ import annotations

import threading
import time
from collections import Counter

from tests.integration.apiserver.conftest import Namespace
from tests.support.apiserver import ApiServerProcess

USERS, CLIENTS, ENOUGH_S = 12, 96, 5.0
TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}


def test_a_flood_of_lists_starves_no_write(server: ApiServerProcess, namespace: Namespace):
    for number in range(100):
        assert namespace.create(f"o-{number}", data={"a": "x"}).code == 201
    server.kubectl(
        "create", "rolebinding", "lister", "--clusterrole=view", "--group=listers", f"--namespace={namespace.name}"
    )
    server.kubectl(
        "create", "rolebinding", "writer", "--clusterrole=edit", "--user=writer", f"--namespace={namespace.name}"
    )
    listers = [server.identity(f"lister-{number}", "listers") for number in range(USERS)]
    writer = server.identity("writer")
    stop, flooded, codes, hints = threading.Event(), threading.Event(), Counter[int](), set[str]()

    def flood() -> None:
        """Send the requests of all connections before the first answer is read: that many stand in line at once."""
        connections = [server.connection(listers[number % USERS]) for number in range(CLIENTS)]
        for connection in connections:
            connection.connect()
        while not stop.is_set():
            for connection in connections:
                connection.request("GET", namespace.path("configmaps"), headers=TABLE)
            for connection in connections:
                answer = connection.getresponse()
                answer.read()
                codes[answer.status] += 1
                if answer.status == 429:
                    hints.add(answer.headers["Retry-After"])
                    flooded.set()
        for connection in connections:
            connection.close()

    thread = threading.Thread(target=flood)
    thread.start()
    try:
        slowest_s = 0.0
        for number in range(20):
            began = time.monotonic()
            answer = server.request(
                "POST", namespace.path("configmaps"), {"metadata": {"name": f"w-{number}"}}, client=writer
            )
            slowest_s = max(slowest_s, time.monotonic() - began)
            assert answer.code == 201, answer.body
        assert flooded.wait(60)
    finally:
        stop.set()
        thread.join()
    assert slowest_s < ENOUGH_S
    assert set(codes) == {200, 429}, codes
    assert hints == {"1"}
    metrics = server.request("GET", "/metrics").body.decode()
    assert 'apiserver_flowcontrol_rejected_requests_total{priority_level="lists",reason="queue-full"}' in metrics
    assert 'apiserver_flowcontrol_current_inqueue_requests{priority_level="lists"} 0' in metrics


def test_a_list_that_waits_for_a_revision_holds_no_seat(server: ApiServerProcess, namespace: Namespace):
    future = int(namespace.create("a").json["metadata"]["resourceVersion"]) + 1_000_000
    waiting = threading.Thread(
        target=server.request, args=("GET", f"{namespace.path('configmaps')}?resourceVersion={future}")
    )
    waiting.start()
    time.sleep(0.2)
    assert server.request("GET", namespace.path("configmaps")).code == 200
    assert waiting.is_alive(), "the other list waits for 3 s"
    waiting.join()
