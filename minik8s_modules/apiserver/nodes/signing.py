"""The API server signs what it asks of gateways, so that whoever passes a request on cannot make one.

Between it and the gateway stands a process that parses streams and is not trusted (streams/). What is signed:
streams/requests.py; who checks it: gateway/streams/signatures.py.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable
from datetime import datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa

from minik8s_modules.streams.requests import CERTIFICATE, SIGNED, signed_text


class Signer:
    """Signs with the key of a client certificate, both PEM."""

    def __init__(self, cert_pem: bytes, key_pem: bytes, now: Callable[[], datetime]) -> None:
        certificate = x509.load_pem_x509_certificate(cert_pem)
        self._certificate = base64.b64encode(certificate.public_bytes(serialization.Encoding.DER)).decode()
        self._key = serialization.load_pem_private_key(key_pem, None)
        self._now = now

    def signed(self, request: bytes) -> bytes:
        """Return the HTTP request with its first line signed.

        Raises:
            ValueError: the key is of a kind that signs nothing here.
        """
        line, _, rest = request.partition(b"\r\n")
        at_s, nonce = int(self._now().timestamp()), secrets.token_hex(16)
        signature = base64.b64encode(self._signature(signed_text(line.decode("ascii"), at_s, nonce))).decode()
        text = f"{SIGNED}: {at_s}.{nonce}.{signature}\r\n{CERTIFICATE}: {self._certificate}\r\n"
        return line + b"\r\n" + text.encode() + rest

    def _signature(self, text: bytes) -> bytes:
        if isinstance(self._key, ec.EllipticCurvePrivateKey):
            return self._key.sign(text, ec.ECDSA(hashes.SHA256()))
        if isinstance(self._key, rsa.RSAPrivateKey):
            return self._key.sign(text, padding.PKCS1v15(), hashes.SHA256())
        raise ValueError("the key of reconciler_client is neither an elliptic-curve nor an RSA key")
