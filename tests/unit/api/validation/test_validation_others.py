"""Rules of the small kinds that coverage.yml names."""

from __future__ import annotations

import base64

import pytest

from minik8s_modules.api.kinds import (
    CONFIG_MAP,
    LEASE,
    NODE,
    PLAN,
    POD_ADDRESS,
    POD_CIDR,
    SECRET,
    SELF_SUBJECT_ACCESS_REVIEW,
    SELF_SUBJECT_REVIEW,
    VIRTUAL_SERVICE,
)
from minik8s_modules.api.lifecycle.strategy import prepare_update
from minik8s_modules.api.validation import validate_create, validate_update
from minik8s_modules.api.validation.originals import MOST_SUBSETS
from minik8s_modules.api.validation.others import DATA_LIMIT_BYTES
from tests.unit.api import samples


def created(kind, change):
    return samples.created(samples.merged(samples.sample(kind), change))


def fields(kind, change):
    return [cause.field for cause in validate_create(kind, created(kind, change))]


def updated(kind, old, change):
    before = created(kind, old)
    after = samples.merged(before, change)
    prepare_update(kind, after, before)
    return [cause.field for cause in validate_update(kind, after, before)]


@pytest.mark.parametrize("kind", [CONFIG_MAP, SECRET])
def test_immutable_data_stays(kind):
    assert updated(kind, {"immutable": True, "data": {"a": "eA=="}}, {"data": {"a": "eQ=="}}) == ["data"]
    assert updated(kind, {"immutable": True}, {"immutable": None}) == ["immutable"]
    assert updated(kind, {"immutable": True}, {"metadata": {"labels": {"a": "b"}}}) == []
    assert updated(kind, {}, {"data": {"a": "eQ=="}, "immutable": True}) == []


def test_data_is_limited_to_one_mebibyte():
    fits, too_long = "x" * DATA_LIMIT_BYTES, "x" * (DATA_LIMIT_BYTES + 1)
    assert fields(CONFIG_MAP, {"data": {"a": fits}}) == []
    assert fields(CONFIG_MAP, {"data": {"a": too_long}}) == ["[]"]
    assert fields(SECRET, {"stringData": {"a": fits}}) == []
    assert fields(SECRET, {"stringData": {"a": too_long}}) == ["data"]
    binary = base64.b64encode(b"x" * DATA_LIMIT_BYTES).decode()
    assert fields(CONFIG_MAP, {"binaryData": {"a": binary}}) == []
    assert fields(CONFIG_MAP, {"binaryData": {"a": binary}, "data": {"b": "x"}}) == ["[]"]


@pytest.mark.parametrize(
    ("secret_type", "data", "expected"),
    [
        ("Opaque", {}, []),
        ("kubernetes.io/tls", {}, ["data[tls.crt]", "data[tls.key]"]),
        ("kubernetes.io/basic-auth", {}, ["data[username]", "data[password]"]),
        ("kubernetes.io/basic-auth", {"password": "eA=="}, []),
        ("kubernetes.io/ssh-auth", {}, ["data[ssh-privatekey]"]),
        ("kubernetes.io/dockerconfigjson", {".dockerconfigjson": "e30="}, []),
        ("kubernetes.io/dockerconfigjson", {".dockerconfigjson": "eA=="}, ["data[.dockerconfigjson]"]),
        ("kubernetes.io/dockerconfigjson", {".dockerconfigjson": "W1tb" * 30_000}, ["data[.dockerconfigjson]"]),
        ("kubernetes.io/service-account-token", {}, ["metadata.annotations[kubernetes.io/service-account.name]"]),
    ],
)
def test_secret_types_want_their_keys(secret_type, data, expected):
    assert fields(SECRET, {"type": secret_type, "data": data}) == expected


def test_no_message_repeats_a_secret():
    change = {"type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": "canary", "a/b": "canary"}}
    text = " ".join(map(str, validate_create(SECRET, created(SECRET, change))))
    assert "canary" not in text
    assert base64.b64encode(b"canary").decode() not in text


def test_the_pod_cidr_of_a_node_is_set_once():
    change = {"spec": {"podCIDR": "10.244.0.0/24", "podCIDRs": ["10.244.0.0/24"]}}
    assert updated(NODE, {}, change) == []
    other = {"spec": {"podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24"]}}
    assert updated(NODE, change, other) == ["spec.podCIDR", "spec.podCIDRs"]
    assert fields(NODE, {"spec": {"podCIDR": "fd00::/64"}}) == []  # where pods have IPv6 alone
    for cidr in ("FD00::/64", "fd00:0::/64", "fd00::", "fd00::%eth0/64", "255.255.255.255/32", "255.255.255.255"):
        assert fields(NODE, {"spec": {"podCIDR": cidr}}) == ["spec.podCIDR"], cidr
    both = {"podCIDR": "fd00::/64", "podCIDRs": ["fd00::/64", "10.244.0.0/24"]}
    assert fields(NODE, {"spec": both}) == ["spec.podCIDR", "spec.podCIDRs[1]"]


