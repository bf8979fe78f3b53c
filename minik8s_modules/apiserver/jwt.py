"""JSON Web Tokens (RFC 7519) in compact form, signed with ES256 or RS256, and keys as JSON Web Keys (RFC 7517).

Only what service-account tokens need. A key's id is made of the public key (Kubernetes: SHA-256 of its DER form), so
files may be renamed and several keys tried by name.
"""

from __future__ import annotations

import base64
import hashlib
from typing import NamedTuple

import orjson
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils

from minik8s_modules.api.objects import JsonObject

_COORDINATE_BYTES = 32  # of P-256
PublicKey = ec.EllipticCurvePublicKey | rsa.RSAPublicKey
PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


class Verifier(NamedTuple):
    """A public key with its id."""

    id: str
    key: PublicKey

    @property
    def algorithm(self) -> str:
        """Return the one algorithm this key is used with."""
        return "ES256" if isinstance(self.key, ec.EllipticCurvePublicKey) else "RS256"

    def verify(self, signature: bytes, signed: bytes) -> bool:
        """Return whether ``signature`` is this key's over ``signed``."""
        try:
            if isinstance(self.key, rsa.RSAPublicKey):
                self.key.verify(signature, signed, padding.PKCS1v15(), hashes.SHA256())
            else:
                self.key.verify(_to_der(signature), signed, ec.ECDSA(hashes.SHA256()))
        except (InvalidSignature, ValueError):
            return False
        return True

    def jwk(self) -> JsonObject:
        """Return the key as a JSON Web Key."""
        head = {"use": "sig", "kid": self.id, "alg": self.algorithm}
        numbers = self.key.public_numbers()
        if isinstance(numbers, rsa.RSAPublicNumbers):
            return {**head, "kty": "RSA", "n": _number(numbers.n), "e": _number(numbers.e)}
        x, y = (_encode(each.to_bytes(_COORDINATE_BYTES, "big")) for each in (numbers.x, numbers.y))
        return {**head, "kty": "EC", "crv": "P-256", "x": x, "y": y}


class Signer(NamedTuple):
    """A private key and its public part."""

    key: PrivateKey
    verifier: Verifier

    def sign(self, claims: JsonObject) -> str:
        """Return the token with ``claims``."""
        header = {"alg": self.verifier.algorithm, "kid": self.verifier.id}
        signed = f"{_encode(orjson.dumps(header))}.{_encode(orjson.dumps(claims))}"
        return f"{signed}.{_encode(self._signature(signed.encode()))}"

    def _signature(self, data: bytes) -> bytes:
        if isinstance(self.key, rsa.RSAPrivateKey):
            return self.key.sign(data, padding.PKCS1v15(), hashes.SHA256())
        r, s = utils.decode_dss_signature(self.key.sign(data, ec.ECDSA(hashes.SHA256())))
        return r.to_bytes(_COORDINATE_BYTES, "big") + s.to_bytes(_COORDINATE_BYTES, "big")


class Parsed(NamedTuple):
    """A token taken apart; nothing of it is true before its signature is verified."""

    header: JsonObject
    claims: JsonObject
    signed: bytes
    signature: bytes


def parse(token: str) -> Parsed:
    """Return the parts of ``token``. Raises ValueError when it is none."""
    parts = token.split(".")
    if len(parts) != 3:  # noqa: PLR2004 - header, claims, signature
        raise ValueError("a token has three parts")
    header, claims = (orjson.loads(_decode(part)) for part in parts[:2])
    if not isinstance(header, dict) or not isinstance(claims, dict):
        raise ValueError("a token's parts are objects")  # noqa: TRY004 - bad content, not a bad call
    return Parsed(header, claims, f"{parts[0]}.{parts[1]}".encode(), _decode(parts[2]))


def read_signer(pem: bytes) -> Signer:
    """Return the signer of a private key. Raises ValueError when it is none of P-256 or RSA with 2,048 bits."""
    key = serialization.load_pem_private_key(pem, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        raise ValueError("the key must be EC P-256 or RSA")  # noqa: TRY004 - bad content, not a bad call
    return Signer(key, _verifier(key.public_key()))


def read_verifier(pem: bytes) -> Verifier:
    """Return the verifier of a public or private key. Raises ValueError as ``read_signer`` does."""
    if b"PRIVATE KEY" in pem:
        return read_signer(pem).verifier
    key = serialization.load_pem_public_key(pem)
    if not isinstance(key, ec.EllipticCurvePublicKey | rsa.RSAPublicKey):
        raise ValueError("the key must be EC P-256 or RSA")  # noqa: TRY004 - bad content, not a bad call
    return _verifier(key)


def _verifier(key: PublicKey) -> Verifier:
    if isinstance(key, ec.EllipticCurvePublicKey):
        if not isinstance(key.curve, ec.SECP256R1):
            raise ValueError(f"the key's curve must be P-256, not {key.curve.name}")  # noqa: TRY004 - bad content
    elif key.key_size < 2048:  # noqa: PLR2004 - the least RS256 allows (RFC 7518, 3.3)
        raise ValueError(f"an RSA key must have 2048 bits or more, not {key.key_size}")
    der = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return Verifier(_encode(hashlib.sha256(der).digest()), key)


def _to_der(signature: bytes) -> bytes:
    if len(signature) != 2 * _COORDINATE_BYTES:
        raise ValueError("an ES256 signature has 64 bytes")
    r, s = (int.from_bytes(half, "big") for half in (signature[:_COORDINATE_BYTES], signature[_COORDINATE_BYTES:]))
    return utils.encode_dss_signature(r, s)


def _number(value: int) -> str:
    return _encode(value.to_bytes((value.bit_length() + 7) // 8, "big"))


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
