"""Requests for streams as an API server signs them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from minik8s_modules.apiserver.nodes.signing import Signer
from tests.support.pki import Certificate


def now() -> datetime:
    """Return this machine's time."""
    return datetime.now(UTC)


def signature_headers(line: str, by: Certificate, at: Callable[[], datetime] = now) -> dict[str, str]:
    """Return the headers that sign the request line with the key of ``by``."""
    head = Signer(by.cert.read_bytes(), by.key.read_bytes(), at).signed(f"{line}\r\n\r\n".encode()).decode()
    return dict(each.split(": ") for each in head.split("\r\n")[1:] if each)
