"""What the server puts into objects itself, on create and on update."""

from __future__ import annotations

import copy

import pytest

from minik8s_modules.api.errors import BadRequest
from minik8s_modules.api.kinds import (
    CERTIFICATE_SIGNING_REQUEST,
    CONFIG_MAP,
    DEPLOYMENT,
    JOB,
    KINDS,
    NAMESPACE,
    NODE,
    POD,
    POD_ADDRESS,
    SERVICE,
)
from minik8s_modules.api.lifecycle.strategy import prepare_create, prepare_update
from minik8s_modules.api.objects import metadata
from tests.unit.api import samples


def create(kind, obj, namespace="default"):
    prepare_create(kind, obj, namespace=namespace, now=samples.NOW, uid=samples.UID, name_suffix="abcde")
    return obj


def test_create_sets_what_the_server_owns():
    sent = samples.sample(POD)
    sent["metadata"] |= {
        "uid": "mine",
        "creationTimestamp": "1999-01-01T00:00:00Z",
        "deletionTimestamp": "1999-01-01T00:00:00Z",
        "deletionGracePeriodSeconds": 5,
        "generation": 7,
        "selfLink": "/x",
    }
    assert create(POD, sent)["metadata"] == {
        "name": "web",
        "namespace": "default",
        "uid": samples.UID,
        "creationTimestamp": "2026-01-01T12:00:00Z",
        "generation": 1,
    }


def test_the_namespace_of_the_request_is_put_in():
    assert create(POD, samples.sample(POD), "prod")["metadata"]["namespace"] == "prod"
    with pytest.raises(BadRequest, match="the namespace of the provided object does not match"):
        create(POD, samples.merged(samples.sample(POD), {"metadata": {"namespace": "other"}}))
    assert (
        "namespace"
        not in create(NODE, samples.merged(samples.sample(NODE), {"metadata": {"namespace": "x"}}))["metadata"]
    )


def test_generate_name_is_cut_and_gets_the_suffix():
    made = create(POD, {"metadata": {"generateName": "x" * 80}})
    assert made["metadata"]["name"] == "x" * 58 + "abcde"
    assert create(POD, {"metadata": {"generateName": "x-", "name": "given"}})["metadata"]["name"] == "given"


