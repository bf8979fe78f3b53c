"""The signer as a process of its own, with kubectl's approve, a node's renewal, and a kill in the middle."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from minik8s_modules.api.kinds import CERTIFICATE_SIGNING_REQUEST as CSR
from minik8s_modules.client.api import ApiClient
from tests.integration.control.conftest import Cluster
from tests.support.pki import Certificate
from tests.support.servers.signer import Signer, pem_of
from tests.support.waiting import until


@pytest.fixture(scope="module")
def signer(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Signer]:
    made = Signer(cluster.server, tmp_path_factory.mktemp("signer")).start()
    yield made
    made.kill()


def ask(client: ApiClient, name: str, common_name: str, *groups: str, **spec: Any) -> ec.EllipticCurvePrivateKey:
    """Create a signing request and return its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    words = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in groups]
    subject = x509.Name([*words, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    pem = base64.b64encode(request.public_bytes(serialization.Encoding.PEM)).decode()
    body = {"signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"], "request": pem, **spec}
    client.create(CSR, {"metadata": {"name": name}, "spec": body})
    return key


def issued(cluster: Cluster, name: str) -> bytes:
    found = until(lambda: (cluster.admin.get(CSR, name).get("status") or {}).get("certificate"))
    return base64.b64decode(found)


def whoami(cluster: Cluster, folder: Path, certificate: bytes, key: ec.EllipticCurvePrivateKey) -> Any:
    """Return the user whom the API server sees behind the certificate."""
    files = Certificate(folder / "c.crt", folder / "c.key")
    files.cert.write_bytes(certificate)
    files.key.write_bytes(pem_of(key))
    context = ssl.create_default_context(cafile=str(cluster.server.authority.ca))
    context.load_cert_chain(files.cert, files.key)
    connection = http.client.HTTPSConnection("127.0.0.1", cluster.server.port, context=context, timeout=60)
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    connection.request("POST", path, json.dumps({}), {"Content-Type": "application/json"})
    answer = json.load(connection.getresponse())
    connection.close()
    return answer["status"]["userInfo"]


def test_kubectl_approves_and_the_certificate_is_good(cluster: Cluster, signer: Signer, tmp_path: Path):
    key = ask(cluster.admin, "jane", "jane", "people", expirationSeconds=3600)
    assert "certificate" not in (cluster.admin.get(CSR, "jane").get("status") or {})
    cluster.server.kubectl("certificate", "approve", "jane")
    pem = issued(cluster, "jane")
    found = x509.load_pem_x509_certificate(pem)
    assert (found.not_valid_after_utc - found.not_valid_before_utc).total_seconds() == 3600 + 300
    user = whoami(cluster, tmp_path, pem, key)
    assert (user["username"], "people" in user["groups"]) == ("jane", True)
    assert "Approved,Issued" in cluster.server.kubectl("get", "csr", "jane").stdout


def test_a_denied_request_and_one_the_signer_does_not_give_have_no_certificate(cluster: Cluster, signer: Signer):
    ask(cluster.admin, "denied", "jane")
    cluster.server.kubectl("certificate", "deny", "denied")
    ask(cluster.admin, "odd", "jane", usages=["server auth"])

    def conditions() -> Any:
        status = cluster.admin.get(CSR, "odd").get("status") or {}
        return [(each["type"], each["message"]) for each in status.get("conditions") or []]

    until(lambda: conditions() == [("Denied", "invalid usage for client certificate: server auth")])
    assert "certificate" not in cluster.admin.get(CSR, "odd")["status"]
    assert "certificate" not in cluster.admin.get(CSR, "denied")["status"]


def test_a_node_renews_its_own_certificate_and_no_other_nodes(cluster: Cluster, signer: Signer, tmp_path: Path):
    identity = cluster.server.identity("system:node:n1", "system:nodes")
    node = ApiClient(cluster.server.url, cluster.server.authority.ca, identity.cert, identity.key)
    wanted = {
        "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
        "usages": ["digital signature", "client auth"],
    }
    ask(node, "other", "system:node:n2", "system:nodes", **wanted)
    key = ask(node, "own", "system:node:n1", "system:nodes", **wanted)
    user = whoami(cluster, tmp_path, issued(cluster, "own"), key)
    assert user["username"] == "system:node:n1"
    conditions = cluster.admin.get(CSR, "own")["status"]["conditions"]
    assert [(each["type"], each["reason"]) for each in conditions] == [("Approved", "AutoApproved")]
    assert not (cluster.admin.get(CSR, "other").get("status") or {}).get("conditions")
    node.close()


def test_a_killed_signer_signs_after_its_restart(cluster: Cluster, signer: Signer):
    signer.kill()
    ask(cluster.admin, "late", "jane")
    cluster.server.kubectl("certificate", "approve", "late")
    signer.start()
    assert issued(cluster, "late")
