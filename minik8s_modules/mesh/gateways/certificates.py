"""A Secret's certificate, checked before an Envoy is told of it: one that it could not use holds up the listener."""

from __future__ import annotations

import base64
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from minik8s_modules.api.access.certificate_requests import UNREADABLE
from minik8s_modules.api.objects import JsonObject

_FIELDS = ("tls.crt", "tls.key")
_SPKI = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


class Certificate(NamedTuple):
    """A chain, the server's own certificate first, and its private key; PEM."""

    chain: str
    key: str

    def __repr__(self) -> str:
        """Return something without the key: decisions are printed where tests and assertions fail."""
        return f"Certificate({len(self.chain)} characters)"


def certificate_of(secret: JsonObject) -> Certificate | str:
    """Return what a Secret holds, or why it cannot be used."""
    if secret.get("type") != "kubernetes.io/tls":
        return f"the Secret is of type {secret.get('type')}, not kubernetes.io/tls"
    data = secret.get("data") or {}
    missing = [field for field in _FIELDS if not data.get(field)]
    if missing:
        return f"the Secret has no {' and no '.join(missing)}"
    try:
        chain, key = (base64.b64decode(data[field], validate=True) for field in _FIELDS)
        own = x509.load_pem_x509_certificates(chain)[0].public_key().public_bytes(*_SPKI)
        private = serialization.load_pem_private_key(key, None).public_key().public_bytes(*_SPKI)
    except UNREADABLE as error:
        return f"tls.crt and tls.key are not a certificate and its key in PEM: {str(error)[:200]}"
    if own != private:
        return "tls.key is not the key of the certificate in tls.crt"
    return Certificate(chain.decode("ascii", "replace"), key.decode("ascii", "replace"))