def test_status_is_reset_on_create():
    forged = {"status": {"phase": "Running", "podIP": "10.0.0.1"}}
    assert create(POD, samples.sample(POD) | forged)["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert create(NAMESPACE, samples.sample(NAMESPACE) | forged)["status"] == {"phase": "Active"}
    assert create(SERVICE, samples.sample(SERVICE) | forged)["status"] == {"loadBalancer": {}}
    assert create(NODE, samples.sample(NODE) | {"status": {"phase": "x"}})["status"] == {"phase": "x"}


def test_a_namespace_is_held_by_kubernetes():
    made = create(NAMESPACE, samples.sample(NAMESPACE) | {"spec": {"finalizers": ["a/b", "kubernetes"]}})
    assert made["spec"]["finalizers"] == ["kubernetes", "a/b"]


def updated(kind, change, subresource="", old=None):
    before = old or samples.created(samples.sample(kind))
    before["metadata"]["resourceVersion"] = "7"
    new = samples.merged(before, change)
    kept = copy.deepcopy(before)
    prepare_update(kind, new, before, subresource)
    assert before == kept
    return before, new


def test_update_keeps_what_the_server_owns():
    before, new = updated(
        POD,
        {
            "metadata": {
                "creationTimestamp": None,
                "uid": None,
                "deletionTimestamp": "2020-01-01T00:00:00Z",
                "generation": 99,
            },
            "status": {"phase": "Failed"},
        },
    )
    assert new == before


def test_another_uid_is_left_for_validation():
    _, new = updated(POD, {"metadata": {"uid": "other"}})
    assert new["metadata"]["uid"] == "other"


@pytest.mark.parametrize(
    ("change", "generation"),
    [({"spec": {"nodeName": "n1"}}, 2), ({"metadata": {"labels": {"a": "b"}}}, 1), ({"status": {"phase": "x"}}, 1)],
)
def test_generation_rises_with_the_spec_only(change, generation):
    _, new = updated(POD, change)
    assert new["metadata"]["generation"] == generation


def test_data_kinds_have_no_generation():
    _, new = updated(CONFIG_MAP, {"data": {"a": "b"}})
    assert "generation" not in new["metadata"]


def test_the_status_subresource_changes_status_only():
    change = {
        "metadata": {"labels": {"a": "b"}, "annotations": {"x": "y"}},
        "spec": {"unschedulable": True},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    before, new = updated(NODE, change, "status")
    assert new["status"] == change["status"]
    assert {key: value for key, value in new.items() if key != "status"} == {
        k: v for k, v in before.items() if k != "status"
    }


def test_a_status_may_bring_labels_and_annotations_and_take_none_away():
    old = {"metadata": {"labels": {"a": "1"}, "annotations": {"b": "1"}}}
    change = {"metadata": {"labels": {"a": "2"}, "annotations": {"c": "3"}}, "spec": {"suspend": True}}
    for kind, subresource in ((JOB, "status"), (CERTIFICATE_SIGNING_REQUEST, "approval")):
        _, new = updated(kind, change, subresource, samples.created(samples.merged(samples.sample(kind), old)))
        assert new["metadata"]["labels"]["a"] == "2"
        assert new["metadata"]["annotations"] == {"b": "1", "c": "3"}
        assert not new["spec"].get("suspend")


def test_a_deployments_labels_are_not_its_statuss_to_change():
    old = samples.created(samples.merged(samples.sample(DEPLOYMENT), {"metadata": {"labels": {"a": "1"}}}))
    _, new = updated(DEPLOYMENT, {"metadata": {"labels": {"a": "2"}, "annotations": {"c": "3"}}}, "status", old)
    assert new["metadata"]["labels"]["a"] == "1"
    assert new["metadata"]["annotations"]["c"] == "3"


def test_the_status_subresource_keeps_the_version_the_client_means():
    _, new = updated(POD, {"metadata": {"resourceVersion": "5"}}, "status")
    assert metadata(new)["resourceVersion"] == "5"


def test_status_can_be_emptied():
    _, new = updated(POD, {"status": None}, "status")
    assert "status" not in new


def test_only_finalize_lets_a_namespace_go():
    old = samples.created(samples.sample(NAMESPACE))
    _, new = updated(NAMESPACE, {"spec": {"finalizers": []}}, old=copy.deepcopy(old))
    assert new["spec"]["finalizers"] == ["kubernetes"]
    _, new = updated(NAMESPACE, {"spec": {"finalizers": []}, "status": {"phase": "x"}}, "finalize", copy.deepcopy(old))
    assert new["spec"]["finalizers"] == []
    assert new["status"] == {"phase": "Active"}


def test_a_service_keeps_what_was_allocated():
    old = samples.created(
        samples.merged(
            samples.sample(SERVICE),
            {
                "spec": {
                    "type": "NodePort",
                    "clusterIP": "100.0.0.2",
                    "clusterIPs": ["100.0.0.2"],
                    "ports": [{"port": 80, "nodePort": 30080}],
                }
            },
        )
    )
    change = {
        "spec": {"clusterIP": None, "clusterIPs": None, "ports": [{"port": 80, "protocol": "TCP", "targetPort": 8080}]}
    }
    _, new = updated(SERVICE, change, old=old)
    assert new["spec"]["clusterIP"] == "100.0.0.2"
    assert new["spec"]["ports"][0]["nodePort"] == 30080


@pytest.mark.parametrize("kind", KINDS.all(), ids=lambda kind: f"{kind.kind}.{kind.group}")
def test_an_update_without_change_changes_nothing(kind):
    before, new = updated(kind, {})
    assert new == before


def test_pod_addresses_have_a_generation():
    assert samples.created(samples.sample(POD_ADDRESS))["metadata"]["generation"] == 1
