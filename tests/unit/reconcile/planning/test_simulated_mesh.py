"""What a plan says of sidecars: of VirtualServices, Subsets and Pods, as the pilot would decide afterwards."""

from __future__ import annotations

from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.sidecars import with_sidecar
from minik8s_modules.reconcile.planning.questions import Operation, Question
from minik8s_modules.reconcile.planning.simulated_mesh import mesh_notes
from minik8s_modules.reconcile.planning.simulated_services import Cluster, PlannedServices
from tests.unit.mesh.namespaces import declared

CASE: dict[str, Any] = {
    "services": [{"name": "reviews", "ports": [9080]}],
    "pods": {"reviews": ["a", "b", "c"]},
    "subsets": {"v1": ["a", "b"], "v2": ["c"]},
}
SPLIT = {"name": "x", "serviceRef": "reviews", "port": 9080}
OLD = [{"name": "v1", "weight": 1}, {"name": "v2", "weight": 0}]
NEW = [{"name": "v1", "weight": 1}, {"name": "v2", "weight": 1}]
TOLD = "1 sidecar of namespace shop would send requests to reviews:9080 otherwise: "


def virtual(subsets: list[JsonObject], **more: Any) -> JsonObject:
    made = declared({**CASE, "virtual": [{**SPLIT, "subsets": subsets, **more}]}).virtual_services[0]
    return {**made, "apiVersion": "v1", "kind": "VirtualService"}


def subset(name: str, *pods: str) -> JsonObject:
    return {"apiVersion": "v1", "kind": "Subset", "metadata": meta(name), "spec": {"pods": [*pods]}}


def meta(name: str) -> JsonObject:
    return {"name": name, "namespace": "shop"}


def cluster(*split: JsonObject) -> Cluster:
    found = declared(CASE)
    slices = {"shop/reviews": [*found.slices]}
    client = {"metadata": meta("client"), "spec": with_sidecar({"containers": [{"name": "app", "image": "i"}]})}
    subsets = [{**each, "kind": "Subset"} for each in found.subsets]
    return Cluster(
        (client, {"metadata": meta("a"), "spec": {"containers": []}}), (), (), services=tuple(found.services),
        slices=lambda key: slices.get(key, []), mesh=(*split, *subsets),
    )  # fmt: skip


def notes(cluster: Cluster, *operations: tuple[str, JsonObject], seen: PlannedServices | None = None) -> list[str]:
    question = Question(tuple(Operation(*each) for each in operations), frozenset())
    return [note.text for note in mesh_notes(question, seen or PlannedServices(), cluster)]


def test_other_weights_are_shown_pod_by_pod():
    shown = notes(cluster(virtual(OLD)), ("update", virtual(NEW)))
    assert shown == [f"{TOLD}a 50%, b 50% → a 25%, b 25%, c 50%"]
    assert notes(cluster(virtual(OLD)), ("update", virtual(OLD))) == []


def test_where_nobody_has_a_sidecar_no_requests_would_go_otherwise_and_faults_are_told_all_the_same():
    bare = cluster(virtual(OLD))
    bare = bare._replace(pods=bare.pods[1:])
    assert notes(bare, ("update", virtual(NEW))) == []
    (fault,) = notes(bare, ("update", virtual(NEW, port=1)))
    assert fault.startswith("VirtualService shop/x: PortNotFound")


def test_a_virtual_service_that_comes_or_goes_is_compared_with_what_the_pods_get_without_one():
    assert notes(cluster(), ("create", virtual(OLD))) == [f"{TOLD}a 33%, b 33%, c 33% → a 50%, b 50%"]
    assert notes(cluster(virtual(OLD)), ("delete", virtual(OLD))) == [f"{TOLD}a 50%, b 50% → a 33%, b 33%, c 33%"]


def test_a_subset_changes_those_that_name_it():
    assert notes(cluster(virtual(NEW)), ("update", subset("v1", "a"))) == [f"{TOLD}a 25%, b 25%, c 50% → a 50%, c 50%"]
    assert notes(cluster(), ("update", subset("v1", "a"))) == []


def test_what_is_done_with_requests_is_shown():
    (shown,) = notes(cluster(virtual(OLD)), ("update", virtual(OLD, timeout="2s")))
    assert shown == f'{TOLD}timeout none → "2s"'
    headers: list[JsonObject] = [*OLD[:1], {"name": "v2", "headers": {"end-user": "jason"}}]
    assert notes(cluster(virtual(OLD)), ("update", virtual(headers))) == [
        f"{TOLD}a 50%, b 50% → end-user: jason to c 100%; a 50%, b 50%"
    ]


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"serviceRef": "gone"}, "ServiceNotFound: there is no Service gone"),
        ({"port": 1}, "PortNotFound"),
        ({"name": "younger"}, "Conflicted: VirtualService x"),
    ],
)
def test_one_that_would_have_no_effect_says_why(changed: JsonObject, why: str):
    made = {**SPLIT, "subsets": OLD, **changed}
    name = made.pop("name")
    obj = {"apiVersion": "v1", "kind": "VirtualService", "metadata": meta(name), "spec": made}
    shown = notes(cluster(virtual(OLD)), ("create", obj))
    assert any(f"VirtualService shop/{name}: {why}" in text for text in shown), shown


def test_a_pod_that_goes_takes_its_share_along():
    standing = cluster(virtual(NEW))
    (service,) = standing.services
    fewer = declared({**CASE, "pods": {"reviews": ["a", "c"]}}).slices
    seen = PlannedServices({"shop/reviews": service}, {"shop/reviews": [*fewer]})
    assert notes(standing, seen=seen) == [f"{TOLD}a 25%, b 25%, c 50% → a 50%, c 50%"]
    gone = PlannedServices({"shop/reviews": None}, {"shop/reviews": []})
    assert notes(standing, seen=gone) == [
        f"{TOLD}a 25%, b 25%, c 50% → not by the mesh",
        "VirtualService shop/x: ServiceNotFound: there is no Service reviews with an address in this namespace",
    ]


def test_who_may_not_read_pods_is_not_shown_their_names():
    question = Question((Operation("update", virtual(NEW)),), frozenset())
    (note,) = mesh_notes(question, PlannedServices(), cluster(virtual(OLD)))
    assert {(one.kind, one.namespace) for one in note.about} == {
        (kind, "shop") for kind in ("VirtualService", "Subset", "Service", "Pod")
    }
    assert objects.name(cluster().pods[0]) not in note.text
