"""Certificates of webhooks and extension API servers are judged as by Go, whatever Python asks for by itself."""

from __future__ import annotations

import ssl

import pytest

from minik8s_modules.apiserver.webhooks import places


def test_key_identifiers_may_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """From Python 3.13 on, its default refuses a chain without them."""
    default = ssl.create_default_context

    def strict(*arguments: str | None, **options: str | None) -> ssl.SSLContext:
        made = default(*arguments, **options)  # type: ignore[arg-type]
        made.verify_flags |= ssl.VERIFY_X509_STRICT
        return made

    monkeypatch.setattr(ssl, "create_default_context", strict)
    context = places.new_context("")
    assert not context.verify_flags & ssl.VERIFY_X509_STRICT
    assert context.verify_mode == ssl.CERT_REQUIRED
