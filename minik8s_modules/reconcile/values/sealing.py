"""Secrets as documents may show them: a name and a keyed hash, never a value.

A plain hash of a short password can be guessed from a document; an HMAC under the installation's key cannot.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any

from minik8s_modules.module_utils.minik8s.entries.secrets import SecretEntry


def values_of(secret: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the decoded data of a Secret object; a value that is no base64 reads as empty."""
    return {key: _decoded(text) for key, text in (secret.get("data") or {}).items()}


def _decoded(text: object) -> bytes:
    try:
        return base64.b64decode(str(text or ""), validate=True)
    except (binascii.Error, ValueError):
        return b""


def value_hmac(key: bytes, reference: str, name: str, value: bytes) -> str:
    """Return the HMAC of one value of the secret ``reference`` (``<namespace>/<name>``)."""
    return hmac.new(key, f"{reference}\0{name}\0".encode() + value, hashlib.sha256).hexdigest()


def secret_hmac(key: bytes, reference: str, values: Mapping[str, bytes]) -> str:
    """Return the HMAC of all values of a secret."""
    lines = (f"{name}\0{value_hmac(key, reference, name, values[name])}\n" for name in sorted(values))
    return hmac.new(key, f"{reference}\0{''.join(lines)}".encode(), hashlib.sha256).hexdigest()


def secret_entry(key: bytes, reference: str, values: Mapping[str, bytes]) -> SecretEntry:
    """Return the entry of the ``secrets`` section."""
    return {"hmac": secret_hmac(key, reference, values), "keys": sorted(values)}


def blob(secrets: Mapping[str, Mapping[str, bytes]]) -> str:
    """Return the one base64 string in which values travel to a node."""
    plain = {
        reference: {name: base64.b64encode(value).decode() for name, value in sorted(values.items())}
        for reference, values in sorted(secrets.items())
    }
    return base64.b64encode(json.dumps(plain, separators=(",", ":")).encode()).decode()
