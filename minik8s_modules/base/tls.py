"""TLS as every listener of minik8s speaks it: 1.2 or 1.3, an ephemeral key exchange, authenticated encryption.

Python alone would also accept AES in CBC mode and classic Diffie-Hellman (``ssl._DEFAULT_CIPHERS``). etcd and nginx are
given the same suites in their own words (``etcd_cipher_suites``, ``templates/ingress_host.conf.j2``).
"""

from __future__ import annotations

import ssl
from os import PathLike

# What every client since 2013 knows (kubectl, browsers, Go, OpenSSL 1.0.1); TLS 1.3 has no other kind.
CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"


def server_context(
    cert: PathLike[str],
    key: PathLike[str],
    client_ca: PathLike[str] | None = None,
    *,
    clients: ssl.VerifyMode = ssl.CERT_REQUIRED,
) -> ssl.SSLContext:
    """Return the context of a listener that serves ``cert``.

    Args:
        cert: the certificate and those between it and its authority, PEM.
        key: its private key, PEM.
        client_ca: the authority of client certificates; without one, clients are asked for none.
        clients: whether a client must have a certificate; what it has is checked in any case.

    Raises:
        OSError: a file cannot be read, or OpenSSL cannot use it (``ssl.SSLError``).
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS)
    context.load_cert_chain(cert, key)
    if client_ca is not None:
        context.load_verify_locations(client_ca)
        context.verify_mode = clients
    return context
