"""No pod gets another's containers by what is written into it.

An editor wrote another pod's UID into ``kubernetes.io/config.mirror`` of his own pod, and exec, attach, logs and
port-forward went to the other; while his pod was deleted, the other's sandbox was made anew. Only a node, for itself,
and the reconciler write that annotation, at creation; nobody changes it; and what it holds is never a pod's UID.
"""

from __future__ import annotations

from typing import Any

import pytest

from minik8s_modules.api.objects import JsonObject
from tests.attacks.people import editor_of
from tests.integration.apiserver.conftest import Namespace, pod
from tests.support.apiserver import ApiServerProcess
from tests.support.pki import Certificate

MIRROR = "kubernetes.io/config.mirror"
STATIC = "0123456789abcdef" * 2


@pytest.fixture
def editor(namespace: Namespace) -> Certificate:
    return editor_of(namespace)


@pytest.fixture
def victim(namespace: Namespace) -> str:
    made = namespace.server.request("POST", namespace.path("pods"), pod("victim", nodeName="n1"))
    assert made.code == 201
    return str(made.json["metadata"]["uid"])


def claiming(uid: str, name: str = "forged-n1", node: str = "n1") -> JsonObject:
    body = pod(name, nodeName=node)
    body["metadata"]["annotations"] = {MIRROR: uid, "kubernetes.io/config.hash": uid}
    return body


@pytest.mark.parametrize("claimed", ["victim", STATIC])
@pytest.mark.parametrize("who", ["editor", "admin"])
def test_people_make_no_mirrors_whatever_their_rights(namespace: Namespace, editor, victim, who, claimed):
    body = claiming(victim if claimed == "victim" else claimed)
    answer = namespace.server.request(
        "POST", namespace.path("pods"), body, client={"editor": editor, "admin": None}[who]
    )
    assert answer.code in {403, 422}, answer.body
    assert MIRROR in answer.json["message"]
    assert namespace.get("forged-n1", "pods").code == 404


@pytest.mark.parametrize("media", ["merge-patch", "strategic-merge-patch", "json-patch", "apply-patch", "put"])
@pytest.mark.parametrize("subresource", ["", "status", "ephemeralcontainers", "resize"])
def test_no_pod_becomes_a_mirror_afterwards(namespace: Namespace, editor, victim, media, subresource):
    server, path = namespace.server, namespace.path("pods", "mine")
    assert server.request("POST", namespace.path("pods"), pod("mine"), client=editor).code == 201
    change: Any = {"metadata": {"annotations": {MIRROR: victim}}}
    method, sent = "PATCH", "application/json" if media == "put" else f"application/{media}+json"
    if media == "json-patch":
        change = [{"op": "add", "path": "/metadata/annotations", "value": {MIRROR: victim}}]
    elif media == "apply-patch":
        change, sent = {"apiVersion": "v1", "kind": "Pod", **change}, "application/apply-patch+yaml"
        change["metadata"]["name"] = "mine"
    elif media == "put":
        method, change = "PUT", namespace.get("mine", "pods").json
        change["metadata"]["annotations"] = {MIRROR: victim}
    asked = "?fieldManager=x&force=true" if media == "apply-patch" else ""
    where = f"{path}/{subresource}{asked}" if subresource else f"{path}{asked}"
    answer = server.request(method, where, change, headers={"Content-Type": sent})
    if not subresource:
        assert (answer.code, "may not add mirror pod annotation" in answer.json["message"]) == (422, True)
    assert MIRROR not in (namespace.get("mine", "pods").json["metadata"].get("annotations") or {})


def test_a_binding_makes_no_mirror(namespace: Namespace, victim: str):
    server = namespace.server
    server.request("POST", namespace.path("pods"), pod("waiting"))
    body = {"metadata": {"name": "waiting", "annotations": {MIRROR: victim}}, "target": {"kind": "Node", "name": "n1"}}
    for who in (None, server.identity("system:kube-scheduler")):
        answer = server.request("POST", namespace.path("pods", "waiting", "binding"), body, client=who)
        assert answer.code in {403, 422}, answer.body
    assert MIRROR not in (namespace.get("waiting", "pods").json["metadata"].get("annotations") or {})
    body["metadata"]["annotations"] = {"example.com/chosen-by": "me"}  # type: ignore[index]
    assert server.request("POST", namespace.path("pods", "waiting", "binding"), body).code == 201


@pytest.mark.parametrize("kind", ["deployments", "daemonsets", "replicasets"])
def test_a_template_makes_no_mirrors(namespace: Namespace, editor, victim, kind):
    template = claiming(victim)
    template["metadata"] |= {"labels": {"app": "x"}}
    spec = {"selector": {"matchLabels": {"app": "x"}}, "template": template}
    path = f"/apis/apps/v1/namespaces/{namespace.name}/{kind}"
    answer = namespace.server.request("POST", path, {"metadata": {"name": "maker"}, "spec": spec}, client=editor)
    assert (answer.code, f"spec.template.metadata.annotations[{MIRROR}]" in answer.json["message"]) == (403, True)
    # and what controllers would make of one that was stored before
    controllers = namespace.server.identity("system:kube-controller-manager")
    answer = namespace.server.request("POST", namespace.path("pods"), claiming(STATIC), client=controllers)
    assert answer.code == 403, answer.body


def test_a_node_mirrors_what_runs_on_itself_and_nothing_that_has_a_pods_uid(namespace: Namespace, victim: str):
    node = namespace.server.identity("system:node:n1", "system:nodes")

    def code(body: JsonObject) -> int:
        return namespace.server.request("POST", namespace.path("pods"), body, client=node).code

    assert code(claiming(victim)) == 422
    assert code(claiming(STATIC, "forged-n2", "n2")) == 403
    assert code(claiming(STATIC, "forged")) == 422
    assert code(claiming(STATIC)) == 201


def test_nobody_changes_a_mirror_afterwards(namespace: Namespace, victim: str):
    server, path = namespace.server, namespace.path("pods", "forged-n1")
    node = server.identity("system:node:n1", "system:nodes")
    assert server.request("POST", namespace.path("pods"), claiming(STATIC), client=node).code == 201
    for value in (victim, "f" * 32, None):
        change = {"metadata": {"annotations": {MIRROR: value}}}
        answer = server.request("PATCH", path, change, headers={"Content-Type": "application/merge-patch+json"})
        assert (answer.code, "may not remove or update mirror pod annotation" in answer.json["message"]) == (422, True)
        server.request(
            "PATCH", f"{path}/status", change, client=node, headers={"Content-Type": "application/merge-patch+json"}
        )
    assert namespace.get("forged-n1", "pods").json["metadata"]["annotations"][MIRROR] == STATIC


def test_a_plan_is_no_way_round(server: ApiServerProcess, namespace: Namespace, victim: str):
    body = {"apiVersion": "v1", "kind": "Pod", **claiming(victim)}
    body["metadata"]["namespace"] = namespace.name
    plan = {"apiVersion": "minik8s.io/v1", "kind": "Plan", "metadata": {"name": "p"}, "spec": {"objects": [body]}}
    answer = server.request("POST", "/apis/minik8s.io/v1/plans", plan)
    (planned,) = answer.json["status"]["objects"]
    assert (planned["action"], MIRROR in planned["message"]) == ("refuse", True)
    assert not any(part["diff"] or part["steps"] for part in answer.json["status"]["nodes"].values())
