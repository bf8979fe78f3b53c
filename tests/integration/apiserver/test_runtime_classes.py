"""RuntimeClasses: what a class says becomes the pod's, and contradictions are refused in Kubernetes' words."""

from __future__ import annotations

from typing import Any

from tests.integration.apiserver.conftest import Namespace, pod
from tests.support.apiserver import Answer

CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"


def make_class(namespace: Namespace, **fields: Any) -> Answer:
    """Create a class named after the namespace."""
    return namespace.server.request("POST", CLASSES, {"metadata": {"name": namespace.name}, **fields})


def make(namespace: Namespace, body: dict[str, Any]) -> Answer:
    """Create a pod."""
    return namespace.server.request("POST", namespace.path("pods"), body)


def test_a_pod_gets_what_its_runtime_class_says(namespace: Namespace) -> None:
    scheduling = {"nodeSelector": {"vm": "yes"}, "tolerations": [{"key": "vm", "operator": "Exists"}]}
    overhead = {"podFixed": {"cpu": "250m", "memory": "64Mi"}}
    assert make_class(namespace, handler="runsc", overhead=overhead, scheduling=scheduling).code == 201
    body = pod("web", runtimeClassName=namespace.name, nodeSelector={"disk": "ssd"})
    body["metadata"]["annotations"] = {"minik8s.io/runtime-handler": "forged"}
    made = make(namespace, body).json
    assert made["metadata"]["annotations"] == {"minik8s.io/runtime-handler": "runsc"}
    assert made["spec"]["overhead"] == overhead["podFixed"]
    assert made["spec"]["nodeSelector"] == {"disk": "ssd", "vm": "yes"}
    assert {"key": "vm", "operator": "Exists"} in made["spec"]["tolerations"]
    path = namespace.path("pods", "web")
    patch = {"metadata": {"annotations": {"minik8s.io/runtime-handler": None, "a": "b"}}}
    merge = {"Content-Type": "application/merge-patch+json"}
    patched = namespace.server.request("PATCH", path, patch, headers=merge).json
    assert patched["metadata"]["annotations"] == {"minik8s.io/runtime-handler": "runsc", "a": "b"}
    message = make(namespace, pod("other", runtimeClassName=namespace.name, nodeSelector={"vm": "no"})).json["message"]
    assert "conflict: runtimeClass.scheduling.nodeSelector[vm] = yes; pod.spec.nodeSelector[vm] = no" in message
    changed = namespace.server.request("PATCH", f"{CLASSES}/{namespace.name}", {"handler": "runc"}, headers=merge)
    assert "field is immutable" in changed.json["message"]
    shown = namespace.server.kubectl("get", "runtimeclass", namespace.name).stdout
    assert shown.split()[:3] == ["NAME", "HANDLER", "AGE"]


def test_a_class_that_is_not_there_keeps_the_pod_out(namespace: Namespace) -> None:
    answer = make(namespace, pod("web", runtimeClassName="nothing"))
    assert answer.code == 403
    assert answer.json["message"] == 'pods "web" is forbidden: pod rejected: RuntimeClass "nothing" not found'


def test_overhead_is_the_classs_to_say(namespace: Namespace) -> None:
    make_class(namespace, handler="runsc", overhead={"podFixed": {"cpu": "1"}})
    alone = make(namespace, pod("alone", overhead={"cpu": "1"})).json["message"]
    assert alone.endswith("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")
    other = make(namespace, pod("other", runtimeClassName=namespace.name, overhead={"cpu": "2"})).json["message"]
    assert other.endswith("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")


def test_a_handler_is_a_name(namespace: Namespace) -> None:
    assert 'handler: Invalid value: "Not A Name"' in make_class(namespace, handler="Not A Name").json["message"]
