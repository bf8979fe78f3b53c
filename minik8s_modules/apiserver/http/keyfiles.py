"""The keys of service-account tokens, read from files and read again when a file changes.

The first file signs, all verify: to rotate, put the new key first and leave the old one until the last of its tokens
has ended. A file that cannot be read while it is being replaced leaves the former keys in use. A key's id is made of
the public key (Kubernetes: SHA-256 of its DER form), so files may be renamed. The algorithm belongs to the key and is
never taken from a token.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.base.files import Stamp, stamp

log = logging.getLogger(__name__)
_LEAST_RSA_BITS = 2048  # RFC 7518, 3.3


class VerifyingKey(NamedTuple):
    """A public key with its id."""

    id: str
    key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey

    @property
    def algorithm(self) -> str:
        """Return the one algorithm this key is used with."""
        return "ES256" if isinstance(self.key, ec.EllipticCurvePublicKey) else "RS256"

    def jwk(self) -> JsonObject:
        """Return the key as a JSON Web Key (RFC 7517)."""
        if isinstance(self.key, rsa.RSAPublicKey):
            made = RSAAlgorithm.to_jwk(self.key, as_dict=True)
        else:
            made = ECAlgorithm.to_jwk(self.key, as_dict=True)
        made.pop("key_ops", None)  # says what "use" says, and does not go with it (RFC 7517, 4.3)
        return {**made, "use": "sig", "kid": self.id, "alg": self.algorithm}


class SigningKey(NamedTuple):
    """A private key and its public part."""

    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
    public: VerifyingKey

    def sign(self, claims: JsonObject) -> str:
        """Return the token with ``claims``."""
        headers = {"kid": self.public.id, "typ": ""}  # Kubernetes' tokens have no "typ"
        return jwt.encode(claims, self.key, self.public.algorithm, headers)


def read_signing_key(pem: bytes) -> SigningKey:
    """Return a private key. Raises ValueError unless it is EC P-256 or RSA of at least 2,048 bits."""
    key = serialization.load_pem_private_key(pem, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        raise ValueError("the key must be EC P-256 or RSA")  # noqa: TRY004 - bad content, not a bad call
    return SigningKey(key, _checked(key.public_key()))


def read_verifying_key(pem: bytes) -> VerifyingKey:
    """Return the key that verifies, of a public or private key. Raises ValueError as ``read_signing_key`` does."""
    if b"PRIVATE KEY" in pem:
        return read_signing_key(pem).public
    key = serialization.load_pem_public_key(pem)
    if not isinstance(key, ec.EllipticCurvePublicKey | rsa.RSAPublicKey):
        raise ValueError("the key must be EC P-256 or RSA")  # noqa: TRY004 - bad content, not a bad call
    return _checked(key)


def _checked(key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey) -> VerifyingKey:
    if isinstance(key, ec.EllipticCurvePublicKey):
        if not isinstance(key.curve, ec.SECP256R1):
            raise ValueError(f"the key's curve must be P-256, not {key.curve.name}")  # noqa: TRY004 - bad content
    elif key.key_size < _LEAST_RSA_BITS:
        raise ValueError(f"an RSA key must have {_LEAST_RSA_BITS} bits or more, not {key.key_size}")
    der = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return VerifyingKey(base64.urlsafe_b64encode(hashlib.sha256(der).digest()).rstrip(b"=").decode(), key)


class KeyFiles:
    """Signing and verifying keys.

    Args:
        signing: file of the private key that signs.
        verifying: files of further keys, public or private, whose tokens are accepted.

    Raises:
        ConfigurationError: a file cannot be used.
    """

    def __init__(self, signing: Path, verifying: Sequence[Path] = ()) -> None:
        self._paths = (signing, *verifying)
        self._lock = threading.Lock()
        self._generation = 0
        self._stamp: Stamp = ()
        try:
            self._stamp = stamp(*self._paths)
            self._signer, self._verifiers = self._read()
        except (OSError, ValueError, TypeError) as error:
            raise ConfigurationError(f"apiserver: service_accounts: a key cannot be used: {error}") from error

    def signer(self) -> SigningKey:
        """Return the key that signs."""
        self._refresh()
        return self._signer

    def verifier(self, key_id: str) -> VerifyingKey | None:
        """Return the key of that id, None when it is not known."""
        return next((key for key in self.verifiers() if key.id == key_id), None)

    def verifiers(self) -> tuple[VerifyingKey, ...]:
        """Return all keys that tokens may be signed by."""
        self._refresh()
        return self._verifiers

    def generation(self) -> int:
        """Return a number that rises when the keys change."""
        self._refresh()
        return self._generation

    def _refresh(self) -> None:
        with self._lock:
            try:
                found = stamp(*self._paths)
                if found != self._stamp:
                    self._signer, self._verifiers = self._read()
                    self._stamp, self._generation = found, self._generation + 1
            except (OSError, ValueError, TypeError) as error:
                log.warning("keeping the former keys of service-account tokens: %s", error)

    def _read(self) -> tuple[SigningKey, tuple[VerifyingKey, ...]]:
        signer = read_signing_key(self._paths[0].read_bytes())
        others = [read_verifying_key(path.read_bytes()) for path in self._paths[1:]]
        return signer, (signer.public, *others)
