"""Bootstrap tokens at the API server: who comes with one, what he may do, and what anybody may read."""

from __future__ import annotations

import base64
import secrets
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from minik8s_modules.api.access import bootstrap_tokens
from minik8s_modules.api.access.bootstrap_tokens import BootstrapToken
from minik8s_modules.reconcile.standalone.joining import CLIENT_SIGNER, make_request
from tests.support.apiserver import Answer, ApiServerProcess

SECRETS = "/api/v1/namespaces/kube-system/secrets"
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
INFO = "/api/v1/namespaces/kube-public/configmaps/cluster-info"


def made(server: ApiServerProcess, **ends: float) -> BootstrapToken:
    """Store a token, by default one for an hour, and return it."""
    token = bootstrap_tokens.new_token(secrets.choice)
    expires = datetime.now(UTC) + timedelta(**(ends or {"hours": 1}))
    assert server.request("POST", SECRETS, bootstrap_tokens.secret_of(token, expires)).code == 201
    return token


def asked(node: str, signer: str = CLIENT_SIGNER) -> dict[str, Any]:
    """A signing request as a newcomer sends it."""
    request = make_request(CLIENT_SIGNER, node)
    spec = {
        "signerName": signer,
        "usages": ["digital signature", "client auth"],
        "request": base64.b64encode(request.request.encode()).decode(),
    }
    return {"metadata": {"name": request.name}, "spec": spec}


@pytest.fixture
def token(server: ApiServerProcess) -> BootstrapToken:
    return made(server)


def test_a_token_is_a_newcomer_who_asks_to_be_a_node_and_reads_his_own_request(
    server: ApiServerProcess, token: BootstrapToken
):
    def send(method: str, path: str, body: Any = None, shown: BootstrapToken = token) -> Answer:
        return server.request(method, path, body, token=str(shown))

    body = asked("n1")
    answer = send("POST", REQUESTS, body)
    assert answer.code == 201, answer.body
    assert answer.json["spec"]["username"] == f"system:bootstrap:{token.id}"
    assert "system:bootstrappers" in answer.json["spec"]["groups"]
    name = body["metadata"]["name"]
    assert send("GET", f"{REQUESTS}/{name}").code == 200
    assert send("GET", f"{REQUESTS}/{name}", shown=made(server)).code == 403
    for path in (REQUESTS, SECRETS, "/api/v1/nodes", "/api/v1/pods"):
        assert send("GET", path).code == 403
    assert send("DELETE", f"{REQUESTS}/{name}").code == 403
    server.request("DELETE", f"{REQUESTS}/{name}")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"signer": "kubernetes.io/kube-apiserver-client"}, "signerName must be"),
        ({"node": ""}, "the subject must be CN=system:node:NAME"),
    ],
)
def test_a_newcomer_asks_for_nothing_else(
    server: ApiServerProcess, token: BootstrapToken, change: dict[str, str], message: str
):
    body = asked(change.get("node", "n1"), change.get("signer", CLIENT_SIGNER))
    answer = server.request("POST", REQUESTS, body, token=str(token))
    assert (answer.code, message in answer.json["message"]) == (403, True), answer.body


def test_a_token_that_is_wrong_expired_or_not_for_this_is_nobody(server: ApiServerProcess, token: BootstrapToken):
    other = token._replace(secret="0" * 16)
    assert server.request("GET", REQUESTS, token=str(other)).code == 401
    assert server.request("GET", REQUESTS, token=str(made(server, seconds=-1))).code == 401
    for key, value in (("usage-bootstrap-authentication", "false"), ("auth-extra-groups", "system:masters")):
        found = made(server)
        path = f"{SECRETS}/{bootstrap_tokens.PREFIX}{found.id}"
        patch = {"data": {key: base64.b64encode(value.encode()).decode()}}
        merge = {"Content-Type": "application/merge-patch+json"}
        assert server.request("PATCH", path, patch, headers=merge).code == 200
        assert server.request("GET", REQUESTS, token=str(found)).code == 401
    server.request("DELETE", f"{SECRETS}/{bootstrap_tokens.PREFIX}{token.id}")
    assert server.request("GET", REQUESTS, token=str(token)).code == 401


def test_nobody_reads_how_the_cluster_is_known_and_nothing_else(server: ApiServerProcess):
    body = {"metadata": {"name": "cluster-info"}, "data": {"kubeconfig": "{}"}}
    assert server.request("POST", INFO.rpartition("/")[0], body).code == 201
    assert server.request("GET", INFO, anonymous=True).json["data"] == {"kubeconfig": "{}"}
    for method, path in (("GET", INFO.rpartition("/")[0]), ("DELETE", INFO), ("GET", f"{INFO}x")):
        assert server.request(method, path, anonymous=True).code == 401
    server.request("DELETE", INFO)
