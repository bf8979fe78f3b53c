"""Requests for streams are the API server's own: it has signed each of them (apiserver/nodes/signing.py).

The process that hands a request over parses what strangers send, so it is not believed who asked. It has the public
certificate of the API server and no key: it can pass a request on, neither make nor change nor repeat one.
"""

from __future__ import annotations

import base64
import threading
from datetime import datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from minik8s_modules.api.access.certificate_names import COMMON_NAME, names_of
from minik8s_modules.api.access.certificate_requests import UNREADABLE
from minik8s_modules.api.errors import StatusError
from minik8s_modules.base.clock import Clock, SystemClock
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.streams.requests import signed_text

CALLER = "system:minik8s:apiserver"
# clocks of two machines may differ by so much (Kerberos' classic value); a nonce is remembered for twice the time
WINDOW_S = 300.0
_NAMES = {NameOID.COMMON_NAME: COMMON_NAME}


class Signatures:
    """Checks signatures by the authority in ``client_ca``, of ``CALLER``'s certificates only; from any thread."""

    def __init__(self, client_ca: Path, clock: Clock | None = None) -> None:
        try:
            self._authorities = x509.load_pem_x509_certificates(client_ca.read_bytes())
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"streams.client_ca: {client_ca} cannot be used: {error}") from error
        self._clock = clock or SystemClock()
        self._seen: dict[str, float] = {}
        self._lock = threading.Lock()

    def check(self, line: str, signed: str, certificate: str) -> None:
        """Return when an API server has signed the request ``line`` just now, and once.

        Raises:
            StatusError: it has not; the message says what is wrong.
        """
        try:
            at, nonce, signature = signed.split(".")
            at_s = int(at)
            signer = x509.load_der_x509_certificate(base64.b64decode(certificate, validate=True))
            self._check_signer(signer, self._clock.now())
            _verify(signer, base64.b64decode(signature, validate=True), signed_text(line, at_s, nonce))
        except (*UNREADABLE, InvalidSignature) as error:
            raise _refusal(
                f"the request is not signed by an API server: {str(error) or 'the signature does not match'}"
            ) from error
        self._check_new(at_s, nonce)

    def _check_signer(self, signer: x509.Certificate, now: datetime) -> None:
        if not any(_issued(signer, authority) for authority in self._authorities):
            raise ValueError("the certificate was issued by another authority")
        subject = ((_NAMES.get(each.oid, each.oid.dotted_string), str(each.value)) for each in signer.subject)
        name = names_of(subject).common_name
        if name != CALLER:
            raise ValueError(f"streams are for {CALLER}, not for {name}")
        if not signer.not_valid_before_utc <= now <= signer.not_valid_after_utc:
            raise ValueError("the certificate has expired, or is not valid yet")
        usages = signer.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        if ExtendedKeyUsageOID.CLIENT_AUTH not in usages:
            raise ValueError("the certificate is not a client certificate")

    def _check_new(self, at_s: int, nonce: str) -> None:
        now_s = self._clock.now().timestamp()
        if abs(now_s - at_s) > WINDOW_S:
            message = f"the clocks of API server and gateway differ by {now_s - at_s:.0f} s; {WINDOW_S:.0f} are allowed"
            raise _refusal(f"the request was signed at another time: {message}")
        with self._lock:
            while self._seen and next(iter(self._seen.values())) < now_s:
                del self._seen[next(iter(self._seen))]
            if nonce in self._seen:
                raise _refusal("the request has already been served; a signature is valid once")
            self._seen[nonce] = now_s + 2 * WINDOW_S


def _refusal(message: str) -> StatusError:
    return StatusError(403, "Forbidden", message)


def _issued(signer: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        signer.verify_directly_issued_by(authority)
    except (*UNREADABLE, InvalidSignature):
        return False
    return True


def _verify(signer: x509.Certificate, signature: bytes, text: bytes) -> None:
    """Return when the signer's key has signed ``text``; ValueError or InvalidSignature when it has not."""
    key = signer.public_key()
    if isinstance(key, ec.EllipticCurvePublicKey):
        key.verify(signature, text, ec.ECDSA(hashes.SHA256()))
    elif isinstance(key, rsa.RSAPublicKey):
        key.verify(signature, text, padding.PKCS1v15(), hashes.SHA256())
    else:
        raise ValueError("the certificate's key is neither an elliptic-curve nor an RSA key")  # noqa: TRY004 - one answer
