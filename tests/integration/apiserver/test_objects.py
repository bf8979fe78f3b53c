"""create, get, update, patch and delete over HTTP, with the answers Kubernetes gives."""

from __future__ import annotations

import threading

import pytest

from tests.integration.apiserver.conftest import Namespace, pod

MERGE = {"Content-Type": "application/merge-patch+json"}
STRATEGIC = {"Content-Type": "application/strategic-merge-patch+json"}
JSON_PATCH = {"Content-Type": "application/json-patch+json"}


def test_a_created_object_is_there_with_what_the_server_owns(namespace: Namespace):
    made = namespace.create("a", data={"k": "v"})
    assert made.code == 201
    metadata = made.json["metadata"]
    assert metadata["namespace"] == namespace.name
    assert metadata["uid"]
    assert metadata["creationTimestamp"].endswith("Z")
    assert namespace.get("a").json == made.json


def test_generate_name_makes_distinct_names(namespace: Namespace):
    body = {"metadata": {"generateName": "x-"}}
    answers = [namespace.server.request("POST", namespace.path("configmaps"), body) for _ in range(5)]
    names = {answer.json["metadata"]["name"] for answer in answers}
    assert len(names) == 5
    assert all(name.startswith("x-") for name in names)


def test_creating_twice_is_already_exists(namespace: Namespace):
    namespace.create("a")
    again = namespace.create("a")
    assert (again.code, again.json["reason"]) == (409, "AlreadyExists")
    assert again.json["message"] == 'configmaps "a" already exists'


def test_a_dry_run_stores_nothing(namespace: Namespace):
    path = namespace.path("configmaps") + "?dryRun=All"
    assert namespace.server.request("POST", path, {"metadata": {"name": "a"}}).code == 201
    assert namespace.get("a").code == 404
    namespace.create("b")
    path = namespace.path("configmaps", "b") + "?dryRun=All"
    assert namespace.server.request("DELETE", path).code == 200
    patched = namespace.server.request("PATCH", path, {"data": {"x": "y"}}, headers=MERGE)
    assert patched.json["data"] == {"x": "y"}
    assert "data" not in namespace.get("b").json


def test_an_update_with_an_old_resource_version_is_a_conflict(namespace: Namespace):
    first = namespace.create("a").json
    path = namespace.path("configmaps", "a")
    assert namespace.server.request("PUT", path, {**first, "data": {"n": "1"}}).code == 200
    stale = namespace.server.request("PUT", path, {**first, "data": {"n": "2"}})
    assert (stale.code, stale.json["reason"]) == (409, "Conflict")
    assert namespace.get("a").json["data"] == {"n": "1"}


def test_an_update_without_a_resource_version_wins(namespace: Namespace):
    namespace.create("a")
    body = {"metadata": {"name": "a"}, "data": {"n": "1"}}
    assert namespace.server.request("PUT", namespace.path("configmaps", "a"), body).code == 200


