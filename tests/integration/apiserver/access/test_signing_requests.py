"""Signing requests tell who asked, whichever way they came, and only who holds a signer approves for it."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.integration.apiserver.conftest import Namespace
from tests.support.apiserver import ApiServerProcess
from tests.support.pki import Certificate

PATH = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
SIGNER = "kubernetes.io/kube-apiserver-client"
RULES = [
    {
        "verbs": ["create", "patch", "get"],
        "apiGroups": ["certificates.k8s.io"],
        "resources": ["certificatesigningrequests"],
    },
    {
        "verbs": ["update", "patch"],
        "apiGroups": ["certificates.k8s.io"],
        "resources": ["certificatesigningrequests/approval"],
    },
]
APPLY, MERGE = {"Content-Type": "application/apply-patch+yaml"}, {"Content-Type": "application/merge-patch+json"}


def request(name: str, *organizations: str) -> Any:
    """A request for a client certificate that claims to come from the administrator."""
    names = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in organizations]
    subject = x509.Name([*names, x509.NameAttribute(NameOID.COMMON_NAME, "jane")])
    made = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(subject)
        .sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    )
    pem = base64.b64encode(made.public_bytes(serialization.Encoding.PEM)).decode()
    spec = {
        "request": pem,
        "signerName": SIGNER,
        "usages": ["client auth"],
        "username": "minik8s-admin",
        "groups": ["system:masters"],
    }
    kind = {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest"}
    return {**kind, "metadata": {"name": name}, "spec": spec}


@pytest.fixture
def asker(server: ApiServerProcess, namespace: Namespace) -> Certificate:
    """Somebody who may make and approve requests, but holds no signer."""
    name = f"asker-{namespace.name}"
    roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    assert server.request("POST", roles, {"metadata": {"name": name}, "rules": RULES}).code == 201
    server.kubectl("create", "clusterrolebinding", name, f"--clusterrole={name}", f"--user={name}")
    return server.identity(name)


def test_a_request_says_who_asked_whichever_way_it_came(
    server: ApiServerProcess, namespace: Namespace, asker: Certificate
):
    posted, patched = f"a-{namespace.name}", f"b-{namespace.name}"
    answers = [
        server.request("POST", PATH, request(posted), client=asker),
        server.request("PATCH", f"{PATH}/{patched}?fieldManager=x", request(patched), client=asker, headers=APPLY),
    ]
    for answer in answers:
        assert answer.code == 201, answer.body
        assert answer.json["spec"]["username"] == f"asker-{namespace.name}"
        assert answer.json["spec"]["groups"] == ["system:authenticated"]
        server.request("DELETE", f"{PATH}/{answer.json['metadata']['name']}")


def test_nobody_asks_for_a_certificate_of_masters(server: ApiServerProcess, namespace: Namespace, asker: Certificate):
    answer = server.request("POST", PATH, request(f"m-{namespace.name}", "system:masters"), client=asker)
    assert (answer.code, "is not allowed" in answer.json["message"]) == (403, True)


def test_approval_needs_the_signer(server: ApiServerProcess, namespace: Namespace, asker: Certificate):
    name = f"c-{namespace.name}"
    server.request("POST", PATH, request(name), client=asker)
    condition = {"type": "Approved", "status": "True", "reason": "x", "message": "y"}
    body = {"status": {"conditions": [condition]}}
    refused = server.request("PATCH", f"{PATH}/{name}/approval", body, client=asker, headers=MERGE)
    assert refused.json["message"].endswith(f'user not permitted to approve requests with signerName "{SIGNER}"')
    server.kubectl("certificate", "approve", name)
    assert server.request("GET", f"{PATH}/{name}").json["status"]["conditions"][0]["type"] == "Approved"
    server.request("DELETE", f"{PATH}/{name}")


def test_applying_what_is_not_there_needs_the_right_to_create(server: ApiServerProcess, namespace: Namespace):
    space = f"--namespace={namespace.name}"
    server.kubectl("create", "role", "patcher", "--verb=patch", "--resource=configmaps", space)
    server.kubectl("create", "rolebinding", "patcher", "--role=patcher", "--user=patcher", space)
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a": "b"}}
    path = f"{namespace.path('configmaps', 'a')}?fieldManager=x"
    answer = server.request("PATCH", path, body, client=server.identity("patcher"), headers=APPLY)
    assert (answer.code, "cannot create" in answer.json["message"]) == (403, True)
    assert server.request("PATCH", path, body, headers=APPLY).code == 201
    assert server.request("PATCH", path, body, client=server.identity("patcher"), headers=APPLY).code == 200