def test_the_status_of_a_node_is_looked_at_when_it_is_written():
    old = created(NODE, {"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.7"}]}})
    new = samples.merged(
        old, {"status": {"addresses": [{"type": "InternalIP", "address": "n1"}], "capacity": {"pods": "-1"}}}
    )
    causes = [cause.field for cause in validate_update(NODE, new, old, "status")]
    assert causes == ["status.addresses[0].address", "status.capacity[pods]"]
    again = samples.merged(new, {"status": {"phase": "Running"}})
    assert validate_update(NODE, again, new, "status") == []  # it stood there before


def test_leases():
    spec = {
        "holderIdentity": "n1",
        "leaseDurationSeconds": 40,
        "acquireTime": "2026-01-01T00:00:00.000000Z",
        "renewTime": "2026-01-01T00:00:00.000000Z",
        "leaseTransitions": 0,
    }
    assert created(LEASE, {"spec": spec})["spec"] == spec
    assert fields(LEASE, {"spec": spec}) == []
    assert fields(LEASE, {"spec": {"leaseDurationSeconds": 0, "leaseTransitions": -1, "holderIdentity": ""}}) == [
        "spec.leaseDurationSeconds",
        "spec.leaseTransitions",
        "spec.holderIdentity",
    ]


def test_a_pod_address_keeps_its_holder():
    assert updated(POD_ADDRESS, {}, {"spec": {"podUID": "other"}}) == ["spec"]
    assert updated(POD_ADDRESS, {}, {"metadata": {"labels": {"a": "b"}}}) == []
    assert fields(POD_ADDRESS, {"spec": {"podName": None, "nodeName": ""}}) == ["spec.podName", "spec.nodeName"]


def test_a_pod_cidr_keeps_its_node():
    assert updated(POD_CIDR, {}, {"spec": {"nodeName": "other"}}) == ["spec"]
    assert updated(POD_CIDR, {}, {"metadata": {"labels": {"a": "b"}}}) == []
    assert fields(POD_CIDR, {"spec": {"nodeName": None}}) == ["spec.nodeName"]
    for name in ("10.244.1.0", "10.244.1.1-24", "10.244.1.0-33", "10.244.01.0-24"):
        assert "metadata.name" in fields(POD_CIDR, {"metadata": {"name": name}})


def test_a_plan_takes_objects_and_nodes():
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}}
    assert fields(PLAN, {"metadata": None, "spec": {"objects": [pod], "deleted": [pod], "nodes": ["n1"]}}) == []
    assert fields(PLAN, {"spec": {"objects": [{"kind": "Pod"}]}}) == [
        "spec.objects[0].apiVersion",
        "spec.objects[0].metadata",
    ]
    assert created(PLAN, {"status": {"anything": {"goes": [1]}}})["status"] == {"anything": {"goes": [1]}}


def test_access_reviews():
    assert fields(SELF_SUBJECT_ACCESS_REVIEW, {}) == []
    path = {"spec": {"resourceAttributes": None, "nonResourceAttributes": {"path": "/healthz", "verb": "get"}}}
    assert fields(SELF_SUBJECT_ACCESS_REVIEW, path) == []
    assert fields(SELF_SUBJECT_ACCESS_REVIEW, {"spec": {"resourceAttributes": None}}) == ["spec.resourceAttributes"]
    assert fields(SELF_SUBJECT_REVIEW, {"metadata": None}) == []


def test_no_pattern_is_compiled_of_a_virtual_service_that_has_too_many(monkeypatch: pytest.MonkeyPatch):
    compiled: list[str] = []

    def fault(text: str) -> str:
        compiled.append(text)
        return ""

    monkeypatch.setattr("minik8s_modules.api.validation.originals.pattern_fault", fault)
    for more, expected in ((0, []), (1, ["spec.subsets"])):
        compiled.clear()
        subsets = [{"name": f"s{number}", "url": "/x"} for number in range(MOST_SUBSETS + more)]
        virtual = {
            "metadata": {"name": "v", "namespace": "d"},
            "spec": {"serviceRef": "s", "port": 80, "subsets": subsets},
        }
        assert [cause.field for cause in validate_create(VIRTUAL_SERVICE, virtual)] == expected
        assert len(compiled) == (0 if more else MOST_SUBSETS)
