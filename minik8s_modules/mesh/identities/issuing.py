"""A certificate for a sidecar: a key that is made here, and a signing request that the signer answers.

The key is given to the one stream whose token proved the service account, and kept nowhere: another stream of the same
Pod, as that after a restart of the pilot, has another key. Who else is in the way of it (the API server, etcd, the
signer) sees the request alone.
"""

from __future__ import annotations

import base64
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from minik8s_modules.api import objects
from minik8s_modules.api.access.mesh_identities import MESH, SIDECAR, USAGES
from minik8s_modules.api.kinds import CERTIFICATE_SIGNING_REQUEST, POD
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.mutual_tls import identity
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.client.interface import Api
from minik8s_modules.mesh.identities.turns import Turns

_AT_ONCE = 4
_PATIENCE_S = 60.0
_LOOK_S = (0.05, 1.0)
_ENDS = {"Denied", "Failed"}


class Unsigned(TemporaryError):
    """The signer has given no certificate; it is asked again later."""


class Issued(NamedTuple):
    """A certificate, its key and what to trust (PEM), and from when to when it is good."""

    chain: str
    key: str
    roots: str
    since: datetime
    until: datetime

    def __repr__(self) -> str:
        """Return something without the key: values are printed where tests and assertions fail."""
        return f"Issued(until {self.until})"

    @property
    def renewal(self) -> datetime:
        """Return when half of its life is over."""
        return self.since + (self.until - self.since) / 2


class Issuer:
    """Asks the signer, in ``pool``: a few at once, and nobody else waits for its threads; a Pod has its ``turns``."""

    def __init__(self, api: Api, lifetime: timedelta) -> None:
        self._api = api
        self._lifetime = lifetime
        self.pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="issuing")
        self.turns = Turns()

    def issue(self, namespace: str, pod: str, account: str) -> Issued:
        """Return a new certificate of a Pod's service account; blocks. A stream may outlive its Pod, an identity not.

        Raises:
            Unsigned: the signer gave none, or the Pod has another account.
            StatusError: the API server refused.
            TemporaryError: no API server could be asked.
        """
        found = self._api.get(POD, pod, namespace)
        if objects.spec(found).get("serviceAccountName") != account or objects.is_deleting(found):
            raise Unsigned(f"Pod {pod} is not one of service account {account}, or is going")
        key = ec.generate_private_key(ec.SECP256R1())
        made = self._api.create(CERTIFICATE_SIGNING_REQUEST, self._request(key, identity(namespace, account)))
        signed = self._signed(objects.name(made))
        own, *authorities = x509.load_pem_x509_certificates(signed)
        if own.public_key() != key.public_key() or not authorities:
            raise Unsigned("the signer gave the certificate of another key, or none of its authority")
        pem = serialization.Encoding.PEM
        secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        roots = "".join(each.public_bytes(pem).decode() for each in authorities)
        return Issued(
            own.public_bytes(pem).decode(), secret.decode(), roots, own.not_valid_before_utc, own.not_valid_after_utc
        )

    def _request(self, key: ec.EllipticCurvePrivateKey, name: str) -> JsonObject:
        asked = (
            x509.CertificateSigningRequestBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, SIDECAR)]))
            .add_extension(x509.SubjectAlternativeName([x509.UniformResourceIdentifier(name)]), critical=False)
            .sign(key, hashes.SHA256())
            .public_bytes(serialization.Encoding.PEM)
        )
        spec = {
            "signerName": MESH,
            "request": base64.b64encode(asked).decode(),
            "usages": sorted(USAGES),
            "expirationSeconds": int(self._lifetime.total_seconds()),
        }
        return {"metadata": {"generateName": "mesh-"}, "spec": spec}

    def _signed(self, name: str) -> bytes:
        wait_s, waited_s = _LOOK_S[0], 0.0
        while waited_s < _PATIENCE_S:
            status = objects.status(self._api.get(CERTIFICATE_SIGNING_REQUEST, name))
            if status.get("certificate"):
                return base64.b64decode(status["certificate"])
            refused = [each for each in status.get("conditions") or [] if each.get("type") in _ENDS]
            if refused:
                raise Unsigned(f"signing request {name} is refused: {refused[0].get('message')}")
            time.sleep(wait_s)
            waited_s += wait_s
            wait_s = min(2 * wait_s, _LOOK_S[1])
        raise Unsigned(f"nobody has signed the request {name} within {_PATIENCE_S:.0f} s: does the signer run?")
