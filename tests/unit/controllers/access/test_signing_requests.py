"""Signing requests are settled by Kubernetes' rules; a certificate says what was asked for and no more."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from minik8s_modules.api.access import certificate_requests
from minik8s_modules.api.access.certificate_requests import Request, RequestedCertificate
from minik8s_modules.base.clock import rfc3339
from minik8s_modules.controllers.access import signing
from minik8s_modules.controllers.access.signing_requests import (
    Approve,
    Delete,
    Deny,
    Fail,
    Sign,
    Step,
    Wait,
    decide_request,
)
from tests.support.pki import Authority

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CASES = sorted((Path(__file__).parents[3] / "cases" / "decide_request").glob("*.yml"))


def ago(minutes: float) -> str:
    return rfc3339(NOW - timedelta(minutes=minutes))


def words_of(step: Step) -> str:
    match step:
        case Approve(subresource, _):
            return f"approve {subresource}"
        case Sign(_, lifetime):
            return f"sign {lifetime.total_seconds():.0f}"
        case Deny(message):
            return f"deny {message}"
        case Fail(message):
            return f"fail {message}"
        case Delete(why):
            return f"delete {why}"
        case Wait():
            return "wait"


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_decide_request(path: Path):
    case = yaml.safe_load(path.read_text())
    conditions = [{"type": kind, "lastUpdateTime": ago(age)} for kind, age in case.get("settled", {}).items()]
    spec: dict[str, Any] = {"signerName": case["signer"], "usages": case["usages"], "username": case.get("username")}
    if "seconds" in case:
        spec["expirationSeconds"] = case["seconds"]
    request = {
        "metadata": {"name": "r", "creationTimestamp": ago(case.get("age", 30))},
        "spec": spec,
        "status": {"conditions": conditions, "certificate": case.get("certificate", "")},
    }
    words: dict[str, Any] = {
        field: tuple(value) if isinstance(value, list) else value for field, value in case.get("asked", {}).items()
    }
    found = case.get("unreadable") or RequestedCertificate(**({"common_name": "jane", "organizations": ()} | words))
    assert words_of(decide_request(request, found, NOW)) == case["expect"]


@pytest.fixture
def authority(tmp_path: Path) -> signing.Authority:
    made, other = Authority(tmp_path, "new"), Authority(tmp_path, "old")
    key = made.key_pem
    # while authorities are exchanged the file holds both: the key tells which one signs
    return signing.load_authority(other.ca.read_bytes() + made.ca.read_bytes(), key)


def request_for(name: str) -> Request:
    key = ec.generate_private_key(ec.SECP256R1())
    names = x509.SubjectAlternativeName([x509.DNSName("a.example"), x509.IPAddress(ip_address("192.0.2.1"))])
    made = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(names, critical=False)
        .sign(key, hashes.SHA256())
    )
    return certificate_requests.parse(base64.b64encode(made.public_bytes(serialization.Encoding.PEM)).decode())


def test_a_certificate_says_what_was_asked_and_is_no_authority(authority: signing.Authority):
    request = request_for("jane")
    now = datetime.now(UTC).replace(microsecond=0)
    usages = ["digital signature", "client auth"]
    made = x509.load_pem_x509_certificate(signing.sign(request, authority, usages, now, timedelta(hours=1)))
    made.verify_directly_issued_by(authority.certificate)
    assert made.subject == x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "jane")])
    assert made.public_key() == request.key
    assert (made.not_valid_before_utc, made.not_valid_after_utc) == (
        now - timedelta(minutes=5),
        now + timedelta(hours=1),
    )
    assert not made.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert list(made.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [
        ExtendedKeyUsageOID.CLIENT_AUTH
    ]
    assert request.asked.addresses == ("192.0.2.1",)
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["a.example"]


def test_no_certificate_outlives_its_authority(authority: signing.Authority):
    now = datetime.now(UTC)
    pem = signing.sign(request_for("jane"), authority, ["any"], now, timedelta(days=365))
    assert x509.load_pem_x509_certificate(pem).not_valid_after_utc == authority.certificate.not_valid_after_utc


def test_a_certificate_without_usages_of_its_key_does_not_speak_of_them(authority: signing.Authority):
    pem = signing.sign(request_for("jane"), authority, ["client auth"], datetime.now(UTC), timedelta(hours=1))
    with pytest.raises(x509.ExtensionNotFound):
        x509.load_pem_x509_certificate(pem).extensions.get_extension_for_class(x509.KeyUsage)
