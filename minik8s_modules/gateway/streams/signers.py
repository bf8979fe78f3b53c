"""Whether an API server's certificate has signed something: the part of signatures.py that needs ``cryptography``.

That library takes 3 MB that nobody shares, so a gateway imports this file with the first stream.
"""

from __future__ import annotations

import base64
from datetime import datetime

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from minik8s_modules.api.access.certificate_names import COMMON_NAME, names_of
from minik8s_modules.api.access.certificate_requests import UNREADABLE

_NAMES = {NameOID.COMMON_NAME: COMMON_NAME}


class Signers:
    """Those whose certificate is ``caller``'s and was issued by one of ``authorities`` (PEM)."""

    def __init__(self, authorities: bytes, caller: str) -> None:
        self._authorities = x509.load_pem_x509_certificates(authorities)
        self._caller = caller

    def check(self, certificate: str, signature: str, text: bytes, now: datetime) -> None:
        """Return when the bearer of ``certificate`` (base64 of DER) is one of them, and signed ``text``.

        Raises:
            ValueError: it is not so; says why.
        """
        try:
            signer = x509.load_der_x509_certificate(base64.b64decode(certificate, validate=True))
            self._check_signer(signer, now)
            _verify(signer, base64.b64decode(signature, validate=True), text)
        except (*UNREADABLE, InvalidSignature) as error:
            raise ValueError(str(error) or "the signature does not match") from error

    def _check_signer(self, signer: x509.Certificate, now: datetime) -> None:
        if not any(_issued(signer, authority) for authority in self._authorities):
            raise ValueError("the certificate was issued by another authority")
        subject = ((_NAMES.get(each.oid, each.oid.dotted_string), str(each.value)) for each in signer.subject)
        name = names_of(subject).common_name
        if name != self._caller:
            raise ValueError(f"streams are for {self._caller}, not for {name}")
        if not signer.not_valid_before_utc <= now <= signer.not_valid_after_utc:
            raise ValueError("the certificate has expired, or is not valid yet")
        usages = signer.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        if ExtendedKeyUsageOID.CLIENT_AUTH not in usages:
            raise ValueError("the certificate is not a client certificate")


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
