"""Roles in a running server: kubectl makes them, requests follow them at once, and questions are answered by them."""

from __future__ import annotations

import json
from typing import Any

from tests.integration.apiserver.conftest import Namespace
from tests.support.apiserver import ApiServerProcess

ROLES = "/apis/rbac.authorization.k8s.io/v1"
REVIEWS = "/apis/authorization.k8s.io/v1"


def test_kubectl_makes_roles_and_they_count_at_once(server: ApiServerProcess, namespace: Namespace):
    jane, space = server.identity("jane"), f"--namespace={namespace.name}"
    assert server.request("GET", namespace.path("configmaps"), client=jane).code == 403
    server.kubectl("create", "role", "reader", "--verb=get,list", "--resource=configmaps", space)
    server.kubectl("create", "rolebinding", "jane", "--role=reader", "--user=jane", space)
    assert server.request("GET", namespace.path("configmaps"), client=jane).code == 200
    assert server.request("POST", namespace.path("configmaps"), {"metadata": {"name": "a"}}, client=jane).code == 403
    server.kubectl("delete", "rolebinding", "jane", space)
    assert server.request("GET", namespace.path("configmaps"), client=jane).code == 403
    shown = server.kubectl("describe", "role", "reader", space).stdout
    assert "configmaps" in shown
    assert "[get list]" in shown


def test_kubectl_makes_cluster_roles(server: ApiServerProcess, namespace: Namespace):
    name = f"reader-{namespace.name}"
    server.kubectl("create", "clusterrole", name, "--verb=get", "--resource=nodes", "--non-resource-url=/metrics")
    server.kubectl("create", "clusterrolebinding", name, f"--clusterrole={name}", f"--group={name}")
    joe = server.identity(f"joe-{namespace.name}", name)
    assert server.request("GET", "/metrics", client=joe).code == 200
    assert server.request("GET", "/api/v1/nodes/none", client=joe).code == 404
    assert server.request("GET", "/api/v1/nodes", client=joe).code == 403
    rows = server.kubectl("get", "clusterrolebinding", name, "-o", "wide").stdout
    assert f"ClusterRole/{name}" in rows


def test_an_aggregated_role_has_the_rules_of_those_it_selects(server: ApiServerProcess, namespace: Namespace):
    name = namespace.name
    server.kubectl("create", "clusterrole", f"all-{name}", f"--aggregation-rule={name}=yes")
    server.kubectl("create", "rolebinding", "ann", f"--clusterrole=all-{name}", "--user=ann", f"--namespace={name}")
    ann = server.identity("ann")
    assert server.request("GET", namespace.path("secrets"), client=ann).code == 403
    server.kubectl("create", "clusterrole", f"part-{name}", "--verb=list", "--resource=secrets")
    server.kubectl("label", "clusterrole", f"part-{name}", f"{name}=yes")
    assert server.request("GET", namespace.path("secrets"), client=ann).code == 200


def test_a_namespace_admin_cannot_make_himself_more(server: ApiServerProcess, namespace: Namespace):
    space = f"--namespace={namespace.name}"
    server.kubectl("create", "rolebinding", "chief", "--clusterrole=admin", "--user=chief", space)
    chief = ("--as=chief", space)
    server.kubectl("create", "role", "mine", "--verb=get", "--resource=pods", *chief)
    outcome = server.kubectl("create", "role", "more", "--verb=get", "--resource=nodes", *chief, check=False).stderr
    assert "is attempting to grant RBAC permissions not currently held" in outcome
    done = server.kubectl(
        "create", "rolebinding", "more", "--clusterrole=cluster-admin", "--user=chief", *chief, check=False
    )
    assert "not currently held" in done.stderr
    server.kubectl("create", "rolebinding", "less", "--clusterrole=view", "--user=joe", *chief)


