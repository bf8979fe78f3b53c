"""Defaults as Kubernetes fills them in; applying them twice changes nothing."""

from __future__ import annotations

import copy

import pytest

from minik8s_modules.api.defaulting.defaults import apply_defaults
from minik8s_modules.api.kinds import ENDPOINT_SLICE, ENDPOINTS, KINDS, NAMESPACE, NODE, POD, SECRET, SERVICE
from tests.unit.api import samples


def defaulted(kind, change):
    obj = samples.merged(samples.sample(kind), change)
    apply_defaults(kind, obj)
    return obj


def test_a_pod_gets_its_defaults():
    pod = defaulted(POD, {"spec": {"containers": [{"name": "app", "image": "i", "ports": [{"containerPort": 80}]}]}})
    assert pod["spec"] == {
        "restartPolicy": "Always",
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler",
        "terminationGracePeriodSeconds": 30,
        "securityContext": {},
        "serviceAccountName": "default",
        "serviceAccount": "default",
        "containers": [
            {
                "name": "app",
                "image": "i",
                "imagePullPolicy": "Always",
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
                "ports": [{"containerPort": 80, "protocol": "TCP"}],
                "resources": {},
            }
        ],
    }


def test_what_is_given_stays():
    given = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "dnsPolicy": "None", "schedulerName": "mine"}
    pod = defaulted(POD, {"spec": given})
    assert {key: pod["spec"][key] for key in given} == given


def test_the_service_account_is_default():
    assert defaulted(POD, {})["spec"]["serviceAccountName"] == "default"
    assert defaulted(POD, {"spec": {"serviceAccount": "robot"}})["spec"]["serviceAccountName"] == "robot"
    assert defaulted(POD, {"spec": {"serviceAccountName": "robot"}})["spec"]["serviceAccount"] == "robot"


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("busybox", "Always"), ("busybox:latest", "Always"), ("busybox:1", "IfNotPresent"),
        ("reg.example:5000/busybox", "Always"), ("reg.example:5000/busybox:1", "IfNotPresent"),
        ("busybox@sha256:aa", "IfNotPresent"), ("a/b:latest@sha256:aa", "IfNotPresent"),
    ],
)  # fmt: skip
def test_the_pull_policy_follows_the_tag(image, policy):
    pod = defaulted(POD, {"spec": {"containers": [{"name": "a", "image": image}]}})
    assert pod["spec"]["containers"][0]["imagePullPolicy"] == policy


def test_limits_are_requests_too_and_canonical():
    resources = {"limits": {"cpu": "0.5", "memory": "1024Mi"}, "requests": {"cpu": "0.25"}}
    pod = defaulted(POD, {"spec": {"containers": [{"name": "a", "image": "i", "resources": resources}]}})
    assert pod["spec"]["containers"][0]["resources"] == {
        "limits": {"cpu": "500m", "memory": "1Gi"},
        "requests": {"cpu": "250m", "memory": "1Gi"},
    }


def test_ports_on_the_host_network_are_host_ports():
    change = {
        "spec": {"hostNetwork": True, "containers": [{"name": "a", "image": "i", "ports": [{"containerPort": 80}]}]}
    }
    assert defaulted(POD, change)["spec"]["containers"][0]["ports"][0]["hostPort"] == 80


def test_volumes_get_their_defaults():
    volumes = [
        {"name": "a"},
        {"name": "b", "configMap": {"name": "c"}},
        {"name": "d", "secret": {"secretName": "s", "defaultMode": 256}},
        {"name": "e", "hostPath": {"path": "/x"}},
    ]
    pod = defaulted(POD, {"spec": {"volumes": volumes}})
    assert pod["spec"]["volumes"] == [
        {"name": "a", "emptyDir": {}},
        {"name": "b", "configMap": {"name": "c", "defaultMode": 420}},
        {"name": "d", "secret": {"secretName": "s", "defaultMode": 256}},
        {"name": "e", "hostPath": {"path": "/x", "type": ""}},
    ]


