"""A namespace's Pod Security level holds for every container that comes to a pod, whichever way it comes.

In a restricted namespace, ``kubectl debug`` brought a privileged container of root to a pod: the subresource
``ephemeralcontainers`` was passed over. So was whatever changed a namespace's own labels through ``finalize``.
"""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from minik8s_modules.api.objects import JsonObject
from tests.attacks.people import editor_of
from tests.integration.apiserver.conftest import Namespace
from tests.support.apiserver import Answer
from tests.support.pki import Certificate
from tests.support.waiting import until

LEVEL = "pod-security.kubernetes.io/"
MERGE = {"Content-Type": "application/merge-patch+json"}
GOOD = {
    "allowPrivilegeEscalation": False,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
BAD: dict[str, tuple[JsonObject, str]] = {
    "privileged": ({"privileged": True}, 'privileged (container "debugger" must not set'),
    "root": ({**GOOD, "runAsUser": 0}, "runAsUser=0"),
    "capability": ({**GOOD, "capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN"]}}, "NET_ADMIN"),
    "nothing-said": ({}, "allowPrivilegeEscalation != false"),
}


def level(namespace: Namespace, **modes: str) -> None:
    change = {"metadata": {"labels": {f"{LEVEL}{mode}": value for mode, value in modes.items()}}}
    path = f"/api/v1/namespaces/{namespace.name}"
    assert namespace.server.request("PATCH", path, change, headers=MERGE).code == 200


@pytest.fixture
def editor(namespace: Namespace) -> Certificate:
    body = {"metadata": {"name": "web"}, "spec": {"containers": [{"name": "c", "image": "i", "securityContext": GOOD}]}}
    level(namespace, enforce="restricted")
    assert namespace.server.request("POST", namespace.path("pods"), body).code == 201
    return editor_of(namespace)


def debugged(namespace: Namespace, who: Certificate | None, context: JsonObject, way: str = "merge-patch") -> Answer:
    extra = {"name": "debugger", "image": "busybox", "securityContext": context}
    path, headers = namespace.path("pods", "web", "ephemeralcontainers"), {"Content-Type": f"application/{way}+json"}
    change: Any = {"spec": {"ephemeralContainers": [extra]}}
    if way == "put":
        change, headers = copy.deepcopy(namespace.get("web", "pods").json), {}
        change["spec"]["ephemeralContainers"] = [extra]
        return namespace.server.request("PUT", path, change, client=who, headers=headers)
    if way == "json-patch":
        change = [{"op": "add", "path": "/spec/ephemeralContainers", "value": [extra]}]
    if way == "apply-patch":
        change |= {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}}
        path, headers = f"{path}?fieldManager=x&force=true", {"Content-Type": "application/apply-patch+yaml"}
    return namespace.server.request("PATCH", path, change, client=who, headers=headers)


@pytest.mark.parametrize("way", ["merge-patch", "strategic-merge-patch", "json-patch", "apply-patch", "put"])
@pytest.mark.parametrize("context", BAD)
def test_no_debugging_container_is_below_the_level(namespace: Namespace, editor: Certificate, way, context):
    # role edit has no right to the subresource (as in Kubernetes); who debugs has it, and no more may pass for that
    given, words = BAD[context]
    answer = debugged(namespace, None, given, way)
    assert answer.code == 403, answer.body
    assert 'violates PodSecurity "restricted:latest"' in answer.json["message"]
    assert words in answer.json["message"]
    assert "ephemeralContainers" not in namespace.get("web", "pods").json["spec"]


def test_a_debugging_container_that_keeps_the_level_comes(namespace: Namespace, editor: Certificate):
    assert debugged(namespace, None, GOOD).code == 200


def audited(namespace: Namespace) -> list[JsonObject]:
    """Return the lines of the audit log about a namespace, of which the last may still be on its way."""
    lines = namespace.server.audit.read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if namespace.name in line and line.endswith("\n")]


