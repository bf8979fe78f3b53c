"""The commands of joining: what a server, a token and a lifetime may look like, and what is started."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta

import pytest

from minik8s_modules.api.access import bootstrap_tokens
from minik8s_modules.api.access.bootstrap_tokens import BootstrapToken
from minik8s_modules.cli import joining, tokens
from minik8s_modules.cli.errors import UsageError
from minik8s_modules.cli.main import parse

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("https://192.0.2.1:6443", "https://192.0.2.1:6443"),
        ("https://api.example.test/", "https://api.example.test:6443"),
        ("192.0.2.1", "https://192.0.2.1:6443"),
        ("192.0.2.1:7443", "https://192.0.2.1:7443"),
        ("https://[2001:db8::1]:7443", "https://[2001:db8::1]:7443"),
        ("https://[2001:DB8:0::1]", "https://[2001:db8::1]:6443"),
        ("[2001:db8::1]:7443", "https://[2001:db8::1]:7443"),
        ("2001:db8::1", "https://[2001:db8::1]:6443"),
    ],
)
def test_a_server_is_a_url_or_an_address_as_in_the_original(text: str, url: str):
    assert joining.server_url(text) == url


@pytest.mark.parametrize(
    "text",
    ["", "http://192.0.2.1", "https://", "https://a/path", "10.0.0.300", "a:b", "u@a", "fe80::1", "1:2:3", "[::1"],
)
def test_another_server_is_refused(text: str):
    with pytest.raises(UsageError, match="-j"):
        joining.server_url(text)


def test_the_program_is_given_everything_but_the_token():
    pin = f"sha256:{'ab' * 32}"
    token = ["--token", "abcdef.0123456789abcdef"]
    given = parse(["reconciler", "--node", "n1", "-j", "192.0.2.1", *token, "--ca-hash", pin, "-c", "f"])
    words = joining.program(given)
    assert words[1:3] == ["-m", "minik8s_modules.reconcile.standalone.startup"]
    assert {"--node=n1", "--server=https://192.0.2.1:6443", "--config=f", f"--pin={pin}"} <= set(words)
    assert not any("0123456789abcdef" in word for word in words)
    assert joining.token_text(given) == "abcdef.0123456789abcdef"


@pytest.mark.parametrize("change", [["--ca-hash", "sha256:12"], ["--token", "nonsense"]])
def test_a_hash_or_token_of_another_form_is_refused(change: list[str]):
    given = parse(["reconciler", "-j", "192.0.2.1", *change])
    with pytest.raises(UsageError):
        (joining.program(given), joining.token_text(given))


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1h", timedelta(hours=1)), ("1h30m", timedelta(minutes=90)), ("45s", timedelta(seconds=45)), ("0", None)],
)
def test_lifetimes(text: str, expected: timedelta | None):
    assert tokens.parse_lifetime(text) == expected


@pytest.mark.parametrize("text", ["", "1", "1d", "h", "-1h", "0s", "99999999h"])
def test_other_lifetimes_are_refused(text: str):
    with pytest.raises(UsageError, match="--ttl"):
        tokens.parse_lifetime(text)


def test_tokens_are_shown_without_their_secrets():
    token = BootstrapToken("abcdef", "0123456789abcdef")
    secret = bootstrap_tokens.secret_of(token, NOW + timedelta(hours=3), "rack 7")
    used = bootstrap_tokens.secret_of(token._replace(id="ghijkl"), None)
    used["data"]["used-by"] = base64.b64encode(b"u1").decode()
    shown = list(tokens.rows([used, secret], NOW))
    assert shown == [
        ["abcdef", "3h", "2026-01-01T03:00:00Z", "no", "rack 7"],
        ["ghijkl", "<forever>", "<never>", "yes", "<none>"],
    ]
    assert next(tokens.rows([secret], NOW + timedelta(hours=4)))[1] == "<expired>"
