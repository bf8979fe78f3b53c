"""The hashes by which a newcomer knows the cluster's authorities, as kubeadm writes them. Pure.

How hashes are spelled and parsed is in ``bootstrap_tokens``, which commands read that have no certificate to look at.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat


def key_hash(certificate: x509.Certificate) -> str:
    """Return ``sha256:<hex>`` of the certificate's public key (its SubjectPublicKeyInfo), as kubeadm writes it."""
    key = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return f"sha256:{hashlib.sha256(key).hexdigest()}"


def key_hashes(pem: bytes) -> list[str]:
    """Return the hashes of all authorities in ``pem``. Raises ValueError when it holds no certificates."""
    return [key_hash(each) for each in x509.load_pem_x509_certificates(pem)]


def pinned(pem: bytes, hashes: Iterable[str]) -> bytes:
    """Return those authorities of ``pem`` whose public key has one of ``hashes``; "" when there is none.

    Raises:
        ValueError: ``pem`` holds no certificates.
    """
    wanted = frozenset(hashes)
    found = [each for each in x509.load_pem_x509_certificates(pem) if key_hash(each) in wanted]
    return b"".join(each.public_bytes(Encoding.PEM) for each in found)
