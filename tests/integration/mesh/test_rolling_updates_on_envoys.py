"""RollingUpdates under load on real Envoys (S-17): no request fails, though servers end as if they were killed."""

from __future__ import annotations

from collections import Counter

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import POD, ROLLING_UPDATE
from minik8s_modules.api.objects import JsonObject
from tests.integration.control.conftest import Daemon
from tests.integration.mesh.conftest import LONG_S, PORT, Mesh, serves
from tests.support.waiting import until

TOTAL, ALIVE, RATE = 6, 4, 250
LEAST = 100
"""Requests a second of a client; one whose machine is busy asks fewer than it is told to."""


def status(mesh: Mesh) -> JsonObject:
    return objects.status(mesh.cluster.admin.get(ROLLING_UPDATE, "to-2", mesh.namespace))


def update(mesh: Mesh) -> None:
    spec = {"serviceRef": "reviews", "port": PORT, "minimumAlive": ALIVE, "interval": 1, "newPodSpec": mesh.spec("v2")}
    meta = {"name": "to-2", "namespace": mesh.namespace}
    mesh.cluster.admin.create(ROLLING_UPDATE, {"metadata": meta, "spec": spec})


def ends(mesh: Mesh, phase: str) -> None:
    until(lambda: status(mesh).get("phase") == phase, LONG_S)


def begins(mesh: Mesh, batch: int) -> None:
    until(lambda: (status(mesh).get("batch") or 0) >= batch, LONG_S)


def versions(answers: dict[str, int]) -> set[str]:
    found: Counter[str] = Counter()
    for body, count in answers.items():
        found[body.split()[1]] += count
    return set(found)


def test_no_request_fails_while_all_pods_are_replaced_and_while_they_go_back(mesh: Mesh, controllers: Daemon):
    assert controllers.process is not None
    address = mesh.service()
    for number in range(TOTAL):
        mesh.pod(f"r{number}")
    clients = [mesh.client(name) for name in ("client", "other")]
    for each in clients:
        serves(each, address)
    loads = [each.asking(address, RATE) for each in clients]
    update(mesh)
    ends(mesh, "Finished")
    assert {clients[0].get(address)[1].split()[1] for _ in range(2 * TOTAL)} == {"v2"}
    mesh.cluster.admin.patch(ROLLING_UPDATE, "to-2", mesh.namespace, {"spec": {"state": "Undone"}})
    ends(mesh, "Undone")
    for load in loads:
        found = load.stop()
        assert found["failures"] == []
        assert versions(found["answers"]) == {"v1", "v2"}
        asked = sum(found["answers"].values())
        assert asked >= LEAST * found["seconds"], "the load was not what it was to be"
        print(f"{asked} requests in {found['seconds']:.1f} s, p50 {found['latencies_ms'][asked // 2]:.1f} ms")


def test_pods_that_are_killed_one_after_the_other_take_no_get_with_them(mesh: Mesh, controllers: Daemon):
    """As in a Deployment's rollout whose program ends by SIGKILL: no sidecar is told before."""
    assert controllers.process is not None
    address = mesh.service()
    for number in range(3):
        mesh.pod(f"r{number}")
    client = mesh.client()
    serves(client, address)
    load = client.asking(address, RATE)
    for number in range(12):
        mesh.pod(f"r{number + 3}", "v2")
        until(lambda: client.get(address)[1].startswith(f"r{number + 3} "), LONG_S)  # noqa: B023 - at once
        mesh.cluster.admin.delete(POD, f"r{number}", mesh.namespace, grace_s=0)
    found = load.stop()
    assert found["failures"] == []
    asked = sum(found["answers"].values())
    assert asked >= LEAST * found["seconds"], "the load was not what it was to be"
    print(f"{asked} requests in {found['seconds']:.1f} s while 12 Pods were killed")


def test_no_request_fails_while_pilot_and_controllers_are_killed_in_the_middle(mesh: Mesh, controllers: Daemon):
    address = mesh.service()
    for number in range(TOTAL):
        mesh.pod(f"r{number}")
    client = mesh.client()
    serves(client, address)
    load = client.asking(address, RATE)
    update(mesh)
    for batch, daemon in ((1, mesh.pilot.daemon), (2, controllers), (3, mesh.pilot.daemon)):
        begins(mesh, batch)
        daemon.kill9()
        daemon.start()
    ends(mesh, "Finished")
    found = load.stop()
    assert found["failures"] == []
    assert versions(found["answers"]) == {"v1", "v2"}
