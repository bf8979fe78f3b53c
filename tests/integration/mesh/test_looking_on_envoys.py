"""What the commands say of real Envoys: what they have, where they lead, and a canary that is led by their figures."""

from __future__ import annotations

import json
import urllib.request
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import SERVICE, VIRTUAL_SERVICE
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import SystemClock
from minik8s_modules.cli.mesh.canary import Leading, Steps, Watching, follow
from minik8s_modules.cli.mesh.expecting import expected
from minik8s_modules.cli.mesh.looking import rows
from minik8s_modules.cli.mesh.sidecars import with_sidecars
from minik8s_modules.cli.mesh.tracing import by_sidecar
from tests.integration.control.conftest import Daemon
from tests.integration.mesh.conftest import LONG_S, PORT, Mesh
from tests.support.waiting import until

V1, V2 = {"name": "v1", "weight": 1}, {"name": "v2", "weight": 0}


def shop(mesh: Mesh, subsets: list[JsonObject]) -> str:
    address = mesh.service()
    for name in ("a", "b", "c"):
        mesh.pod(name, "v2" if name == "c" else "v1")
    mesh.subset("v1", "a", "b")
    mesh.subset("v2", "c")
    mesh.split(subsets)
    return address


def asking(mesh: Mesh) -> Any:
    clients = {client.name: client for client in mesh.clients}
    return lambda pod, path: json.loads(clients[objects.name(pod)].stats(path))


def stand(mesh: Mesh) -> dict[str, str]:
    wanted = {mesh.namespace: expected(mesh.cluster.admin, mesh.namespace)}
    pods = with_sidecars(mesh.cluster.admin, mesh.namespace)
    return {row[0]: row[2] for _namespace, row in rows(asking(mesh), pods, wanted, datetime.now(UTC))}


def traced(mesh: Mesh, path: str) -> list[str]:
    service = mesh.cluster.admin.get(SERVICE, "reviews", mesh.namespace)
    client: Any = mesh.cluster.admin
    lines, passes = by_sidecar(client, asking(mesh), mesh.namespace, "client", service, PORT, path)
    assert not passes
    return [line.text for line in lines][1:]


def test_sidecars_are_synced_and_behind_and_lead_where_they_say(mesh: Mesh, controllers: Daemon):
    address = shop(mesh, [{"name": "v1", "url": "/1"}, {"name": "v2", "url": "/2"}])
    client = mesh.client()
    until(lambda: client.get(address, "/2") == (200, "c v2"), LONG_S)
    until(lambda: stand(mesh) == {"client": "synced"}, LONG_S)
    assert traced(mesh, "/2/x") == ["path ~ /2", f"{mesh.address('c')}:8080 (c, of Subset v2): 100% of them"]
    assert [line.partition(" (")[2] for line in traced(mesh, "/1")[1:]] == [
        "a, of Subset v1): 50% of them",
        "b, of Subset v1): 50% of them",
    ]
    assert traced(mesh, "/9")[-1] == '503 {"error":"no available endpoint"}'
    mesh.pilot.daemon.kill9()
    mesh.split([{"name": "v1", "url": "/1"}, {"name": "v2", "url": "/3"}])
    until(lambda: stand(mesh) == {"client": "no pilot"}, LONG_S)
    mesh.pilot.daemon.start()
    until(lambda: stand(mesh) == {"client": "synced"}, LONG_S)
    assert controllers.process is not None
    counted = until(lambda: statistics(client.own, "envoy_http_downstream_rq"), LONG_S)
    assert all(
        {'service="reviews"', f'service_namespace="{mesh.namespace}"', f'service_port="{PORT}"'} < each
        for each in counted
    )
    assert {next(label for label in each if label.startswith("code_class")) for each in counted} <= {
        'code_class="2xx"', 'code_class="5xx"',
    }  # fmt: skip
    until(lambda: statistics(client.own, "envoy_http_downstream_rq_time_bucket"), LONG_S)  # they come with a flush


def statistics(address: str, name: str) -> list[set[str]]:
    """Return the labels of each series of a name that an Envoy tells Prometheus."""
    with urllib.request.urlopen(f"http://{address}:15090/stats/prometheus", timeout=LONG_S) as answer:
        lines = answer.read().decode().splitlines()
    return [set(line[len(name) + 1 :].partition("}")[0].split(",")) for line in lines if line.startswith(f"{name}{{")]


def test_a_canary_goes_up_under_load_without_a_failure_and_back_on_errors(mesh: Mesh, controllers: Daemon):
    address = shop(mesh, [V1, V2])
    load = mesh.together(address)
    client = mesh.clients[0]
    assert canary(mesh, 20, 60, 100) == 0
    assert {body.split()[1] for body in load.stop()} == {"v1", "v2"}
    assert {client.get(address)[1] for _ in range(5)} == {"c v2"}
    mesh.split([V1, V2])
    until(lambda: client.get(address)[1].endswith("v1"), LONG_S)
    mesh.node.codes["c"] = 500
    failing = client.asking(address, 250)
    assert canary(mesh, 20, 60, 100) == 1
    failing.stop()
    virtual = mesh.cluster.admin.get(VIRTUAL_SERVICE, "reviews", mesh.namespace)
    assert objects.spec(virtual)["subsets"] == [V1, V2]
    assert controllers.process is not None


def canary(mesh: Mesh, *percents: int) -> int:
    client: Any = mesh.cluster.admin
    leading = Leading(client, mesh.namespace, "reviews", "v2", 0)
    watching = Watching(client, asking(mesh), mesh.namespace, leading.pods)
    return follow(leading, watching, Steps(percents, 3.0, Fraction(1, 100)), SystemClock())
