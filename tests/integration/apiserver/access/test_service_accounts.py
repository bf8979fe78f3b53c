"""Tokens in a running server: kubectl asks for one, requests carry it, and it ends when it must."""

from __future__ import annotations

from tests.integration.apiserver.conftest import Namespace, pod
from tests.support.apiserver import ApiServerProcess

REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"


def test_a_token_is_asked_for_used_and_revoked(server: ApiServerProcess, namespace: Namespace):
    space = f"--namespace={namespace.name}"
    server.kubectl("create", "serviceaccount", "robot", space)
    token = server.kubectl("create", "token", "robot", space).stdout.strip()
    assert server.request("GET", namespace.path("pods"), token=token).code == 403
    server.kubectl(
        "create", "rolebinding", "robot", "--clusterrole=view", f"--serviceaccount={namespace.name}:robot", space
    )
    assert server.request("GET", namespace.path("pods"), token=token).code == 200
    assert server.request("GET", "/api/v1/nodes", token=token).code == 403
    user = server.request("POST", REVIEWS, {"spec": {"token": token}}).json["status"]["user"]
    assert user["username"] == f"system:serviceaccount:{namespace.name}:robot"
    who = server.request("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {}, token=token).json
    assert who["status"]["userInfo"] == user
    server.kubectl("delete", "serviceaccount", "robot", space)
    assert server.request("GET", namespace.path("pods"), token=token).code == 401


def test_a_token_bound_to_a_pod_ends_with_it(server: ApiServerProcess, namespace: Namespace):
    space = f"--namespace={namespace.name}"
    server.request("POST", namespace.path("serviceaccounts"), {"metadata": {"name": "robot"}})
    assert server.request("POST", namespace.path("pods"), pod("web", serviceAccountName="robot")).code == 201
    bound = ("--bound-object-kind=Pod", "--bound-object-name=web", "--duration=20m", "--audience=db")
    token = server.kubectl("create", "token", "robot", space, *bound).stdout.strip()

    def authenticated() -> bool:
        status = server.request("POST", REVIEWS, {"spec": {"token": token, "audiences": ["db"]}}).json["status"]
        return bool(status.get("authenticated"))

    assert authenticated()
    assert server.request("GET", "/api", token=token).code == 401, "its audience is not this API"
    server.kubectl("delete", "pod", "web", space, "--now")
    assert not authenticated()


def test_wrong_tokens_are_refused(server: ApiServerProcess):
    for token in ("x", "a.b.c", "e30.e30.e30"):
        answer = server.request("GET", "/api", token=token)
        assert (answer.code, answer.json["reason"]) == (401, "Unauthorized")


def test_other_services_can_verify_tokens(server: ApiServerProcess, namespace: Namespace):
    server.request("POST", namespace.path("serviceaccounts"), {"metadata": {"name": "robot"}})
    path = namespace.path("serviceaccounts", "robot", "token")
    answer = server.request("POST", path, {"spec": {"expirationSeconds": 900}})
    assert answer.code == 201, answer.body
    token = answer.json["status"]["token"]
    found = server.request("GET", "/.well-known/openid-configuration", token=token)
    assert found.json["jwks_uri"] == f"{server.url}/openid/v1/jwks"
    keys = server.request("GET", "/openid/v1/jwks", token=token)
    assert keys.headers["content-type"] == "application/jwk-set+json"
    assert keys.json["keys"][0]["alg"] == found.json["id_token_signing_alg_values_supported"][0] == "ES256"
    assert server.request("GET", "/openid/v1/jwks", anonymous=True).code == 401
