"""Attack: whoever has a token for joining asks for the name of a node that is there, and so for its Pods and Secrets.

A node that says it is not Ready (its Docker is away) lives all the same as long as its Lease is renewed.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from minik8s_modules.api.access import bootstrap_tokens
from minik8s_modules.base.clock import rfc3339_micro
from tests.support.apiserver import ApiServerProcess
from tests.support.pki import subject_of
from tests.support.servers.signer import Signer
from tests.support.waiting import until

REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
HELD_S = 600


@pytest.fixture(scope="module")
def signer(server: ApiServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    running = Signer(server, tmp_path_factory.mktemp("signer")).start()
    yield running.log
    running.kill()


def node(server: ApiServerProcess, *, ready: str, renewed_ago_s: int) -> str:
    """Make a node that says of itself whether it is ready, and whose Lease was renewed some time ago."""
    name, renewed = f"n{secrets.token_hex(4)}", datetime.now(UTC) - timedelta(seconds=renewed_ago_s)
    status = {"conditions": [{"type": "Ready", "status": ready}]}
    assert server.request("POST", "/api/v1/nodes", {"metadata": {"name": name}, "status": status}).code == 201
    held = {"holderIdentity": name, "leaseDurationSeconds": HELD_S, "renewTime": rfc3339_micro(renewed)}
    assert server.request("POST", LEASES, {"metadata": {"name": name}, "spec": held}).code == 201
    return name


def outcome(server: ApiServerProcess, name: str) -> dict[str, Any]:
    """Return how it ends that somebody with a fresh token asks for a node's certificate."""
    token = bootstrap_tokens.new_token(secrets.choice)
    secret = bootstrap_tokens.secret_of(token, datetime.now(UTC) + timedelta(hours=1))
    assert server.request("POST", "/api/v1/namespaces/kube-system/secrets", secret).code == 201
    asked = x509.CertificateSigningRequestBuilder().subject_name(subject_of(f"system:node:{name}", "system:nodes"))
    signed = asked.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    spec = {
        "request": base64.b64encode(signed.public_bytes(serialization.Encoding.PEM)).decode(),
        "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
        "usages": ["digital signature", "client auth"],
    }
    called = f"r{secrets.token_hex(4)}"
    made = server.request("POST", REQUESTS, {"metadata": {"name": called}, "spec": spec}, token=str(token))
    assert made.code == 201, made.body

    def settled() -> dict[str, Any]:
        status = server.request("GET", f"{REQUESTS}/{called}").json["status"]
        denied = [one for one in status.get("conditions") or [] if one["type"] == "Denied"]
        return denied[0] if denied else {"certificate": True} if status.get("certificate") else {}

    return dict(until(settled))


@pytest.mark.parametrize(("ready", "renewed_ago_s"), [("True", HELD_S * 2), ("False", 0), ("Unknown", 0)])
@pytest.mark.usefixtures("signer")
def test_a_living_nodes_name_is_taken(server: ApiServerProcess, ready: str, renewed_ago_s: int) -> None:
    found = outcome(server, node(server, ready=ready, renewed_ago_s=renewed_ago_s))
    assert found.get("reason") == "NodeIsAlive", found


@pytest.mark.usefixtures("signer")
def test_a_node_that_was_installed_anew_joins_once_it_counts_as_down(server: ApiServerProcess) -> None:
    assert outcome(server, node(server, ready="Unknown", renewed_ago_s=HELD_S * 2)) == {"certificate": True}
