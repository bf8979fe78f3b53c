"""Certificates made from signing requests: the certificate an authority gives for what was asked.

Pure but for the randomness of a serial number. What goes into the certificate is Kubernetes' permissive policy
(pkg/controller/certificates/authority): subject, key and alternative names as asked, usages as the object says, never
an authority, and no longer than the authority itself lives. The names are written again from the one reading of the
request (api/access/certificate_requests.py): a certificate says what was decided on, and nothing else to other readers.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

from minik8s_modules.api.access.certificate_requests import Request, RequestedCertificate

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


class Authority(NamedTuple):
    """An authority's certificate and key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
    bundle: bytes = b""
    """All certificates of its file (PEM), those of authorities before and after it among them."""


def load_authority(certificates: bytes, key: bytes) -> Authority:
    """Return the authority whose key (PEM) this is; ``certificates`` (PEM) may hold others beside it.

    Raises:
        ValueError: the key is none, or no certificate is its own.
    """
    loaded = serialization.load_pem_private_key(key, None)
    if not isinstance(loaded, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        raise ValueError(f"an authority's key must be EC or RSA, not {type(loaded).__name__}")  # noqa: TRY004
    public = loaded.public_key()
    found = x509.load_pem_x509_certificates(certificates)
    for certificate in found:
        if certificate.public_key() == public:
            bundle = b"".join(each.public_bytes(serialization.Encoding.PEM) for each in found)
            return Authority(certificate, loaded, bundle)
    raise ValueError("no certificate of the authority fits its key")


def sign(
    request: Request,
    authority: Authority,
    usages: Sequence[str],
    now: datetime,
    lifetime: timedelta,
) -> bytes:
    """Return the certificate (PEM) for ``request``, good from five minutes ago."""
    until = min(now + lifetime, authority.certificate.not_valid_after_utc)
    builder = (
        x509.CertificateBuilder()
        .subject_name(_subject(request.asked))
        .issuer_name(authority.certificate.subject)
        .public_key(request.key)
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
    names = _alternatives(request.asked)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(authority.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _subject(asked: RequestedCertificate) -> x509.Name:
    groups = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in asked.organizations]
    return x509.Name([*groups, x509.NameAttribute(NameOID.COMMON_NAME, asked.common_name)])


def _alternatives(asked: RequestedCertificate) -> list[x509.GeneralName]:
    return [
        *map(x509.DNSName, asked.dns_names),
        *(x509.IPAddress(ip_address(each)) for each in asked.addresses),
        *map(x509.RFC822Name, asked.emails),
        *map(x509.UniformResourceIdentifier, asked.uris),
    ]


def _key_usage(usages: Sequence[str]) -> x509.KeyUsage | None:
    """Return the extension, None for no usage: with nothing in it a certificate is invalid (RFC 5280, 4.2.1.3)."""
    bits: dict[str, Any] = dict.fromkeys(_KEY_USAGES.values(), False)
    bits.update((_KEY_USAGES[usage], True) for usage in usages if usage in _KEY_USAGES)
    if not bits["key_agreement"]:  # the two have no meaning without it (RFC 5280, 4.2.1.3)
        bits.update(encipher_only=False, decipher_only=False)
    return x509.KeyUsage(**bits) if any(bits.values()) else None


def _authority_key(authority: Authority) -> x509.AuthorityKeyIdentifier:
    return x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
