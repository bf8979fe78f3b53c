"""What steers the cluster is set by whom it belongs to: one table says so, and holds for every way of writing.

Nothing asked who sets ``minik8s.io/…`` and ``kubernetes.io/config.…``, so whoever could write an object could have
containers found, nodes emptied, pods made and streams sent elsewhere in somebody else's name.
"""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from minik8s_modules.api.access.steering import RULES, Party, Rule
from minik8s_modules.api.kinds import CONFIG_MAP
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.store.etcd import EtcdStore
from tests.attacks.people import editor_of
from tests.integration.apiserver.conftest import Namespace, pod
from tests.support.apiserver import Answer
from tests.support.etcd import EtcdServer
from tests.support.pki import Certificate

MERGE = {"Content-Type": "application/merge-patch+json"}
STATIC = "0123456789abcdef" * 2
VALUES = {
    "minik8s.io/drift": "containers=report",
    "minik8s.io/mtls": "strict",
    "minik8s.io/exclude-inbound-ports": "22",
    "minik8s.io/exclude-outbound-ports": "22,443",
    "minik8s.io/exclude-outbound-ranges": "10.0.0.0/8",
}
"""Of keys that take some values only."""
# everybody here may do everything: what is refused is refused for who he is, not for a missing right
NAMES: dict[Party, str] = {
    "reconciler": "system:minik8s:reconciler",
    "gateway": "system:minik8s:gateway",
    "controllers": "system:kube-controller-manager",
    "others": "somebody",
}


def as_party(namespace: Namespace, party: Party) -> Certificate:
    return namespace.server.identity(NAMES[party], "system:masters")


def body_of(namespace: Namespace, rule: Rule) -> tuple[str, JsonObject]:
    """Return where to create an object that the rule's key steers, and the object without it."""
    name = f"{namespace.name}-n1"
    made: dict[tuple[str, str] | None, tuple[str, JsonObject]] = {
        None: (namespace.path("configmaps"), {"metadata": {"name": name}}),
        ("", "Pod"): (namespace.path("pods"), pod(name, nodeName="n1")),
        ("", "ConfigMap"): (namespace.path("configmaps"), {"metadata": {"name": name}}),
        ("", "Node"): ("/api/v1/nodes", {"metadata": {"name": name}}),
        ("", "PersistentVolume"): (
            "/api/v1/persistentvolumes",
            {
                "metadata": {"name": name},
                "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}},
            },
        ),
        ("", "RollingUpdate"): (
            namespace.path("rollingupdates"),
            {
                "metadata": {"name": name},
                "spec": {"serviceRef": "web", "port": 80, "minimumAlive": 1, "newPodSpec": pod(name)["spec"]},
            },
        ),
        ("coordination.k8s.io", "Lease"): (
            "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases",
            {"metadata": {"name": name}, "spec": {}},
        ),
        ("apps", "ControllerRevision"): (
            f"/apis/apps/v1/namespaces/{namespace.name}/controllerrevisions",
            # not one to return: it would have to bear the label of those
            {"metadata": {"name": name}, "revision": 1, "data": {}},
        ),
    }
    return made[rule.kind]


def created(namespace: Namespace, rule: Rule, party: Party, marks: str = "annotations") -> Answer:
    path, body = body_of(namespace, rule)
    value = VALUES.get(rule.key, STATIC) if marks == "annotations" else STATIC
    body["metadata"][marks] = {rule.key: value}
    return namespace.server.request("POST", path, body, client=as_party(namespace, party))


@pytest.mark.parametrize("marks", ["annotations", "labels"])
@pytest.mark.parametrize("party", NAMES)
@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.setters], ids=lambda rule: rule.key)
def test_a_key_is_set_by_its_owners_alone(namespace: Namespace, rule: Rule, party: Party, marks: str):
    answer = created(namespace, rule, party, marks)
    if party in rule.setters:
        assert answer.code == 201, answer.body
        return
    assert answer.code == 403, answer.body
    assert f"metadata.{marks}[{rule.key}]: may be set by" in answer.json["message"]


