"""A plan of routes shows whoever asks only what of them he may read.

The attack: somebody who may do anything in the namespace shop, and nothing elsewhere, plans routes and Gateways
that have to do with another namespace, to learn of its Pods, Services, hosts and routes.
"""

from __future__ import annotations

from typing import Any

import pytest

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.apiserver.nodes.plan_view import shown
from minik8s_modules.reconcile.planning.questions import Operation, Question
from minik8s_modules.reconcile.planning.simulated_mesh import mesh_notes
from minik8s_modules.reconcile.planning.simulated_services import PlannedServices
from tests.unit.mesh.gateways.declared import gateway, listener, obj, route, service
from tests.unit.reconcile.planning.test_simulated_routes import CALLED, cluster, pods_of

AWAY: dict[str, Any] = {"rules": [{"backendRefs": [{"name": "other", "namespace": "elsewhere", "port": 80}]}]}
OPEN = gateway(listener(allowedRoutes={"namespaces": {"from": "All"}}))
THEIRS = route("secret", namespace="elsewhere", hostnames=["hidden.example"], **AWAY)
WHENCE = [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": "shop"}]
GRANT = obj("ReferenceGrant", "g", {"from": WHENCE, "to": [{"group": "", "kind": "Service"}]}, "elsewhere")
PARENT = {**CALLED, "name": "other", "namespace": "elsewhere"}
HIDDEN = ("other-a", "hidden.example", "secret")


def told(
    question: JsonObject, *standing: JsonObject, seen: PlannedServices | None = None
) -> tuple[list[str], list[str]]:
    """Return what a plan says, and what of it is shown to who may read all of the namespace shop."""
    asked = Question((Operation("update", question),), frozenset())
    notes = [each.row() for each in mesh_notes(asked, seen or PlannedServices(), cluster(*standing))]

    def may(row: JsonObject) -> bool:
        return all(one["namespace"] == "shop" for one in row["about"])

    return [each["text"] for each in notes], shown({"nodes": {}, "messages": notes}, may)["messages"]


@pytest.mark.parametrize(
    ("planned", "standing"),
    [
        (route(**AWAY), [OPEN, GRANT]),
        (gateway(listener(port=8080, allowedRoutes={"namespaces": {"from": "All"}})), [OPEN, THEIRS]),
        (route("mine", parent=PARENT, **AWAY), [GRANT, OPEN]),
    ],
)
def test_pods_hosts_and_routes_of_another_namespace_are_not_shown(planned: JsonObject, standing: list[JsonObject]):
    everything, seen = told(planned, *standing)
    assert any(word in text for text in everything for word in HIDDEN), "there is something to hide"
    assert not [text for text in seen if any(word in text for word in HIDDEN)]


def test_a_change_of_ones_own_service_tells_nothing_of_the_routes_that_lead_to_it():
    theirs = route(
        "secret", namespace="elsewhere", rules=[{"backendRefs": [{"name": "web", "namespace": "shop", "port": 80}]}]
    )
    spec = {"from": [{**WHENCE[0], "namespace": "elsewhere"}], "to": [{"group": "", "kind": "Service"}]}
    changed = PlannedServices({"shop/web": service()}, {"shop/web": [pods_of("web", "web-z")]})
    everything, seen = told(route("none"), OPEN, theirs, obj("ReferenceGrant", "g", spec, "shop"), seen=changed)
    assert any("web-z" in text for text in everything)
    assert not any("web-z" in text for text in seen)


def test_who_is_not_let_in_is_told_no_names_of_listeners():
    closed = gateway(listener("internal-admin"))
    one = route(namespace="elsewhere")
    (text,) = (text for text in told(one, closed)[0] if "NotAllowedByListeners" in text)
    assert text.endswith("no listener takes an HTTPRoute of namespace elsewhere (allowedRoutes: namespaces Same)")