def test_the_lower_modes_tell_of_debugging_containers(namespace: Namespace, editor: Certificate):
    level(namespace, enforce="privileged", warn="baseline", audit="restricted")
    answer = debugged(namespace, None, {"privileged": True})
    assert answer.code == 200, answer.body
    assert r"would violate PodSecurity \"baseline:latest\": privileged" in answer.headers["warning"]
    until(lambda: any(f"{LEVEL}audit-violations" in (one.get("annotations") or {}) for one in audited(namespace)))


def test_a_resize_changes_nothing_but_resources(namespace: Namespace, editor: Certificate):
    change = {"spec": {"containers": [{"name": "c", "securityContext": {"privileged": True}}]}}
    answer = namespace.server.request("PATCH", namespace.path("pods", "web", "resize"), change, headers=MERGE)
    assert answer.code == 200
    assert "privileged" not in str(namespace.get("web", "pods").json["spec"])


@pytest.mark.parametrize("subresource", ["status", "binding"])
def test_what_is_no_way_to_a_container_stays_none(namespace: Namespace, editor: Certificate, subresource):
    path = namespace.path("pods", "web", subresource)
    bad = {"containers": [{"name": "c", "image": "i", "securityContext": {"privileged": True}}]}
    if subresource == "binding":
        body = {"metadata": {"name": "web"}, "target": {"kind": "Node", "name": "n1"}, "spec": bad}
        namespace.server.request("POST", path, body)
    else:
        namespace.server.request("PATCH", path, {"spec": bad}, headers=MERGE)
    assert namespace.get("web", "pods").json["spec"]["containers"][0]["securityContext"] == GOOD


def test_a_namespaces_level_is_read_whichever_way_its_labels_come(namespace: Namespace, editor: Certificate):
    path = f"/api/v1/namespaces/{namespace.name}"
    body = namespace.server.request("GET", path).json
    body["metadata"]["labels"][f"{LEVEL}enforce"] = "no-such-level"
    for where in (path, f"{path}/finalize"):
        answer = namespace.server.request("PUT", where, body)
        assert (answer.code, f"metadata.labels[{LEVEL}enforce]" in answer.json["message"]) == (422, True)


def test_a_rising_level_tells_of_debugging_containers_too(namespace: Namespace, editor: Certificate):
    level(namespace, enforce="privileged")
    assert debugged(namespace, None, {"privileged": True}).code == 200
    change = {"metadata": {"labels": {f"{LEVEL}enforce": "restricted"}}}
    path = f"/api/v1/namespaces/{namespace.name}"
    answer = namespace.server.request("PATCH", path, change, headers=MERGE)
    assert "web: privileged" in answer.headers["warning"]


@pytest.mark.parametrize("way", ["apps", "original", "update"])
def test_whoever_writes_templates_is_told(namespace: Namespace, editor: Certificate, way):
    """Of the original's kinds, too: one of them is another view of the ReplicaSets of apps/v1."""
    level(namespace, enforce="privileged", warn="baseline")
    spec = {"containers": [{"name": "c", "image": "i", "securityContext": {"privileged": True}}]}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": spec}
    body = {"metadata": {"name": "t"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}
    path = f"/apis/apps/v1/namespaces/{namespace.name}/replicasets"
    if way == "original":
        path = namespace.path("legacyreplicasets")
    elif way == "update":
        path = namespace.path("rollingupdates")
        body["spec"] = {"serviceRef": "web", "port": 80, "minimumAlive": 1, "interval": 1, "newPodSpec": spec}
    warnings = warnings_of(namespace, path, body)
    assert any(r"would violate PodSecurity \"baseline:latest\": privileged" in each for each in warnings), warnings


def warnings_of(namespace: Namespace, path: str, body: JsonObject) -> list[str]:
    """Create an object and return all Warning headers."""
    connection = namespace.server.connection()
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    assert answer.status == 201, answer.read()
    connection.close()
    return answer.headers.get_all("Warning") or []