@pytest.mark.parametrize("rule", [r for r in RULES if r.setters and "others" not in r.setters], ids=lambda r: r.key)
def test_who_may_not_set_a_key_neither_changes_nor_removes_it(namespace: Namespace, rule: Rule):
    owner: Party = next(party for party in NAMES if party in rule.setters)
    assert created(namespace, rule, owner).code == 201
    path, body = body_of(namespace, rule)
    where = f"{path}/{body['metadata']['name']}"
    for value in ("f" * 32, None):
        change = {"metadata": {"annotations": {rule.key: value}}}
        answer = namespace.server.request("PATCH", where, change, headers=MERGE, client=as_party(namespace, "others"))
        assert answer.code in {403, 422}, answer.body
        if rule.when == "creation":
            again = namespace.server.request("PATCH", where, change, headers=MERGE, client=as_party(namespace, owner))
            assert again.code in {403, 422}, again.body
    # what a write leaves as it is asks nobody
    change = {"metadata": {"labels": {"a": "b"}}}
    answer = namespace.server.request("PATCH", where, change, headers=MERGE, client=as_party(namespace, "others"))
    assert answer.code == 200, answer.body
    assert answer.json["metadata"]["annotations"][rule.key] == STATIC


def test_a_pods_runtime_is_its_classs_whatever_the_pod_says(namespace: Namespace):
    key = "minik8s.io/runtime-handler"
    body = pod("mine")
    body["metadata"]["annotations"] = {key: "runc-as-root"}
    assert namespace.server.request("POST", namespace.path("pods"), body).code == 201
    binding = {"metadata": {"name": "mine", "annotations": {key: "x"}}, "target": {"kind": "Node", "name": "n1"}}
    assert namespace.server.request("POST", namespace.path("pods", "mine", "binding"), binding).code == 201
    assert key not in (namespace.get("mine", "pods").json["metadata"].get("annotations") or {})


def test_streams_of_no_node_go_where_an_editor_says(namespace: Namespace):
    """Neither in his own namespace, where nobody asks, nor where he was made an editor by mistake."""
    editor = editor_of(namespace)
    lease = {"metadata": {"name": "n1", "annotations": {"minik8s.io/stream-endpoint": "https://192.0.2.1:1"}}}
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace.name}/leases"
    assert namespace.server.request("POST", path, {**lease, "spec": {}}, client=editor).code == 403
    assert namespace.server.request("POST", path, {"metadata": {"name": "n1"}, "spec": {}}, client=editor).code == 201


@pytest.mark.parametrize("marks", ["annotations", "labels", "finalizers"])
def test_the_prefix_is_reserved_and_subdomains_are_free(namespace: Namespace, marks: str):
    def code(name: str, key: str) -> Answer:
        value: Any = [key] if marks == "finalizers" else {key: "x"}
        return namespace.create(name, metadata={marks: value})

    refused = code("taken", "minik8s.io/unheard-of")
    assert (refused.code, "the prefix minik8s.io/ is reserved" in refused.json["message"]) == (403, True)
    assert code("free", "disks.minik8s.io/size").code == 201
    assert code("other", "example.com/minik8s.io").code == 201


def test_what_was_stored_before_the_rules_can_be_changed_and_cleaned(namespace: Namespace, etcd: EtcdServer):
    meta = {"name": "old", "namespace": namespace.name, "uid": "u", "annotations": {"minik8s.io/unheard-of": "x"}}
    store = EtcdStore([etcd.endpoint])
    store.create(CONFIG_MAP.key(namespace.name, "old"), orjson.dumps({"metadata": meta}))
    store.close()
    path, server = namespace.path("configmaps", "old"), namespace.server
    server.wait_for(path)
    assert server.request("PATCH", path, {"data": {"a": "b"}}, headers=MERGE).code == 200
    change = {"metadata": {"annotations": {"minik8s.io/unheard-of": "y"}}}
    assert server.request("PATCH", path, change, headers=MERGE).code == 403
    cleaned = {"metadata": {"annotations": {"minik8s.io/unheard-of": None}}}
    assert server.request("PATCH", path, cleaned, headers=MERGE).code == 200
