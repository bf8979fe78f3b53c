"""RollingUpdates under load on real Envoys (S-17): no request fails, though servers end as if they were killed."""

from __future__ import annotations

from collections import Counter

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import POD, ROLLING_UPDATE
from minik8s_modules.api.objects import JsonObject
from tests.integration.control.conftest import Daemon
from tests.integration.mesh.conftest import LONG_S, PORT, Mesh
from tests.support.waiting import until

TOTAL, ALIVE = 6, 4


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


def versions(answers: Counter[str]) -> set[str]:
    found: Counter[str] = Counter()
    for body, count in answers.items():
        found[body.split()[1]] += count
    return set(found)


def test_no_request_fails_while_all_pods_are_replaced_and_while_they_go_back(mesh: Mesh, controllers: Daemon):
    assert controllers.process is not None
    address = mesh.service()
    for number in range(TOTAL):
        mesh.pod(f"r{number}")
    load = mesh.together(address)
    update(mesh)
    ends(mesh, "Finished")
    assert {mesh.clients[0].get(address)[1].split()[1] for _ in range(2 * TOTAL)} == {"v2"}
    mesh.cluster.admin.patch(ROLLING_UPDATE, "to-2", mesh.namespace, {"spec": {"state": "Undone"}})
    ends(mesh, "Undone")
    assert versions(load.stop()) == {"v1", "v2"}


def test_pods_that_are_killed_one_after_the_other_take_no_get_with_them(mesh: Mesh, controllers: Daemon):
    """As in a Deployment's rollout whose program ends by SIGKILL: no sidecar is told before."""
    assert controllers.process is not None
    address = mesh.service()
    for number in range(3):
        mesh.pod(f"r{number}")
    load = mesh.together(address)
    client = mesh.clients[0]
    for number in range(12):
        mesh.pod(f"r{number + 3}", "v2")
        until(lambda: client.get(address)[1].startswith(f"r{number + 3} "), LONG_S)  # noqa: B023 - at once
        mesh.cluster.admin.delete(POD, f"r{number}", mesh.namespace, grace_s=0)
    assert versions(load.stop()) == {"v1", "v2"}


def test_no_request_fails_while_pilot_and_controllers_are_killed_in_the_middle(mesh: Mesh, controllers: Daemon):
    address = mesh.service()
    for number in range(TOTAL):
        mesh.pod(f"r{number}")
    load = mesh.together(address)
    update(mesh)
    for batch, daemon in ((1, mesh.pilot.daemon), (2, controllers), (3, mesh.pilot.daemon)):
        begins(mesh, batch)
        daemon.kill9()
        daemon.start()
    ends(mesh, "Finished")
    assert versions(load.stop()) == {"v1", "v2"}
