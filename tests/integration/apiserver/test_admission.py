"""The admission chain in a running server: Pod Security, limits, accounts, priority."""

from __future__ import annotations

from typing import Any

import orjson

from minik8s_modules.store.etcd import EtcdStore
from tests.integration.apiserver.conftest import Namespace, pod
from tests.support.apiserver import Answer
from tests.support.etcd import EtcdServer

PREFIX = "pod-security.kubernetes.io"
MERGE = {"Content-Type": "application/merge-patch+json"}


def labelled(namespace: Namespace, **labels: str) -> Answer:
    full = {f"{PREFIX}/{mode}": level for mode, level in labels.items()}
    path = f"/api/v1/namespaces/{namespace.name}"
    return namespace.server.request("PATCH", path, {"metadata": {"labels": full}}, headers=MERGE)


def make(namespace: Namespace, body: Any) -> Answer:
    return namespace.server.request("POST", namespace.path("pods"), body)


def test_a_namespace_keeps_pods_below_its_level_out(namespace: Namespace):
    assert labelled(namespace, enforce="baseline").code == 200
    assert make(namespace, pod("plain")).code == 201
    answer = make(namespace, pod("host", hostNetwork=True))
    assert answer.code == 403
    assert answer.json["message"] == (
        'pods "host" is forbidden: violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true)'
    )
    assert namespace.get("host", "pods").code == 404


def test_a_warning_is_told_and_the_pod_kept(namespace: Namespace):
    labelled(namespace, warn="restricted")
    answer = make(namespace, pod("plain"))
    assert answer.code == 201
    assert 'would violate PodSecurity "restricted:latest"' in answer.headers["warning"].replace('\\"', '"')


def test_labels_of_namespaces_are_checked_and_pods_below_a_new_level_are_told(namespace: Namespace):
    assert "must be one of privileged, baseline, restricted" in labelled(namespace, enforce="strict").json["message"]
    make(namespace, pod("host", hostNetwork=True))
    done = namespace.server.kubectl("label", "ns", namespace.name, f"{PREFIX}/enforce=baseline").stderr
    assert f'existing pods in namespace "{namespace.name}" violate the new PodSecurity enforce level' in done
    assert "host: host namespaces" in done


def test_an_account_must_exist(namespace: Namespace):
    answer = make(namespace, pod("web", serviceAccountName="robot"))
    assert answer.code == 403
    assert answer.json["message"].endswith(
        f'error looking up service account {namespace.name}/robot: serviceaccount "robot" not found'
    )
    account = {"metadata": {"name": "robot"}, "imagePullSecrets": [{"name": "registry"}]}
    namespace.server.request("POST", namespace.path("serviceaccounts"), account)
    assert make(namespace, pod("web", serviceAccountName="robot")).json["spec"]["imagePullSecrets"] == [
        {"name": "registry"}
    ]


def test_a_priority_class_gives_the_priority(namespace: Namespace):
    made = make(namespace, pod("web", priorityClassName="system-node-critical"))
    assert (made.code, made.json["spec"]["priority"]) == (201, 2_000_001_000)
    assert "no PriorityClass with name x was found" in make(namespace, pod("y", priorityClassName="x")).json["message"]
    assert "must not be provided in pod spec" in make(namespace, pod("z", priority=5)).json["message"]


def test_limit_ranges_fill_and_refuse(namespace: Namespace, etcd: EtcdServer):
    store = EtcdStore([etcd.endpoint])
    item = {"type": "Container", "default": {"cpu": "500m"}, "max": {"cpu": "1"}}
    obj = {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "l", "namespace": namespace.name},
        "spec": {"limits": [item]},
    }
    revision = store.create(f"/registry/core/limitranges/{namespace.name}/l", orjson.dumps(obj))
    store.close()
    namespace.server.request("GET", f"{namespace.path('pods', 'none')}?resourceVersion={revision}")
    made = make(namespace, pod("web"))
    assert made.json["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "500m"}
    assert made.json["status"]["qosClass"] == "Burstable"
    large = pod("large")
    large["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "2"}}
    assert "maximum cpu usage per Container is 1, but limit is 2" in make(namespace, large).json["message"]


def test_a_pod_that_does_not_say_so_tolerates_failing_nodes_for_five_minutes(namespace: Namespace):
    own = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 7}
    missing = {**own, "key": "node.kubernetes.io/not-ready", "tolerationSeconds": 300}
    assert make(namespace, pod("one", tolerations=[own])).json["spec"]["tolerations"] == [own, missing]
    everything = [{"operator": "Exists"}]
    assert make(namespace, pod("two", tolerations=everything)).json["spec"]["tolerations"] == everything
