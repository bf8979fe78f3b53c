"""A host that a HostGrant gives to a namespace is that namespace's: an editor of another one cannot take it.

The attacks: claim ``login.bank.example`` first, or a path of it, or one name of a granted wildcard, or the certificate
it is served with; claim a name of the cluster itself; write the grant oneself. And the other way round: what nobody was
granted goes to whoever came first, whole.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from minik8s_modules.api.objects import JsonObject
from tests.integration.apiserver.conftest import Namespace
from tests.support.apiserver import Answer, ApiServerProcess

GRANTS = "/apis/minik8s.io/v1/hostgrants"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings"
INGRESSES = "/apis/networking.k8s.io/v1/namespaces/{}/ingresses"


class Team:
    """A namespace and whoever may edit in it, and nowhere else."""

    def __init__(self, server: ApiServerProcess, word: str) -> None:
        self.name = f"{word}-{uuid.uuid4().hex[:8]}"
        self.server = server
        self.editor = server.identity(f"editor-of-{self.name}")
        server.request("POST", "/api/v1/namespaces", {"metadata": {"name": self.name}})
        service = {"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}}
        server.request("POST", f"/api/v1/namespaces/{self.name}/services", service)
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
        subjects = [
            {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": f"editor-of-{self.name}"},
        ]
        body = {"metadata": {"name": "editors"}, "roleRef": role, "subjects": subjects}
        assert server.request("POST", BINDINGS.format(self.name), body).code == 201

    def send(self, method: str, path: str, body: Any = None) -> Answer:
        """Ask as the editor."""
        return self.server.request(method, path, body, client=self.editor)

    def dns(self, name: str, host: str) -> Answer:
        """Claim a host by a DNS object."""
        paths = [{"path": "/", "backend": {"service": {"name": "web", "port": 80}}}]
        body = {"metadata": {"name": name}, "spec": {"rules": [{"host": host, "paths": paths}]}}
        return self.send("POST", f"/api/v1/namespaces/{self.name}/dns", body)

    def ingress(self, name: str, host: str, path: str = "/", **spec: Any) -> Answer:
        """Claim a path of a host, "" for any, by an Ingress."""
        backend = {"service": {"name": "web", "port": {"number": 80}}}
        rule: JsonObject = {"http": {"paths": [{"path": path, "pathType": "Prefix", "backend": backend}]}}
        rules = [{"host": host, **rule} if host else rule]
        return self.send(
            "POST", INGRESSES.format(self.name), {"metadata": {"name": name}, "spec": {"rules": rules, **spec}}
        )


@pytest.fixture
def bank(server: ApiServerProcess) -> Team:
    return Team(server, "bank")


@pytest.fixture
def mallory(server: ApiServerProcess) -> Team:
    return Team(server, "mallory")


@pytest.fixture
def domain(server: ApiServerProcess, bank: Team) -> Iterator[str]:
    """A domain that the bank was granted."""
    name = f"{bank.name}.example"
    spec = {"namespaces": [bank.name], "hosts": [name, f"*.{name}"]}
    answer = server.request("POST", GRANTS, {"metadata": {"name": bank.name}, "spec": spec})
    assert answer.code == 201, answer.json
    yield name
    server.request("DELETE", f"{GRANTS}/{bank.name}")


def refused(answer: Answer, *words: str) -> None:
    """Look whether a claim was refused, and told why."""
    assert answer.code == 400, answer.json
    for word in words:
        assert word in answer.json["message"]


def without_effect(answer: Answer, *words: str) -> None:
    """Look whether an Ingress was kept that has no effect, as in Kubernetes, and its owner told why."""
    assert answer.code == 201, answer.json
    for word in (*words, "this Ingress has no effect there"):
        assert word in answer.headers.get("warning", "")


def test_whoever_was_granted_a_host_gets_it_from_whoever_came_first(bank: Team, mallory: Team, domain: str) -> None:
    host = f"login.{domain}"
    assert mallory.dns("first", host).code == 201  # nobody has it yet: it answers in mallory's own pods
    assert bank.dns("login", host).code == 201
    assert mallory.send("DELETE", f"/api/v1/namespaces/{mallory.name}/dns/first").code == 200
    refused(mallory.dns("again", host), f"DNS {bank.name}/login", f"HostGrant {bank.name}", f"namespace {mallory.name}")


@pytest.mark.parametrize("path", ["/", "/login", "/login/deeper"])
def test_no_path_of_a_granted_host_goes_to_another_namespace(bank: Team, mallory: Team, domain: str, path: str) -> None:
    assert bank.ingress("login", f"login.{domain}", "/login").code == 201
    refused(mallory.ingress("path", f"login.{domain}", path), f"Ingress {bank.name}/login")
    refused(mallory.dns("whole", f"login.{domain}"), f"Ingress {bank.name}/login")


def test_no_name_of_a_granted_wildcard_goes_to_another_namespace(bank: Team, mallory: Team, domain: str) -> None:
    assert bank.ingress("all", f"*.{domain}").code == 201
    refused(mallory.ingress("one", f"login.{domain}"), f"Ingress {bank.name}/all", f"HostGrant {bank.name}")
    refused(mallory.dns("one", f"login.{domain}"), f"Ingress {bank.name}/all")
    refused(mallory.ingress("all", f"*.{domain}"), f"Ingress {bank.name}/all")


def test_a_host_nobody_was_granted_is_one_namespaces_whole(bank: Team, mallory: Team) -> None:
    host = f"{uuid.uuid4().hex[:8]}.example"
    assert bank.ingress("first", host, "/").code == 201
    without_effect(mallory.ingress("path", host, "/login"), f"Ingress {bank.name}/first", "HostGrant")
    assert bank.ingress("beside", host, "/login").code == 201


def test_namespaces_that_were_both_granted_a_host_share_it_path_by_path(
    server: ApiServerProcess, bank: Team, mallory: Team, domain: str
) -> None:
    spec = {"namespaces": [mallory.name], "hosts": [f"shared.{domain}"]}
    assert server.request("POST", GRANTS, {"metadata": {"name": mallory.name}, "spec": spec}).code == 201
    assert bank.ingress("first", f"shared.{domain}", "/").code == 201
    assert mallory.ingress("path", f"shared.{domain}", "/mallory").code == 201
    without_effect(mallory.ingress("same", f"shared.{domain}", "/"), f"Ingress {bank.name}/first")
    refused(mallory.dns("whole", f"shared.{domain}"), f"Ingress {bank.name}/first")
    server.request("DELETE", f"{GRANTS}/{mallory.name}")


@pytest.mark.parametrize(
    "host",
    [
        "web.other.svc.cluster.local",
        "kubernetes.default.svc",
        "cluster.local",
        "front.nodes.cluster.local",
        "login.example.other.hosts.cluster.local",
        "10-0-0-1.default.pod",
        "localhost",
        "api.localhost",
        "n1.node.minik8s.internal",
    ],
)
def test_names_of_the_cluster_itself_are_nobodys_hosts(namespace: Namespace, host: str) -> None:
    paths = [{"path": "/", "backend": {"service": {"name": "web", "port": 80}}}]
    body = {"metadata": {"name": "own"}, "spec": {"rules": [{"host": host, "paths": paths}]}}
    answer = namespace.server.request("POST", namespace.path("dns"), body)
    refused(answer, host, "cluster's own")


@pytest.mark.parametrize("host", ["Login.Bank.example", "login.bank.example.", "lögin.bank.example", "login..example"])
def test_another_spelling_of_a_host_is_no_host(mallory: Team, host: str) -> None:
    assert mallory.dns("spelt", host).code == 422
    assert mallory.ingress("spelt", host).code == 422


def test_only_who_administers_the_cluster_writes_grants(mallory: Team, domain: str) -> None:
    spec = {"namespaces": [mallory.name], "hosts": ["*"]}
    assert mallory.send("POST", GRANTS, {"metadata": {"name": mallory.name}, "spec": spec}).code == 403
    for one in mallory.server.request("GET", GRANTS).json["items"]:
        name = one["metadata"]["name"]
        assert mallory.send("PATCH", f"{GRANTS}/{name}", {"spec": spec}).code == 403
        assert mallory.send("DELETE", f"{GRANTS}/{name}").code == 403
