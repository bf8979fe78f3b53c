"""HTTPRoutes whose parent is a Service, on real sidecars: whose requests they lead, and what is said of them."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import yaml

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import NAMESPACE, VIRTUAL_SERVICE
from minik8s_modules.api.network.gateway_api import GATEWAY_KINDS, GROUP
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.cli.mesh.expecting import expected
from minik8s_modules.cli.mesh.looking import rows
from minik8s_modules.cli.mesh.sidecars import with_sidecars
from tests.integration.control.conftest import Daemon
from tests.integration.mesh.conftest import LONG_S, OK, PORT, Client, Mesh, serves
from tests.support.gateway_api import definitions
from tests.support.waiting import until

ASKED = 300


def apply(mesh: Mesh, *found: JsonObject) -> None:
    mesh.cluster.server.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(found))


def route(mesh: Mesh, name: str, *rules: JsonObject, namespace: str = "") -> JsonObject:
    parent = {"group": "", "kind": "Service", "name": "reviews", "namespace": mesh.namespace}
    meta = {"name": name, "namespace": namespace or mesh.namespace}
    spec = {"parentRefs": [parent], "rules": [*rules]}
    return {"apiVersion": f"{GROUP}/v1", "kind": "HTTPRoute", "metadata": meta, "spec": spec}


def to(**weights: int) -> JsonObject:
    return {"backendRefs": [{"name": name, "port": PORT, "weight": weight} for name, weight in weights.items()]}


def reasons(mesh: Mesh, name: str, namespace: str = "") -> dict[str, str]:
    status = objects.status(mesh.cluster.admin.get(GATEWAY_KINDS.routes, name, namespace or mesh.namespace))
    found: JsonObject = next(iter(status.get("parents") or []), {})
    return {each["type"]: each["reason"] for each in found.get("conditions") or []}


def stand(mesh: Mesh, namespace: str, client: Client) -> set[str]:
    """Return how the sidecars of a namespace stand, as ``mesh status`` has it."""
    pods = with_sidecars(mesh.cluster.admin, namespace)
    wanted = {namespace: expected(mesh.cluster.admin, namespace)}

    def ask(_pod: JsonObject, path: str) -> Any:
        return json.loads(client.stats(path))

    return {row[2] for _namespace, row in rows(ask, pods, wanted, datetime.now(UTC))}


def shop(mesh: Mesh, elsewhere: str) -> tuple[str, Client, Client]:
    """Make Services reviews, which a VirtualService splits, and next; a client here and one elsewhere."""
    apply(mesh, *definitions())
    mesh.cluster.server.kubectl("wait", "--for=condition=Established", "crd", "--all")
    address = mesh.service()
    for name in ("reviews", "next"):
        mesh.pod(name, app=name)
    mesh.service("next")
    mesh.subset("only", "reviews")
    mesh.split([{"name": "only", "weight": 1}])
    here = mesh.client()
    mesh.cluster.admin.create(NAMESPACE, {"metadata": {"name": elsewhere}})
    there = mesh.client("caller", elsewhere)
    serves(here, address)  # what nothing leads is passed on to the Service, which no node makes here
    return address, here, there


def test_routes_lead_requests_of_their_own_namespace_or_of_all(mesh: Mesh, controllers: Daemon):
    assert controllers.process is not None
    elsewhere = f"{mesh.namespace}-elsewhere"
    address, here, there = shop(mesh, elsewhere)

    # a producer: all namespaces' requests; the VirtualService of that port says that it has no effect
    header = [{"name": "end-user", "value": "jason"}]
    added = {"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [{"name": "led", "value": "yes"}]}}
    apply(
        mesh,
        route(
            mesh,
            "all",
            {"matches": [{"headers": header}], **to(next=1), "filters": [added]},
            {"matches": [{"path": {"type": "PathPrefix", "value": "/shared"}}], **to(reviews=3, next=1)},
            {"matches": [{"path": {"type": "Exact", "value": "/gone"}}], **to(none=1)},
        ),
    )
    for each in (here, there):
        until(lambda each=each: each.get(address, "/", ["end-user: jason"]) == (OK, "next v1"), LONG_S)  # type: ignore[misc]
        assert each.get(address, "/")[0] == 404
        assert each.get(address, "/gone")[0] == 500
    assert any("led: yes" in head for head in mesh.node.requests["next"])
    found = Counter(here.get(address, "/shared/a")[1] for _ in range(ASKED))
    assert abs(found["next v1"] / ASKED - 0.25) < 0.09
    until(lambda: reasons(mesh, "all") == {"Accepted": "Accepted", "ResolvedRefs": "BackendNotFound"}, LONG_S)
    virtual = lambda: mesh.cluster.admin.get(VIRTUAL_SERVICE, "reviews", mesh.namespace)  # noqa: E731
    until(lambda: (objects.condition(virtual(), "Accepted") or {}).get("reason") == "Conflicted", LONG_S)
    until(lambda: stand(mesh, mesh.namespace, here) == {"synced"}, LONG_S)

    # a consumer: its own namespace's requests alone, to the Service that is its parent
    apply(mesh, route(mesh, "mine", {"backendRefs": [
        {"name": "reviews", "namespace": mesh.namespace, "port": PORT}]}, namespace=elsewhere))  # fmt: skip
    until(lambda: there.get(address, "/") == (OK, "reviews v1"), LONG_S)
    assert here.get(address, "/")[0] == 404
    until(lambda: reasons(mesh, "mine", elsewhere).get("ResolvedRefs") == "ResolvedRefs", LONG_S)
    until(lambda: stand(mesh, elsewhere, there) == {"synced"}, LONG_S)

    # a pilot that is killed takes nothing away, neither while it is gone nor when it is back
    mesh.pilot.daemon.kill9()
    mesh.pilot.daemon.start()
    until(lambda: stand(mesh, mesh.namespace, here) == {"synced"}, LONG_S)
    assert here.get(address, "/")[0] == 404
    assert there.get(address, "/") == (OK, "reviews v1")

    # a Pod that comes is heard of in other namespaces, too; without the route the VirtualService is back
    mesh.pod("reviews-b")
    until(lambda: {there.get(address)[1] for _ in range(20)} == {"reviews v1", "reviews-b v1"}, LONG_S)
    mesh.cluster.server.kubectl("-n", mesh.namespace, "delete", "httproute", "all")
    until(lambda: here.get(address, "/") == (OK, "reviews v1"), LONG_S)
    until(lambda: (objects.condition(virtual(), "Accepted") or {}).get("reason") == "Accepted", LONG_S)