def test_others_can_be_asked_about(server: ApiServerProcess, namespace: Namespace):
    server.kubectl(
        "create", "rolebinding", "team", "--clusterrole=view", "--group=team", f"--namespace={namespace.name}"
    )
    attributes = {"namespace": namespace.name, "verb": "list", "resource": "pods"}

    def status(about: dict[str, Any], path: str = f"{REVIEWS}/subjectaccessreviews") -> dict[str, Any]:
        answer = server.request("POST", path, {"spec": about})
        assert answer.code == 201, answer.body
        found: dict[str, Any] = answer.json["status"]
        return found

    assert status({"user": "x", "groups": ["team"], "resourceAttributes": attributes})["allowed"] is True
    assert (
        status({"user": "x", "uid": "1", "extra": {"a": ["b"]}, "resourceAttributes": attributes})["allowed"] is False
    )
    path = {"path": "/metrics", "verb": "get"}
    assert status({"user": "x", "nonResourceAttributes": path})["allowed"] is False
    assert status({"groups": ["system:monitoring"], "nonResourceAttributes": path})["allowed"] is True
    local = f"{REVIEWS}/namespaces/{namespace.name}/localsubjectaccessreviews"
    found = status({"groups": ["team"], "resourceAttributes": attributes}, local)
    assert 'RoleBinding "team/' in found["reason"]
    nobody = server.identity("nobody")
    body = {"spec": {"user": "x", "resourceAttributes": attributes}}
    assert server.request("POST", f"{REVIEWS}/subjectaccessreviews", body, client=nobody).code == 403


def test_kubectl_lists_what_one_may_do(server: ApiServerProcess, namespace: Namespace):
    space = f"--namespace={namespace.name}"
    server.kubectl("create", "rolebinding", "lister", "--clusterrole=view", "--user=lister", space)
    shown = server.kubectl("auth", "can-i", "--list", "--as=lister", space).stdout
    assert "selfsubjectrulesreviews.authorization.k8s.io" in shown
    assert any(line.startswith("pods ") and "[get list watch]" in line for line in shown.splitlines()), shown
    assert "/healthz" in shown
    assert "[*]" in server.kubectl("auth", "can-i", "--list").stdout


def test_the_parts_of_an_impersonation_are_authorized_apart(server: ApiServerProcess, namespace: Namespace):
    rule = {"verbs": ["impersonate"], "apiGroups": [""], "resources": ["users"], "resourceNames": ["joe"]}
    name = f"actor-{namespace.name}"
    assert server.request("POST", f"{ROLES}/clusterroles", {"metadata": {"name": name}, "rules": [rule]}).code == 201
    server.kubectl("create", "clusterrolebinding", name, f"--clusterrole={name}", f"--user={name}")
    actor, path = server.identity(name), "/apis/authentication.k8s.io/v1/selfsubjectreviews"

    def act(code: int, **headers: str) -> Any:
        sent = {f"Impersonate-{key}": value for key, value in headers.items()}
        answer = server.request("POST", path, {}, client=actor, headers=sent)
        assert answer.code == code, answer.body
        return answer.json

    assert act(201, User="joe")["status"]["userInfo"] == {"username": "joe", "groups": ["system:authenticated"]}
    message = act(403, User="ann")["message"]
    assert message == (
        f'users "ann" is forbidden: User "{name}" cannot impersonate resource "users" in API group "" '
        "at the cluster scope"
    )
    act(403, User="joe", Group="people")
    act(403, User="joe", Uid="1")
    act(403, User="joe", **{"Extra-Scope": "a"})
    act(403, User="system:serviceaccount:default:default")
    admin = {"Impersonate-User": "joe", "Impersonate-Uid": "7", "Impersonate-Extra-Scope": "a"}
    info = server.request("POST", path, {}, headers=admin).json["status"]["userInfo"]
    assert (info["uid"], info["extra"]) == ("7", {"scope": ["a"]})
    account = {"Impersonate-User": "system:serviceaccount:ns:robot"}
    info = server.request("POST", path, {}, headers=account).json["status"]["userInfo"]
    assert info["groups"] == ["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"]


def test_default_roles_that_were_spoiled_are_put_right(server: ApiServerProcess):
    # the reconciler of the start-up objects comes by every 10 s; here only what it decides by is looked at
    shown = json.loads(server.kubectl("get", "clusterrole", "view", "-o", "json").stdout)
    assert shown["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-edit"] == "true"
    assert shown["rules"]
