"""Certificates made from signing requests: what a request asks for, and the certificate an authority gives for it.

Pure but for the randomness of a serial number. What of the request goes into the certificate is Kubernetes' permissive
policy (pkg/controller/certificates/authority): subject, key and alternative names as asked, usages as the object says,
never an authority, and no longer than the authority itself lives.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

BACKDATE = timedelta(minutes=5)
_KEY_USAGES = {
    "signing": "digital_signature",
    "digital signature": "digital_signature",
    "content commitment": "content_commitment",
    "key encipherment": "key_encipherment",
    "key agreement": "key_agreement",
    "data encipherment": "data_encipherment",
    "cert sign": "key_cert_sign",
    "crl sign": "crl_sign",
    "encipher only": "encipher_only",
    "decipher only": "decipher_only",
}
_EXTENDED_USAGES = {
    "any": ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE,
    "server auth": ExtendedKeyUsageOID.SERVER_AUTH,
    "client auth": ExtendedKeyUsageOID.CLIENT_AUTH,
    "code signing": ExtendedKeyUsageOID.CODE_SIGNING,
    "email protection": ExtendedKeyUsageOID.EMAIL_PROTECTION,
    "s/mime": ExtendedKeyUsageOID.EMAIL_PROTECTION,
    "ipsec end system": ObjectIdentifier("1.3.6.1.5.5.7.3.5"),
    "ipsec tunnel": ObjectIdentifier("1.3.6.1.5.5.7.3.6"),
    "ipsec user": ObjectIdentifier("1.3.6.1.5.5.7.3.7"),
    "timestamping": ExtendedKeyUsageOID.TIME_STAMPING,
    "ocsp signing": ExtendedKeyUsageOID.OCSP_SIGNING,
    "microsoft sgc": ObjectIdentifier("1.3.6.1.4.1.311.10.3.3"),
    "netscape sgc": ObjectIdentifier("2.16.840.1.113730.4.1"),
}


class Asked(NamedTuple):
    """What a request says: subject and alternative names."""

    common_name: str
    organizations: tuple[str, ...]
    dns_names: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    emails: tuple[str, ...] = ()
    uris: tuple[str, ...] = ()


class Authority(NamedTuple):
    """An authority's certificate and key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


def load_authority(certificates: bytes, key: bytes) -> Authority:
    """Return the authority whose key (PEM) this is; ``certificates`` (PEM) may hold others beside it.

    Raises:
        ValueError: the key is none, or no certificate is its own.
    """
    loaded = serialization.load_pem_private_key(key, None)
    if not isinstance(loaded, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        raise ValueError(f"an authority's key is of EC or RSA, not {type(loaded).__name__}")  # noqa: TRY004
    public = loaded.public_key()
    for certificate in x509.load_pem_x509_certificates(certificates):
        if certificate.public_key() == public:
            return Authority(certificate, loaded)
    raise ValueError("no certificate of the authority fits its key")


def parse(request: str) -> x509.CertificateSigningRequest:
    """Return the request in ``spec.request`` (base64 of PEM).

    Raises:
        ValueError: it is none, or its signature is not by its own key.
    """
    try:
        parsed = x509.load_pem_x509_csr(base64.b64decode(request, validate=True))
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"unable to parse csr: {error}") from error
    if not parsed.is_signature_valid:
        raise ValueError("unable to verify the signature of the csr")
    return parsed


def asked(request: x509.CertificateSigningRequest) -> Asked:
    """Return what the request says."""

    def subject(oid: ObjectIdentifier) -> tuple[str, ...]:
        return tuple(str(each.value) for each in request.subject.get_attributes_for_oid(oid))

    names = _alternatives(request)

    def alternatives(kind: type[x509.GeneralName]) -> tuple[str, ...]:
        return tuple(str(each.value) for each in names or () if isinstance(each, kind))

    return Asked(
        next(iter(subject(NameOID.COMMON_NAME)), ""),
        subject(NameOID.ORGANIZATION_NAME),
        alternatives(x509.DNSName),
        alternatives(x509.IPAddress),
        alternatives(x509.RFC822Name),
        alternatives(x509.UniformResourceIdentifier),
    )


def _alternatives(request: x509.CertificateSigningRequest) -> x509.SubjectAlternativeName | None:
    try:
        return request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return None


def sign(
    request: x509.CertificateSigningRequest,
    authority: Authority,
    usages: Sequence[str],
    now: datetime,
    lifetime: timedelta,
) -> bytes:
    """Return the certificate (PEM) for ``request``, good from five minutes ago."""
    until = min(now + lifetime, authority.certificate.not_valid_after_utc)
    builder = (
        x509.CertificateBuilder()
        .subject_name(request.subject)
        .issuer_name(authority.certificate.subject)
        .public_key(request.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATE)
        .not_valid_after(until)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_authority_key(authority), critical=False)
    )
    usage = _key_usage(usages)
    if usage is not None:
        builder = builder.add_extension(usage, critical=True)
    extended = list(dict.fromkeys(_EXTENDED_USAGES[usage] for usage in usages if usage in _EXTENDED_USAGES))
    if extended:
        builder = builder.add_extension(x509.ExtendedKeyUsage(extended), critical=False)
    names = _alternatives(request)
    if names is not None:
        builder = builder.add_extension(names, critical=False)
    return builder.sign(authority.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _key_usage(usages: Sequence[str]) -> x509.KeyUsage | None:
    """Return the extension, None for no usage: with nothing in it a certificate is invalid (RFC 5280, 4.2.1.3)."""
    bits: dict[str, Any] = dict.fromkeys(_KEY_USAGES.values(), False)
    bits.update((_KEY_USAGES[usage], True) for usage in usages if usage in _KEY_USAGES)
    if not bits["key_agreement"]:  # the two have no meaning without it (RFC 5280, 4.2.1.3)
        bits.update(encipher_only=False, decipher_only=False)
    return x509.KeyUsage(**bits) if any(bits.values()) else None


def _authority_key(authority: Authority) -> x509.AuthorityKeyIdentifier:
    return x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
