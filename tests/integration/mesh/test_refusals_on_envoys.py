"""A text that a real Envoy refuses: it keeps what it had, takes what came beside it, and the object says so.

What pilots accept, Envoys of the image take; this one has a lower limit of regular expressions, as another build might.
"""

from __future__ import annotations

import yaml

from minik8s_modules.api.kinds import EVENT, VIRTUAL_SERVICE
from minik8s_modules.api.objects import JsonObject
from tests.integration.control.conftest import Daemon
from tests.integration.mesh.conftest import LONG_S, OK, PORT, Mesh
from tests.integration.mesh.test_looking_on_envoys import stand
from tests.support.waiting import until

LIMIT = ("re2.max_program_size.error_level: 10000", "re2.max_program_size.error_level: 100")
LONG = "/[a-z]{200}"


def virtual(mesh: Mesh, service: str, *subsets: JsonObject) -> JsonObject:
    meta = {"name": f"of-{service}", "namespace": mesh.namespace}
    spec = {"serviceRef": service, "port": PORT, "subsets": [*subsets]}
    return {"apiVersion": "v1", "kind": VIRTUAL_SERVICE.kind, "metadata": meta, "spec": spec}


def apply(mesh: Mesh, *found: JsonObject) -> None:
    mesh.cluster.server.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(found))


def refusals(mesh: Mesh) -> dict[str, str]:
    """Return what Events say of refusals, by the VirtualService that they are about."""
    found = mesh.cluster.admin.list(EVENT, mesh.namespace).items
    return {each["involvedObject"]["name"]: each["message"] for each in found if each["reason"] == "RefusedBySidecar"}


def test_what_is_refused_harms_nothing_else_and_is_an_event_of_its_object(mesh: Mesh, controllers: Daemon):
    assert controllers.process is not None
    reviews, ratings = mesh.service(), mesh.service("ratings")
    for app in ("reviews", "ratings"):
        for version in ("a", "b"):
            mesh.pod(f"{app}-{version}", app=app)
            mesh.subset(f"{app}-{version}", f"{app}-{version}")
    first = [virtual(mesh, app, {"name": f"{app}-a", "weight": 1}) for app in ("reviews", "ratings")]
    apply(mesh, *first)
    client = mesh.client(replaced=[LIMIT])
    for address, body in ((reviews, "reviews-a v1"), (ratings, "ratings-a v1")):
        until(lambda at=address, body=body: client.get(at) == (OK, body), LONG_S)  # type: ignore[misc]

    # both changes are in one response: the sidecar hears of them when the pilot is back
    mesh.pilot.daemon.kill9()
    apply(
        mesh,
        virtual(mesh, "reviews", {"name": "reviews-b", "url": LONG}),
        virtual(mesh, "ratings", {"name": "ratings-b", "url": "/"}),
    )
    mesh.pilot.daemon.start()
    until(lambda: client.get(ratings) == (OK, "ratings-b v1"), LONG_S)
    until(lambda: "of-reviews" in refusals(mesh), LONG_S)
    assert "the sidecar of Pod client refused it" in refusals(mesh)["of-reviews"]
    assert "program size" in refusals(mesh)["of-reviews"], "in Envoy's words"
    assert "of-ratings" not in refusals(mesh)
    assert client.get(reviews) == (OK, "reviews-a v1")
    assert stand(mesh)["client"] in {"refused", "behind"}

    # what comes after it is taken: of others, and of the same object once it is right
    apply(mesh, virtual(mesh, "ratings", {"name": "ratings-a", "url": "/"}))
    until(lambda: client.get(ratings) == (OK, "ratings-a v1"), LONG_S)
    assert client.get(reviews) == (OK, "reviews-a v1")
    apply(mesh, virtual(mesh, "reviews", {"name": "reviews-b", "url": "/"}))
    until(lambda: client.get(reviews) == (OK, "reviews-b v1"), LONG_S)
    until(lambda: stand(mesh)["client"] == "synced", LONG_S)
