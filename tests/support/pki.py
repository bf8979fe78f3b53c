"""Throw-away certificate authorities and certificates for tests, in the shapes the cluster's own have.

EC P-256 keys, valid for a day. ``Authority(folder, "cluster")`` writes ``cluster.crt``; ``issue`` writes
``<file>.crt`` and ``<file>.key`` beside it and returns both paths.
"""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path
from typing import NamedTuple

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = datetime.timedelta(days=1)


class Certificate(NamedTuple):
    """Paths of a certificate and its key."""

    cert: Path
    key: Path


class Authority:
    """A certificate authority that lives in ``folder``; ``ca`` is its certificate's path."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        self._certificate = (
            _builder(self._subject, self._subject, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        folder.mkdir(parents=True, exist_ok=True)
        self.ca = folder / f"{name}.crt"
        self.ca.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    @property
    def key_pem(self) -> bytes:
        """The private key."""
        return self._key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    def issue(
        self,
        file: str,
        common_name: str,
        organizations: tuple[str, ...] = (),
        *,
        expired: bool = False,
        addresses: tuple[str, ...] = (),
        names: tuple[str, ...] | None = ("localhost",),
        subject: x509.Name | None = None,
        uris: tuple[str, ...] = (),
    ) -> Certificate:
        """Write a certificate for ``common_name``, good for servers (localhost, 127.0.0.1, more) and clients.

        A ``subject`` takes the place of names and groups; without ``names`` it has no alternative names.
        """
        subject = subject or subject_of(common_name, *organizations)
        key = ec.generate_private_key(ec.SECP256R1())
        alternatives = x509.SubjectAlternativeName(
            [
                *(x509.DNSName(each) for each in names or ()),
                *(x509.IPAddress(ipaddress.ip_address(each)) for each in ("127.0.0.1", *addresses)),
                *(x509.UniformResourceIdentifier(each) for each in uris),
            ]
        )
        usages = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        builder = (
            _builder(subject, self._subject, key.public_key(), expired=expired)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(usages, critical=False)
        )
        if names is not None:
            builder = builder.add_extension(alternatives, critical=False)
        return self._write(file, builder.sign(self._key, hashes.SHA256()), key)

    def _write(self, file: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Certificate:
        paths = Certificate(self._folder / f"{file}.crt", self._folder / f"{file}.key")
        paths.cert.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        pem = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        paths.key.touch(mode=0o600)
        paths.key.write_bytes(pem)
        return paths


def subject_of(common_name: str, *organizations: str) -> x509.Name:
    """Return a subject as the cluster's own certificates have it."""
    groups = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in organizations]
    return x509.Name([*groups, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def write_kubeconfig(path: Path, server: str, ca: Path, client: Certificate) -> Path:
    """Write a kubeconfig for ``server`` with ``client``'s certificate; returns ``path``."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": server, "certificate-authority": str(ca)}}],
        "users": [{"name": "test", "user": {"client-certificate": str(client.cert), "client-key": str(client.key)}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
    }
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, *, expired: bool = False
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    start, end = (now - 3 * DAY, now - 2 * DAY) if expired else (now - DAY / 24, now + DAY)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(end)
    )