def test_a_write_that_changes_nothing_keeps_the_resource_version(namespace: Namespace):
    made = namespace.create("a", data={"k": "v"}).json
    path = namespace.path("configmaps", "a")
    same = namespace.server.request("PATCH", path, {"data": {"k": "v"}}, headers=MERGE)
    assert same.json["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


def test_concurrent_patches_all_land(namespace: Namespace):
    namespace.create("a")
    path = namespace.path("configmaps", "a")
    codes: list[int] = []

    def patch(number: int) -> None:
        answer = namespace.server.request("PATCH", path, {"data": {f"k{number}": "v"}}, headers=MERGE)
        codes.append(answer.code)

    threads = [threading.Thread(target=patch, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes == [200] * 8
    assert len(namespace.get("a").json["data"]) == 8


def test_a_json_patch_whose_test_fails_changes_nothing(namespace: Namespace):
    made = namespace.create("a", data={"k": "v"}).json
    ops = [{"op": "test", "path": "/data/k", "value": "other"}, {"op": "remove", "path": "/data/k"}]
    answer = namespace.server.request("PATCH", namespace.path("configmaps", "a"), ops, headers=JSON_PATCH)
    assert answer.code == 422
    assert namespace.get("a").json == made


def test_a_strategic_merge_merges_containers_by_name(namespace: Namespace):
    namespace.server.request("POST", namespace.path("pods"), pod("p"))
    body = {"spec": {"containers": [{"name": "c", "image": "other"}]}}
    answer = namespace.server.request("PATCH", namespace.path("pods", "p"), body, headers=STRATEGIC)
    assert answer.code == 200, answer.body
    (container,) = answer.json["spec"]["containers"]
    assert container["image"] == "other"
    assert container["imagePullPolicy"] == "Always"


def test_status_changes_only_through_its_subresource(namespace: Namespace):
    made = namespace.server.request("POST", namespace.path("pods"), pod("p")).json
    made["status"] = {"phase": "Running"}
    assert namespace.server.request("PUT", namespace.path("pods", "p"), made).json["status"]["phase"] == "Pending"
    status = {"status": {"phase": "Running"}, "spec": {"nodeName": "elsewhere"}}
    path = namespace.path("pods", "p", "status")
    answer = namespace.server.request("PATCH", path, status, headers=MERGE)
    assert answer.json["status"]["phase"] == "Running"
    assert "nodeName" not in answer.json["spec"]


def test_binding_assigns_a_pod_once(namespace: Namespace):
    namespace.server.request("POST", namespace.path("pods"), pod("p"))
    path = namespace.path("pods", "p", "binding")
    body = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}}
    assert namespace.server.request("POST", path, body).code == 201
    assert namespace.get("p", "pods").json["spec"]["nodeName"] == "n1"
    body["target"]["name"] = "n2"
    assert namespace.server.request("POST", path, body).code == 409
    assert namespace.get("p", "pods").json["spec"]["nodeName"] == "n1"


def test_a_running_pod_is_marked_and_goes_with_grace_zero(namespace: Namespace):
    server = namespace.server
    server.request("POST", namespace.path("pods"), pod("p", nodeName="n1"))
    marked = server.request("DELETE", namespace.path("pods", "p"), {"gracePeriodSeconds": 20})
    assert marked.json["metadata"]["deletionGracePeriodSeconds"] == 20
    assert namespace.get("p", "pods").json["metadata"]["deletionTimestamp"]
    server.request("DELETE", namespace.path("pods", "p"), {"gracePeriodSeconds": 0})
    assert namespace.get("p", "pods").code == 404


@pytest.mark.parametrize("field", ["uid", "resourceVersion"])
def test_a_precondition_that_does_not_hold_keeps_the_object(namespace: Namespace, field: str):
    namespace.create("a")
    options = {"preconditions": {field: "12"}}
    answer = namespace.server.request("DELETE", namespace.path("configmaps", "a"), options)
    assert (answer.code, answer.json["reason"]) == (409, "Conflict")
    assert namespace.get("a").code == 200


def test_finalizers_hold_an_object_until_the_last_is_gone(namespace: Namespace):
    namespace.create("a", metadata={"finalizers": ["example.com/x"]})
    path = namespace.path("configmaps", "a")
    assert namespace.server.request("DELETE", path).json["metadata"]["deletionTimestamp"]
    assert namespace.get("a").code == 200
    answer = namespace.server.request("PATCH", path, {"metadata": {"finalizers": None}}, headers=MERGE)
    assert answer.code == 200
    assert namespace.get("a").code == 404


def test_deletecollection_keeps_to_its_options(namespace: Namespace):
    for name in ("a", "b"):
        assert namespace.create(name).code == 201
    path = namespace.path("configmaps")
    assert namespace.server.request("DELETE", f"{path}?dryRun=All").code == 200
    assert (namespace.get("a").code, namespace.get("b").code) == (200, 200)
    assert namespace.server.request("DELETE", path, {"propagationPolicy": "Nonsense"}).code == 400
    only = f"{path}?fieldSelector=metadata.name%3Da"
    assert namespace.server.request("DELETE", only, {"propagationPolicy": "Orphan"}).code == 200
    assert namespace.get("a").json["metadata"]["finalizers"] == ["orphan"]
    assert "deletionTimestamp" not in namespace.get("b").json["metadata"]


def test_deletecollection_deletes_what_the_selector_names(namespace: Namespace):
    for name, app in (("a", "x"), ("b", "x"), ("c", "y")):
        namespace.create(name, metadata={"labels": {"app": app}})
    answer = namespace.server.request("DELETE", namespace.path("configmaps") + "?labelSelector=app%3Dx")
    assert [item["metadata"]["name"] for item in answer.json["items"]] == ["a", "b"]
    left = namespace.server.request("GET", namespace.path("configmaps")).json["items"]
    assert [item["metadata"]["name"] for item in left] == ["c"]


def test_deletecollection_at_a_former_revision_deletes_what_is_still_selected(namespace: Namespace):
    made = [namespace.create(name, metadata={"labels": {"app": "x"}}).json for name in ("a", "b", "c")]
    revision = made[-1]["metadata"]["resourceVersion"]
    server, path = namespace.server, namespace.path("configmaps")
    assert server.request("PATCH", f"{path}/b", {"metadata": {"labels": {"app": "y"}}}, headers=MERGE).code == 200
    assert server.request("DELETE", f"{path}/c").code == 200
    assert namespace.create("c", metadata={"labels": {"app": "x"}}).code == 201
    query = f"labelSelector=app%3Dx&resourceVersion={revision}&resourceVersionMatch=Exact"
    answer = server.request("DELETE", f"{path}?{query}")
    assert [item["metadata"]["name"] for item in answer.json["items"]] == ["a"]
    assert [namespace.get(name).code for name in ("a", "b", "c")] == [404, 200, 200]


@pytest.mark.parametrize(("policy", "finalizer"), [("Foreground", "foregroundDeletion"), ("Orphan", "orphan")])
def test_a_policy_for_dependents_holds_the_owner_until_another_is_asked_for(
    namespace: Namespace, policy: str, finalizer: str
):
    namespace.create("a")
    path = namespace.path("configmaps", "a")
    marked = namespace.server.request("DELETE", path, {"propagationPolicy": policy}).json["metadata"]
    assert marked["finalizers"] == [finalizer]
    assert "deletionTimestamp" in marked
    assert namespace.server.request("DELETE", path, {"propagationPolicy": "Background"}).json["status"] == "Success"
    assert namespace.server.request("GET", path).code == 404


def test_contradicting_policies_are_refused(namespace: Namespace):
    namespace.create("a")
    both = {"propagationPolicy": "Orphan", "orphanDependents": False}
    assert namespace.server.request("DELETE", namespace.path("configmaps", "a"), both).code == 400
    held = {"metadata": {"finalizers": ["orphan", "foregroundDeletion"]}}
    assert namespace.create("b", **held).code == 422


def test_a_namespace_being_deleted_takes_nothing_new_and_goes_by_finalize(namespace: Namespace):
    server, path = namespace.server, f"/api/v1/namespaces/{namespace.name}"
    assert server.request("DELETE", path).json["status"]["phase"] == "Terminating"
    refused = namespace.create("late")
    assert refused.code == 403
    assert refused.json["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    terminating = server.request("GET", path).json
    terminating["spec"]["finalizers"] = []
    assert server.request("PUT", path + "/finalize", terminating).code == 200
    assert server.request("GET", path).code == 404


def test_an_object_in_a_namespace_that_does_not_exist_is_not_found(namespace: Namespace):
    answer = namespace.server.request("POST", "/api/v1/namespaces/nowhere/configmaps", {"metadata": {"name": "a"}})
    assert (answer.code, answer.json["message"]) == (404, 'namespaces "nowhere" not found')


def test_generation_follows_the_spec_alone(namespace: Namespace):
    server, path = namespace.server, namespace.path("pods", "p")
    server.request("POST", namespace.path("pods"), pod("p"))
    labelled = server.request("PATCH", path, {"metadata": {"labels": {"a": "b"}}}, headers=MERGE)
    assert labelled.json["metadata"]["generation"] == 1
    body = {"spec": {"containers": [{"name": "c", "image": "other"}]}}
    changed = server.request("PATCH", path, body, headers=STRATEGIC)
    assert changed.json["metadata"]["generation"] == 2


def test_events_are_one_store_under_two_groups(namespace: Namespace):
    event = {
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "namespace": namespace.name, "name": "p"},
        "reason": "Scheduled",
        "message": "told",
        "type": "Normal",
    }
    made = namespace.server.request("POST", namespace.path("events"), event)
    assert made.code == 201, made.body
    other = namespace.server.request("GET", f"/apis/events.k8s.io/v1/namespaces/{namespace.name}/events/e").json
    assert (other["apiVersion"], other["note"], other["regarding"]["name"]) == ("events.k8s.io/v1", "told", "p")
    listed = namespace.server.request("GET", f"/apis/events.k8s.io/v1/namespaces/{namespace.name}/events").json
    assert [item["note"] for item in listed["items"]] == ["told"]


def test_services_get_addresses_that_are_theirs_alone(namespace: Namespace):
    server = namespace.server

    def create(name: str, **spec: object) -> int:
        body = {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}}
        return server.request("POST", namespace.path("services"), body).code

    assert [create("a"), create("b")] == [201, 201]
    first, second = (namespace.get(name, "services").json["spec"]["clusterIP"] for name in "ab")
    assert first != second
    assert create("c", clusterIP=first) == 422
    assert create("d", clusterIP="10.1.2.3") == 422
    server.request("DELETE", namespace.path("services", "a"))
    assert create("c", clusterIP=first) == 201


def test_a_replaced_service_keeps_its_address(namespace: Namespace):
    body = {"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}]}}
    made = namespace.server.request("POST", namespace.path("services"), body).json
    body["spec"] = {"ports": [{"port": 81}]}
    answer = namespace.server.request("PUT", namespace.path("services", "a"), body)
    assert answer.code == 200, answer.body
    assert answer.json["spec"]["clusterIP"] == made["spec"]["clusterIP"]
