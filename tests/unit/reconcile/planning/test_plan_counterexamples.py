"""What random plans have shown to be told wrongly: what pods wait for, use, and are behind."""

from __future__ import annotations

import json

from minik8s_modules.api.kinds import ENDPOINTS, POD, SECRET
from minik8s_modules.api.objects import JsonObject
from tests.unit.reconcile.loop.test_loop import NAME, Cluster, running, until
from tests.unit.reconcile.planning.test_plan import ask, cluster, pod, service
from tests.unit.reconcile.worlds import IMAGE

__all__ = ["cluster"]  # a fixture


def mounting(name: str = "web") -> JsonObject:
    """Return a pod that waits for the Secret keys."""
    container = {"name": "app", "image": IMAGE, "volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    made = pod(name, containers=[container], volumes=[{"name": "v", "secret": {"secretName": "keys"}}])
    made["metadata"]["labels"] = {"app": "web"}
    return made


def keys() -> JsonObject:
    """Return that Secret."""
    return {"kind": "Secret", "metadata": {"name": "keys", "namespace": "default"}, "data": {"k": "YQ=="}}


def test_a_pod_that_waits_for_a_secret_has_an_address_and_is_behind_its_service_when_it_comes(cluster: Cluster):
    made = mounting()
    cluster.api.create(POD, made | {"spec": {**made["spec"], "nodeName": NAME}, "status": {"phase": "Pending"}})
    until(lambda: "not found" in json.dumps(cluster.pod()["status"]))
    answer = ask(cluster, ("create", service(app="web")), ("create", keys()))
    diff = answer["nodes"][NAME]["diff"]
    assert diff["sandboxes"]["after"][cluster.pod()["metadata"]["uid"]]["ip"] == "10.244.0.2"
    assert diff["services"]["after"]["default/web:80"]["endpoints"] == [["10.244.0.2", 8080]]
    assert answer["messages"] == ["rules, names and paths are shown as they will be when 1 new pod is ready"]


def test_a_pod_that_gets_no_sandbox_takes_no_address_from_the_next(cluster: Cluster):
    answer = ask(cluster, ("create", mounting("a")), ("create", pod("b")))
    sandboxes = answer["nodes"][NAME]["diff"]["sandboxes"]["after"]
    assert [one["ip"] for one in sandboxes.values()] == ["10.244.0.2"]


def test_a_volume_that_a_running_pod_uses_stays_when_its_secret_goes(cluster: Cluster):
    cluster.api.create(SECRET, keys())
    made = mounting()
    cluster.api.create(POD, made | {"spec": {**made["spec"], "nodeName": NAME}, "status": {"phase": "Pending"}})
    until(lambda: running(cluster))
    answer = ask(cluster, ("delete", keys()))
    assert "volumes" not in answer["nodes"][NAME]["diff"]


def test_a_service_whose_endpoints_are_written_already_has_them_when_it_comes(cluster: Cluster):
    subsets = [{"addresses": [{"ip": "203.0.113.1"}], "ports": [{"port": 9000, "protocol": "TCP"}]}]
    cluster.api.create(ENDPOINTS, {"metadata": {"name": "web", "namespace": "default"}, "subsets": subsets})
    bare = service()
    del bare["spec"]["selector"]
    diff = ask(cluster, ("create", bare))["nodes"][NAME]["diff"]
    assert diff["services"]["after"]["default/web:80"]["endpoints"] == [["203.0.113.1", 9000]]


def test_a_pod_with_a_sidecar_would_come_to_run(cluster: Cluster):
    """Its sidecar was taken for an init container that had ended, and had to be started again."""
    probe = {"httpGet": {"path": "/ready", "port": 15021}}
    sidecar = {"name": "proxy", "image": IMAGE, "restartPolicy": "Always", "startupProbe": probe}
    first = {"name": "first", "image": IMAGE}
    answer = ask(cluster, ("create", pod(initContainers=[first, sidecar])))
    assert answer["messages"] == []
    names = {key.partition("/")[2] for key in answer["nodes"][NAME]["diff"]["containers"]["after"]}
    assert names == {"first", "proxy", "app"}
