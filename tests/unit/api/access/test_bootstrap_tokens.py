"""Tokens in Kubernetes' form: written, read, ended; and the cluster known by hashes and signatures."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from minik8s_modules.api.access import authority_pins, bootstrap_tokens
from minik8s_modules.api.access.bootstrap_tokens import BootstrapToken
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import rfc3339
from tests.support.pki import Authority

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TOKEN = BootstrapToken("abcdef", "0123456789abcdef")


def secret(**changes: str) -> JsonObject:
    made = bootstrap_tokens.secret_of(TOKEN, NOW + timedelta(hours=1), "rack 7")
    data = {key.replace("_", "-"): base64.b64encode(value.encode()).decode() for key, value in changes.items()}
    return {**made, "data": {**made["data"], **data}}


def test_a_secret_is_read_as_it_was_written():
    assert bootstrap_tokens.token_of(secret()) == TOKEN
    assert bootstrap_tokens.matches(secret(), TOKEN, NOW)
    assert bootstrap_tokens.groups_of(secret()) == ("system:bootstrappers:minik8s:nodes", "system:bootstrappers")
    assert secret()["metadata"]["name"] == "bootstrap-token-abcdef"
    assert "0123456789abcdef" not in repr(TOKEN)


@pytest.mark.parametrize(
    "text", ["", "abcdef", "abcdef.", "ABCDEF.0123456789abcdef", "abcdef.0123456789abcdef\n", "a.b"]
)
def test_other_forms_are_no_tokens(text: str):
    with pytest.raises(ValueError, match="6 characters, a dot and 16") as result:
        bootstrap_tokens.parse_token(text)
    assert not text.strip() or text not in str(result.value).replace("abcdef.0123456789abcdef", "")


@pytest.mark.parametrize(
    "changes",
    [
        {"expiration": rfc3339(NOW)},
        {"expiration": "tomorrow"},
        {"usage_bootstrap_authentication": "yes"},
        {"token_id": "ghijkl"},
        {"token_secret": "0123456789abcdee"},
        {"used_by": "u1", "used_at": rfc3339(NOW - timedelta(minutes=6))},
    ],
)
def test_a_token_that_is_not_good_lets_nobody_in(changes: dict[str, str]):
    assert not bootstrap_tokens.matches(secret(**changes), TOKEN, NOW)


def test_a_used_token_still_reads_for_a_while():
    used = secret(used_by="u1", used_at=rfc3339(NOW - timedelta(minutes=1)))
    assert bootstrap_tokens.matches(used, TOKEN, NOW)
    assert bootstrap_tokens.end_of(used) == NOW + timedelta(minutes=4)


def test_groups_beyond_those_of_newcomers_make_it_nobody():
    assert bootstrap_tokens.groups_of(secret(auth_extra_groups="system:bootstrappers:a,system:masters")) is None


def test_new_tokens_have_the_form_and_come_from_the_choice():
    assert str(bootstrap_tokens.new_token(lambda text: text[-1])) == "999999.9999999999999999"


def test_a_signature_is_that_of_kubeadm():
    # HMAC-SHA256 over base64url(header).base64url(content), the content left out (RFC 7515, appendix F)
    signed = bootstrap_tokens.signature("content", TOKEN)
    head, empty, _ = signed.split(".")
    assert (base64.urlsafe_b64decode(head + "=="), empty) == (b'{"alg":"HS256","kid":"abcdef"}', "")
    assert bootstrap_tokens.is_signed("content", signed, TOKEN)
    assert not bootstrap_tokens.is_signed("content!", signed, TOKEN)
    assert not bootstrap_tokens.is_signed("content", signed, TOKEN._replace(secret="f" * 16))


def test_only_pinned_authorities_are_trusted(tmp_path: Path):
    first, second = (Authority(tmp_path, name).ca.read_bytes() for name in ("first", "second"))
    pin = authority_pins.key_hash(x509.load_pem_x509_certificate(second))
    assert bootstrap_tokens.parse_hash(f" {pin.upper().replace('SHA256', 'sha256')}") == pin
    assert authority_pins.pinned(first + second, [pin]) == second
    assert authority_pins.pinned(first, [pin]) == b""
    with pytest.raises(ValueError, match="64 hex digits"):
        bootstrap_tokens.parse_hash("sha256:12")


def test_cluster_info_is_signed_by_each_token_that_may():
    data = bootstrap_tokens.signed_info("kubeconfig", [secret(), {"type": "Opaque"}], NOW)
    assert list(data) == ["jws-kubeconfig-abcdef", "kubeconfig"]
    assert list(bootstrap_tokens.signed_info("kubeconfig", [secret(usage_bootstrap_signing="no")], NOW)) == [
        "kubeconfig"
    ]
    text = bootstrap_tokens.cluster_kubeconfig("https://192.0.2.1:6443", b"pem")
    assert bootstrap_tokens.authorities_of(text) == b"pem"
    assert bootstrap_tokens.authorities_of("{}") == bootstrap_tokens.authorities_of("no JSON") == b""


def test_the_server_is_the_first_endpoint():
    subset = {"addresses": [{"ip": "192.0.2.7"}], "ports": [{"port": 6443}]}
    assert bootstrap_tokens.server_of({"subsets": [{"ports": []}, subset]}) == "https://192.0.2.7:6443"
    assert bootstrap_tokens.server_of(None) == ""
