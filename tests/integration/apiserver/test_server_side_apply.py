"""Server-side apply over HTTP: creation, no-ops, conflicts, subresources, races, and what is refused."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.integration.apiserver.conftest import Namespace

MEDIA = {"Content-Type": "application/apply-patch+yaml"}


def apply(namespace: Namespace, name, body, manager="me", plural="configmaps", **query):
    """Apply a configuration as ``manager``; ConfigMap unless ``body`` says otherwise."""
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, **body}
    asked = "&".join([f"fieldManager={manager}", *(f"{key}={value}" for key, value in query.items())])
    path = f"{namespace.path(plural, name)}?{asked}"
    return namespace.server.request("PATCH", path, json.dumps(config).encode(), headers=MEDIA)


def managers(answer):
    return {entry["manager"]: entry for entry in answer.json["metadata"]["managedFields"]}


def test_it_creates_then_changes_then_leaves_alone(namespace: Namespace):
    made = apply(namespace, "a", {"data": {"k": "v"}})
    assert made.code == 201
    changed = apply(namespace, "a", {"data": {"k": "w"}})
    assert (changed.code, changed.json["data"]) == (200, {"k": "w"})
    again = apply(namespace, "a", {"data": {"k": "w"}})
    assert again.body == changed.body


def test_yaml_is_read_and_fields_given_up_go(namespace: Namespace):
    apply(namespace, "a", {"data": {"k": "v", "l": "w"}})
    body = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  l: w\n"
    path = f"{namespace.path('configmaps', 'a')}?fieldManager=me"
    assert namespace.server.request("PATCH", path, body, headers=MEDIA).json["data"] == {"l": "w"}


def test_conflicts_are_409_with_causes_and_write_nothing(namespace: Namespace):
    before = apply(namespace, "a", {"data": {"k": "v"}}).json
    answer = apply(namespace, "a", {"data": {"k": "other"}}, manager="you")
    assert answer.code == 409
    assert answer.json["reason"] == "Conflict"
    assert answer.json["message"] == 'Apply failed with 1 conflict: conflict with "me": .data.k'
    cause = {"reason": "FieldManagerConflict", "message": 'conflict with "me"', "field": ".data.k"}
    assert answer.json["details"]["causes"] == [cause]
    assert namespace.get("a").json == before
    assert apply(namespace, "a", {"data": {"k": "other"}}, manager="you", force="true").json["data"] == {"k": "other"}


def test_plain_writes_are_noted_by_manager_or_user_agent(namespace: Namespace):
    made = namespace.server.request(
        "POST",
        namespace.path("configmaps"),
        {"metadata": {"name": "a"}, "data": {"k": "v"}},
        headers={"User-Agent": "tool/1.0 (x)"},
    )
    assert list(managers(made)) == ["tool"]
    patched = namespace.server.request(
        "PATCH", f"{namespace.path('configmaps', 'a')}?fieldManager=p", b'{"data":{"l":"w"}}',
        headers={"Content-Type": "application/merge-patch+json"},
    )  # fmt: skip
    assert managers(patched)["p"]["fieldsV1"] == {"f:data": {"f:l": {}}}


def test_status_is_applied_through_its_subresource(namespace: Namespace):
    spec = {"containers": [{"name": "c", "image": "i:1"}]}
    pod = {"kind": "Pod", "spec": spec}
    assert apply(namespace, "p", pod, plural="pods").code == 201
    path = f"{namespace.path('pods', 'p', 'status')}?fieldManager=kubelet"
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "status": {"phase": "Running"}}
    answer = namespace.server.request("PATCH", path, json.dumps(body).encode(), headers=MEDIA)
    assert answer.json["status"]["phase"] == "Running"
    assert managers(answer)["kubelet"]["subresource"] == "status"
    assert managers(answer)["kubelet"]["fieldsV1"] == {"f:status": {"f:phase": {}}}
    absent = namespace.server.request("PATCH", path.replace("/p/", "/q/"), json.dumps(body).encode(), headers=MEDIA)
    assert absent.code in {400, 404}


def test_dry_run_stores_nothing(namespace: Namespace):
    answer = apply(namespace, "a", {"data": {"k": "v"}}, dryRun="All")
    assert (answer.code, answer.json["data"]) == (201, {"k": "v"})
    assert namespace.get("a").code == 404


def test_many_appliers_at_once_all_get_through(namespace: Namespace):
    def one(number):
        return apply(namespace, "a", {"data": {f"k{number}": "v"}}, manager=f"m{number}").code

    with ThreadPoolExecutor(6) as pool:
        codes = list(pool.map(one, range(6)))
    assert sorted(codes) == [200] * 5 + [201]
    assert namespace.get("a").json["data"] == {f"k{number}": "v" for number in range(6)}


@pytest.mark.parametrize(
    ("body", "query", "code", "expected"),
    [
        ({}, {"manager": ""}, 422, "fieldManager: Required value: is required for apply patch"),
        ({"kind": "Pod"}, {}, 400, "does not match the expected kind"),
        ({"kind": ""}, {}, 400, "an applied configuration must have kind"),
        ({"data": {"k": 1}}, {}, 400, "cannot unmarshal number"),
        ({"dota": {}}, {}, 400, "field not declared in schema"),
        ({"dota": {}}, {"fieldValidation": "Strict"}, 400, 'strict decoding error: unknown field "dota"'),
        ({"metadata": {"name": "b"}}, {}, 400, "does not match the name on the URL"),
        ({"metadata": {"name": "a", "uid": "u"}}, {}, 409, "uid mismatch"),
        ({"metadata": {"name": "a", "managedFields": []}}, {}, 400, "metadata.managedFields must be nil"),
        ({}, {"force": "perhaps"}, 400, "must be true or false"),
    ],
)
def test_what_cannot_be_applied_is_told(namespace: Namespace, body, query, code, expected):
    answer = apply(namespace, "a", body, **query)
    assert (answer.code, expected in answer.json["message"]) == (code, True), answer.json
    assert namespace.get("a").code == 404


def test_force_is_for_apply_alone(namespace: Namespace):
    namespace.create("a")
    path = f"{namespace.path('configmaps', 'a')}?force=true"
    answer = namespace.server.request("PATCH", path, b"{}", headers={"Content-Type": "application/merge-patch+json"})
    assert answer.code == 422
    assert "may not be specified for non-apply patch" in answer.json["message"]
