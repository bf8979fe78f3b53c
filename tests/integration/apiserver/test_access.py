"""TLS, certificates and roles: who is let in, and what they are told."""

from __future__ import annotations

import http.client
import ssl
import time

import pytest

from tests.integration.apiserver.conftest import Namespace
from tests.support.apiserver import ApiServerProcess
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
    connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=context, timeout=10)
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


def test_a_new_serving_certificate_is_used_without_a_restart(server: ApiServerProcess):
    def serial() -> str:
        context = server.context(server.admin)
        connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=context, timeout=10)
        connection.connect()
        certificate = connection.sock.getpeercert()
        connection.close()
        assert certificate
        return str(certificate["serialNumber"])

    before = serial()
    server.authority.issue("apiserver", "minik8s-apiserver")
    deadline = time.monotonic() + 5
    while serial() == before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert serial() != before