def test_sources_of_variables_get_their_defaults():
    env = [
        {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "B", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
    ]
    pod = defaulted(POD, {"spec": {"containers": [{"name": "a", "image": "i", "env": env}]}})
    found = pod["spec"]["containers"][0]["env"]
    assert found[0]["valueFrom"]["fieldRef"]["apiVersion"] == "v1"
    assert found[1]["valueFrom"]["resourceFieldRef"]["divisor"] == "0"


def test_probes_get_their_defaults():
    change = {"spec": {"containers": [{"name": "a", "image": "i", "livenessProbe": {"httpGet": {"port": 80}}}]}}
    assert defaulted(POD, change)["spec"]["containers"][0]["livenessProbe"] == {
        "httpGet": {"port": 80, "path": "/", "scheme": "HTTP"},
        "timeoutSeconds": 1,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    }


def test_a_service_gets_its_defaults():
    assert defaulted(SERVICE, {"spec": {"ports": [{"port": 80}]}})["spec"] == {
        "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
        "sessionAffinity": "None",
        "type": "ClusterIP",
        "internalTrafficPolicy": "Cluster",
    }


def test_a_node_port_service_and_an_external_name():
    assert defaulted(SERVICE, {"spec": {"type": "NodePort"}})["spec"]["externalTrafficPolicy"] == "Cluster"
    external = defaulted(SERVICE, {"spec": {"type": "ExternalName", "externalName": "example.com"}})["spec"]
    assert "ipFamilies" not in external
    affine = defaulted(SERVICE, {"spec": {"sessionAffinity": "ClientIP"}})["spec"]
    assert affine["sessionAffinityConfig"] == {"clientIP": {"timeoutSeconds": 10800}}
    without = defaulted(SERVICE, {"spec": {**affine, "sessionAffinity": "None"}})["spec"]
    assert "sessionAffinityConfig" not in without


def test_string_data_becomes_data():
    secret = defaulted(SECRET, {"stringData": {"a": "hunter2", "ü": "é"}, "data": {"a": "eA==", "b": "eA=="}})
    assert secret["data"] == {"a": "aHVudGVyMg==", "b": "eA==", "ü": "w6k="}
    assert "stringData" not in secret
    assert secret["type"] == "Opaque"


def test_a_namespace_is_labelled_with_its_name():
    assert defaulted(NAMESPACE, {})["metadata"]["labels"] == {"kubernetes.io/metadata.name": "web"}


def test_a_node_offers_what_it_has():
    node = defaulted(NODE, {"status": {"capacity": {"cpu": "2.0", "memory": "1024Mi"}}})
    assert node["status"]["allocatable"] == {"cpu": "2", "memory": "1Gi"}


@pytest.mark.parametrize("given", [{"podCIDR": "10.244.1.0/24"}, {"podCIDRs": ["10.244.1.0/24"]}])
def test_the_range_of_a_node_stands_in_both_fields(given):
    assert defaulted(NODE, {"spec": given})["spec"] == {"podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24"]}


def test_endpoints_and_slices_get_protocols():
    endpoints = defaulted(ENDPOINTS, {"subsets": [{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 80}]}]})
    assert endpoints["subsets"][0]["ports"] == [{"port": 80, "protocol": "TCP"}]
    assert defaulted(ENDPOINT_SLICE, {"ports": [{"port": 80}]})["ports"] == [
        {"port": 80, "protocol": "TCP", "name": ""}
    ]


@pytest.mark.parametrize("kind", KINDS.all(), ids=lambda kind: f"{kind.kind}.{kind.group}")
def test_defaults_are_idempotent_and_fill_in_type_and_kind(kind):
    once = samples.sample(kind)
    del once["apiVersion"], once["kind"]
    apply_defaults(kind, once)
    twice = copy.deepcopy(once)
    apply_defaults(kind, twice)
    assert once == twice
    assert (once["apiVersion"], once["kind"]) == (kind.api_version, kind.kind)
