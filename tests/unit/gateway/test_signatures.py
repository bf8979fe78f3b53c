"""Who has signed a request for streams: keys of both kinds, and certificates that are none."""

from __future__ import annotations

import base64
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from minik8s_modules.api.errors import StatusError
from minik8s_modules.apiserver.nodes.signing import Signer
from minik8s_modules.base.clock import FakeClock
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.gateway.streams.signatures import CALLER, WINDOW_S, Signatures
from minik8s_modules.streams.requests import CERTIFICATE, SIGNED

LINE = "GET /metrics HTTP/1.1"
DAY = timedelta(days=1)
OF_CLIENTS = (ExtendedKeyUsageOID.CLIENT_AUTH,)


class Cluster:
    """An authority, and the clock of the gateway."""

    def __init__(self, folder: Path) -> None:
        self.clock = FakeClock()
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "cluster")])
        own = self._made(self._name, self._key, (), ca=True)
        (folder / "ca.crt").write_bytes(own.public_bytes(serialization.Encoding.PEM))
        self.signatures = Signatures(folder / "ca.crt", self.clock)

    def _made(self, subject: x509.Name, key: CertificateIssuerPrivateKeyTypes, usages, days=1, *, ca=False):
        now = self.clock.now()
        builder = x509.CertificateBuilder(self._name, subject, key.public_key(), x509.random_serial_number())
        builder = builder.not_valid_before(now - DAY).not_valid_after(now + days * DAY)
        builder = builder.add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        if usages:
            builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        return builder.sign(self._key, hashes.SHA256())

    def signer(self, key=None, names=(CALLER,), usages=OF_CLIENTS, days=1) -> Signer:
        """Return who signs with a certificate of this authority."""
        key = key or ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, each) for each in names])
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        certificate = self._made(subject, key, usages, days).public_bytes(serialization.Encoding.PEM)
        return Signer(certificate, private, self.clock.now)

    def check(self, signer: Signer, line: str = LINE) -> None:
        """Check a request that ``signer`` signs now."""
        self.signatures.check(line, *headers(signer))

    def refusal(self, signer: Signer) -> str:
        """Return why what ``signer`` signs is refused."""
        with pytest.raises(StatusError) as result:
            self.check(signer)
        assert result.value.code == 403
        return str(result.value)


def headers(signer: Signer) -> tuple[str, str]:
    head = signer.signed(f"{LINE}\r\nHost: gateway\r\n\r\n".encode()).decode()
    lines = head.split("\r\n")
    assert (lines[0], lines[3:]) == (LINE, ["Host: gateway", "", ""])
    found = dict(each.split(": ") for each in lines[1:3])
    return found[SIGNED], found[CERTIFICATE]


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


@pytest.mark.parametrize("kind", ["P-256", "P-384", "RSA"])
def test_keys_of_either_kind_sign(cluster: Cluster, kind: str):
    made = {
        "P-256": lambda: ec.generate_private_key(ec.SECP256R1()),
        "P-384": lambda: ec.generate_private_key(ec.SECP384R1()),
        "RSA": lambda: rsa.generate_private_key(65537, 2048),
    }[kind]()
    cluster.check(cluster.signer(made))


def test_a_certificate_that_is_not_an_api_servers_signs_nothing(cluster: Cluster):
    for signer, why in (
        (cluster.signer(names=["system:node:n"]), "not for system:node:n"),
        (cluster.signer(names=[CALLER, "other"]), "2 common names"),
        (cluster.signer(names=[]), "no common name"),
        (cluster.signer(usages=(ExtendedKeyUsageOID.SERVER_AUTH,)), "not a client certificate"),
        (cluster.signer(usages=()), "extension was found"),
        (cluster.signer(days=0), "has expired"),
    ):
        cluster.clock.advance(0.001)
        assert why in cluster.refusal(signer)


def test_a_request_is_good_for_minutes_and_once(cluster: Cluster):
    signer = cluster.signer()
    for late_s, good in ((-WINDOW_S + 1, True), (WINDOW_S - 1, True), (WINDOW_S + 2, False), (-WINDOW_S - 2, False)):
        result = headers(signer)
        cluster.clock.advance(late_s)
        if good:
            cluster.signatures.check(LINE, *result)
        with pytest.raises(StatusError, match="already been served" if good else "signed at another time"):
            cluster.signatures.check(LINE, *result)
        cluster.clock.advance(-late_s)


def test_what_was_served_is_forgotten_when_its_time_is_over(cluster: Cluster):
    signer = cluster.signer()
    for _ in range(5):
        cluster.check(signer)
        cluster.clock.advance(WINDOW_S)
    assert len(cluster.signatures._seen) <= 3


@pytest.mark.parametrize("comment", ["# Zürich\n".encode(), "# Zürich\n".encode("latin-1")])
def test_comments_of_the_authority_may_have_any_letters(tmp_path: Path, cluster: Cluster, comment: bytes):
    path = tmp_path / "ca.crt"
    path.write_bytes(comment + path.read_bytes())
    Signatures(path, cluster.clock).check(LINE, *headers(cluster.signer()))


@pytest.mark.parametrize("written", [b"", "# Zürich\n".encode(), b"-----BEGIN CERTIFICATE-----\nAAAA\n"])
def test_a_file_without_an_authority_is_refused_at_the_beginning(tmp_path: Path, written: bytes):
    (tmp_path / "ca.crt").write_bytes(written)
    with pytest.raises(ConfigurationError, match=r"client_ca: .*/ca\.crt cannot be used"):
        Signatures(tmp_path / "ca.crt")


@pytest.mark.parametrize("garbage", ["", "..", "x.y.z", "1.n.AAAA", "1.n.%%%", "1" * 5000 + ".n.AAAA"])
def test_what_is_no_signature_is_refused(cluster: Cluster, garbage: str):
    good = headers(cluster.signer())
    for signed, certificate in (
        (garbage, good[1]),
        (good[0], garbage),
        (good[0], base64.b64encode(b"0" * 99).decode()),
    ):
        with pytest.raises(StatusError, match="the request is not signed by an API server"):
            cluster.signatures.check(LINE, signed, certificate)
