"""TLS, certificates and roles: who is let in, and what they are told."""

from __future__ import annotations

import http.client
import ssl
import subprocess
import sys
import time

import pytest

from tests.integration.apiserver.conftest import Namespace
from tests.support.apiserver import ROOT, ApiServerProcess
from tests.support.pki import Authority


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz", "/version", "/version/", "/readyz/etcd"])
def test_health_and_version_are_open(server: ApiServerProcess, path: str):
    assert server.request("GET", path, anonymous=True).code == 200


@pytest.mark.parametrize(
    "path", ["/api", "/apis", "/api/v1/pods", "/metrics", "/openapi/v3", "/", "/healthzz", "/nothing"]
)
def test_everything_else_needs_a_certificate(server: ApiServerProcess, path: str):
    answer = server.request("GET", path, anonymous=True)
    assert (answer.code, answer.json["reason"]) == (401, "Unauthorized")


@pytest.mark.parametrize(
    "path", ["/api/", "/apis/", "/api/v1/", "/apis/minik8s.io/v1/", "/openapi/v3/", "/api/v1/nodes/"]
)
def test_a_slash_at_the_end_does_not_matter(server: ApiServerProcess, path: str):
    assert server.request("GET", path).json == server.request("GET", path.rstrip("/")).json


def test_a_certificate_of_another_authority_is_refused(server: ApiServerProcess, tmp_path):
    stranger = Authority(tmp_path, "other").issue("x", "minik8s-admin", ("system:masters",))
    with pytest.raises((ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)):
        server.request("GET", "/api", client=stranger)


def test_an_expired_certificate_is_refused(server: ApiServerProcess):
    old = server.authority.issue("old", "minik8s-admin", ("system:masters",), expired=True)
    with pytest.raises((ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)):
        server.request("GET", "/api", client=old)


def test_tls_1_1_is_refused(server: ApiServerProcess):
    context = server.context(server.admin)
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=context, timeout=60)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        connection.request("GET", "/version")
    connection.close()


def test_a_refusal_says_who_what_and_where(server: ApiServerProcess, namespace: Namespace):
    gateway = server.identity("system:minik8s:gateway")
    answer = server.request("GET", namespace.path("secrets"), client=gateway)
    assert answer.code == 403
    assert answer.json["message"] == (
        'secrets is forbidden: User "system:minik8s:gateway" cannot list resource "secrets" in API group "" '
        f'in the namespace "{namespace.name}"'
    )
    body = {"metadata": {"name": "a"}}
    assert server.request("POST", namespace.path("configmaps"), body, client=gateway).code == 403
    assert namespace.get("a").code == 404


@pytest.mark.parametrize(
    ("user", "method", "path", "code"),
    [
        ("system:kube-scheduler", "GET", "/api/v1/pods", 200),
        ("system:kube-scheduler", "GET", "/api/v1/secrets", 403),
        ("system:minik8s:reconciler", "GET", "/api/v1/secrets", 200),
        ("system:minik8s:reconciler", "DELETE", "/api/v1/namespaces/default", 403),
        ("system:minik8s:gateway", "GET", "/api/v1/nodes", 200),
        ("system:minik8s:gateway", "GET", "/api/v1/pods", 403),
        ("system:kube-controller-manager", "GET", "/api/v1/configmaps", 200),
        ("somebody", "GET", "/api/v1/pods", 403),
        ("somebody", "GET", "/apis", 200),
        ("somebody", "GET", "/metrics", 403),
    ],
)
def test_roles(server: ApiServerProcess, user: str, method: str, path: str, code: int):
    assert server.request(method, path, client=server.identity(user)).code == code


def test_access_reviews_answer_by_the_same_roles(server: ApiServerProcess):
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    scheduler = server.identity("system:kube-scheduler")

    def may(**attributes: str) -> bool:
        body = {"spec": {"resourceAttributes": attributes}}
        return bool(server.request("POST", path, body, client=scheduler).json["status"]["allowed"])

    assert may(verb="create", resource="pods", subresource="binding", namespace="default")
    assert not may(verb="create", resource="pods", namespace="default")


def test_who_am_i(server: ApiServerProcess):
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    info = server.request("POST", path, {}).json["status"]["userInfo"]
    assert info == {"username": "minik8s-admin", "groups": ["system:masters", "system:authenticated"]}


def test_administrators_may_act_as_others_and_others_may_not(server: ApiServerProcess):
    as_scheduler = {"Impersonate-User": "system:kube-scheduler"}
    assert server.request("GET", "/api/v1/pods", headers=as_scheduler).code == 200
    refused = server.request("GET", "/api/v1/secrets", headers=as_scheduler)
    assert (refused.code, 'User "system:kube-scheduler" cannot list' in refused.json["message"]) == (403, True)
    gateway = server.identity("system:minik8s:gateway")
    assert server.request("GET", "/api/v1/nodes", headers=as_scheduler, client=gateway).code == 403
    as_master = {"Impersonate-User": "x", "Impersonate-Group": "system:masters"}
    assert server.request("GET", "/api/v1/secrets", headers=as_master).code == 200
    assert server.request("GET", "/api/v1/secrets", headers=as_master, client=gateway).code == 403
    assert server.request("GET", "/api", headers={"Impersonate-Group": "x"}).code == 400
    assert server.kubectl("auth", "can-i", "list", "pods", "--as=nobody", check=False).stdout.startswith("no")


def test_the_root_lists_what_is_served(server: ApiServerProcess):
    assert {"/api", "/apis", "/healthz", "/metrics", "/openapi/v3"} <= set(server.request("GET", "/").json["paths"])


def test_a_certificate_that_cannot_be_used_is_named(tmp_path):
    server = ApiServerProcess(tmp_path, "http://127.0.0.1:1")
    (tmp_path / "pki" / "apiserver.crt").write_text("no certificate")
    argv = [sys.executable, "-m", "minik8s_modules.apiserver.main", "--config", str(tmp_path / "apiserver.yml")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT)
    assert done.returncode == 2
    assert str(tmp_path / "pki" / "apiserver.crt") in done.stderr
    assert "Traceback" not in done.stderr
    assert server.stop() == 0


def test_a_new_serving_certificate_is_used_without_a_restart(server: ApiServerProcess):
    def serial() -> str:
        context = server.context(server.admin)
        connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=context, timeout=60)
        connection.connect()
        certificate = connection.sock.getpeercert()
        connection.close()
        assert certificate
        return str(certificate["serialNumber"])

    before = serial()
    server.authority.issue("apiserver", "minik8s-apiserver")
    deadline = time.monotonic() + 60
    while serial() == before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert serial() != before
