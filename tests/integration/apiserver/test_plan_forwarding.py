"""A plan goes to a reconciler over mutual TLS and comes back merged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.apiserver import Answer, ApiServerProcess
from tests.support.etcd import EtcdServer
from tests.support.pki import Authority
from tests.support.servers.reconciler import Reconciler

DIFF = {"containers": {"before": {"k": None}, "after": {"k": {"is": "x"}}}}
ANSWER = {"nodes": {"n1": {"diff": DIFF, "steps": []}}, "messages": [{"text": "told", "about": []}]}
SHOWN = {"n1": {"diff": {"containers": {"before": "", "after": "k:\n  is: x\n"}}, "steps": []}}


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "plan-pki", "plans")


@pytest.fixture
def reconciler(authority: Authority) -> Iterator[Reconciler]:
    made = Reconciler(authority.issue("reconciler", "minik8s-reconciler"), authority.ca, ANSWER)
    yield made
    made.close()


@pytest.fixture
def api(tmp_path: Path, authority: Authority) -> Iterator[ApiServerProcess]:
    client = authority.issue("apiserver", "system:minik8s:apiserver")
    files = {"cert": str(client.cert), "key": str(client.key), "ca": str(authority.ca)}
    etcd = EtcdServer(tmp_path / "etcd").start()
    server = ApiServerProcess(tmp_path / "api", etcd.endpoint, reconciler_client=files)
    yield server.start()
    server.stop()
    etcd.stop()


def put_lease(api: ApiServerProcess, path: str, lease: dict[str, Any]) -> Answer:
    return api.request("POST", path, lease, client=api.identity("system:minik8s:reconciler"))


def _lease(name: str, url: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "annotations": {"minik8s.io/plan-endpoint": url}}, "spec": {}}


def test_a_plan_is_answered_by_the_reconcilers_and_stores_nothing(api: ApiServerProcess, reconciler: Reconciler):
    leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
    assert put_lease(api, leases, _lease("minik8s-reconciler-s0", reconciler.url)).code == 201
    assert put_lease(api, leases, _lease("minik8s-reconciler-gone", "https://127.0.0.1:1")).code == 201
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"k": "v"}}
    plan = {"metadata": {"name": "plan"}, "spec": {"objects": [obj], "nodes": ["n1"]}}
    answer = api.request("POST", "/apis/minik8s.io/v1/plans", plan)
    assert answer.code == 201, answer.body
    status = answer.json["status"]
    assert status["nodes"] == SHOWN
    assert any("minik8s-reconciler-gone" in message for message in status["messages"])
    ((path, asker, question),) = reconciler.asked
    assert (path, asker, question["nodes"]) == ("/plan", "system:minik8s:apiserver", ["n1"])
    (operation,) = question["objects"]
    assert (operation["operation"], operation["object"]["metadata"]["namespace"]) == ("create", "default")
    assert api.request("GET", "/api/v1/namespaces/default/configmaps/c").code == 404


def test_a_node_of_its_own_is_known_by_its_certificates_name_whatever_its_lease_says(
    api: ApiServerProcess, authority: Authority
):
    leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
    right = Reconciler(authority.issue("right", "n1", names=("n1.node.minik8s.internal",)), authority.ca, ANSWER)
    wrong = Reconciler(authority.issue("wrong", "n2"), authority.ca, ANSWER)
    try:
        for name, url in (("n1", right.url), ("n2", f"{wrong.url}#127.0.0.1")):
            assert put_lease(api, leases, _lease(f"minik8s-reconciler-node.{name}", url)).code == 201
        status = api.request("POST", "/apis/minik8s.io/v1/plans", {"spec": {}}).json["status"]
        assert status["nodes"] == SHOWN
        assert any("minik8s-reconciler-node.n2" in one and "did not answer" in one for one in status["messages"])
        assert (len(right.asked), wrong.asked) == (1, [])
    finally:
        right.close()
        wrong.close()


def test_only_administrators_may_plan(api: ApiServerProcess):
    client = api.identity("system:minik8s:reconciler")
    assert api.request("POST", "/apis/minik8s.io/v1/plans", {"spec": {}}, client=client).code == 403
