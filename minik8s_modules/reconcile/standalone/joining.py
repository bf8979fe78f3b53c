"""How a machine joins: it gets to know the cluster, asks for a certificate with its token, and waits for it.

First the cluster shows itself. ``kube-public/cluster-info`` is read without trust; what is believed of it are the
authorities whose key has a hash the user gave, or, without hashes, all of them if it is signed with the token. Only
then the token is sent, over a connection that those authorities vouch for. The key never leaves this machine; request
and key are on disk before they are sent, so a machine that dies in between goes on with the same request.
"""

from __future__ import annotations

import base64
import json
import logging
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import NamedTuple

import urllib3
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from minik8s_modules.api import objects
from minik8s_modules.api.access import authority_pins, bootstrap_tokens
from minik8s_modules.api.access.bootstrap_tokens import CLUSTER_INFO, KUBECONFIG_KEY, SIGNATURE_KEY, BootstrapToken
from minik8s_modules.api.errors import AlreadyExists, Forbidden, NotFound, StatusError, Unauthorized
from minik8s_modules.api.kinds import CERTIFICATE_SIGNING_REQUEST
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import Clock
from minik8s_modules.base.errors import ConfigurationError, TemporaryError
from minik8s_modules.client.interface import Api

log = logging.getLogger(__name__)
RETRY_S = 3.0
POLL_S = 1.0
TELL_EVERY_S = 30.0
CLIENT_SIGNER = "kubernetes.io/kube-apiserver-client-kubelet"
SERVING_SIGNER = "kubernetes.io/kubelet-serving"
_USAGES = {CLIENT_SIGNER: "client auth", SERVING_SIGNER: "server auth"}
_PATH = f"/api/v1/namespaces/{CLUSTER_INFO[0]}/configmaps/{CLUSTER_INFO[1]}"
_LARGEST = 1 << 20


class Request(NamedTuple):
    """A request for a certificate: the object's name, its signer, the key (PEM) and what is sent (PEM)."""

    name: str
    signer: str
    key: str
    request: str

    def __repr__(self) -> str:
        """Return its name; the key is not shown."""
        return f"<request {self.name}>"


class Stopped(Exception):
    """Somebody ended the program while it waited."""


def fetch_info(server: str) -> dict[str, str]:
    """Return the data of cluster-info from ``server``, which is not trusted.

    Raises:
        TemporaryError: it does not answer, or has none yet.
        ConfigurationError: what answers is no API server of a cluster.
    """
    with urllib3.PoolManager(cert_reqs="CERT_NONE", assert_hostname=False, retries=False, timeout=10.0) as pool:
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)  # what it tells is checked, not believed
        try:
            response = pool.request("GET", f"{server}{_PATH}", preload_content=False)
            body = response.read(_LARGEST)
        except urllib3.exceptions.HTTPError as error:
            raise TemporaryError(f"API server {server} cannot be reached: {error}") from error
    try:
        answer = json.loads(body)
        if response.status == HTTPStatus.NOT_FOUND and answer["kind"] == "Status":
            raise TemporaryError(f"{server} has no ConfigMap {'/'.join(CLUSTER_INFO)} yet; do its controllers run?")
        data = answer["data"]
        return {str(key): str(value) for key, value in data.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        text = f"{server} answers {response.status}, and not as the API server of a cluster that can be joined"
        if response.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise TemporaryError(text) from error
        raise ConfigurationError(text) from error


def trusted_authorities(
    data: Mapping[str, str], token: BootstrapToken | None, pins: Sequence[str], server: str
) -> bytes:
    """Return the authorities (PEM) of cluster-info that may be trusted.

    Raises:
        ConfigurationError: no authority has one of ``pins``; or there are no pins, and the token did not sign.
    """
    kubeconfig = data.get(KUBECONFIG_KEY, "")
    pem = bootstrap_tokens.authorities_of(kubeconfig)
    try:
        known = authority_pins.key_hashes(pem)
    except ValueError as error:
        raise ConfigurationError(f"the cluster-info of {server} names no authorities: {error}") from error
    if pins:
        found = authority_pins.pinned(pem, pins)
        if not found:
            text = f"the cluster at {server} has another authority ({', '.join(known)}) than the given hash"
            raise ConfigurationError(f"{text}: it is another cluster, or somebody intercepts the connection")
        return found
    if token is None or not bootstrap_tokens.is_signed(kubeconfig, data.get(f"{SIGNATURE_KEY}{token.id}", ""), token):
        text = f"the cluster at {server} does not know the token (it is wrong, used, or has expired)"
        raise ConfigurationError(f"{text}; create another: minik8s token create --print-join-command")
    log.warning(
        "the token alone verifies the cluster, so anybody who knows the token could impersonate it; give --ca-hash"
    )
    return pem


def make_request(signer: str, node: str, dns_name: str = "") -> Request:
    """Return a request of ``node`` with a new key; ``dns_name`` is what a serving certificate is for."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes"),
            x509.NameAttribute(NameOID.COMMON_NAME, f"system:node:{node}"),
        ]
    )
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject)
    if dns_name:
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(dns_name)]), critical=False)
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    request = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    return Request(f"node-csr-{secrets.token_hex(16)}", signer, pem.decode(), request.decode())


def _object(request: Request) -> JsonObject:
    spec = {
        "signerName": request.signer,
        "request": base64.b64encode(request.request.encode()).decode(),
        "usages": ["digital signature", _USAGES[request.signer]],
    }
    return {
        "apiVersion": CERTIFICATE_SIGNING_REQUEST.api_version,
        "kind": CERTIFICATE_SIGNING_REQUEST.kind,
        "metadata": {"name": request.name},
        "spec": spec,
    }


def certificate_of(request: JsonObject) -> bytes | None:
    """Return the certificate (PEM) that a request has got, None while it has none.

    Raises:
        ConfigurationError: it was denied, or failed, for good.
    """
    status = objects.status(request)
    for condition in status.get("conditions") or []:
        if condition.get("type") in {"Denied", "Failed"}:
            reason, message = condition.get("reason"), condition.get("message")
            raise ConfigurationError(f"the cluster issues no certificate ({reason}): {message}")
    return base64.b64decode(status["certificate"]) if status.get("certificate") else None


def obtain(api: Api, request: Request, clock: Clock, stop: threading.Event) -> bytes:
    """Return the certificate (PEM) for ``request``, which is sent unless it was before.

    Raises:
        ConfigurationError: it is refused for good.
        Stopped: ``stop`` was set before it came.
    """
    _send(api, request, clock, stop)
    told_s = clock.monotonic()
    while True:
        found = certificate_of(_patiently(lambda: api.get(CERTIFICATE_SIGNING_REQUEST, request.name), clock, stop))
        if found is not None:
            return found
        if clock.monotonic() - told_s >= TELL_EVERY_S:
            told_s = clock.monotonic()
            log.warning("request %s waits for approval; is minik8s-certificates running?", request.name)
        if clock.wait(stop, POLL_S):
            raise Stopped


def _send(api: Api, request: Request, clock: Clock, stop: threading.Event) -> None:
    try:
        _patiently(lambda: api.create(CERTIFICATE_SIGNING_REQUEST, _object(request)), clock, stop)
    except AlreadyExists:
        log.info("request %s was sent before", request.name)


def _patiently(call: Callable[[], JsonObject], clock: Clock, stop: threading.Event) -> JsonObject:
    """Return the answer of ``call``; what may pass is waited out, and told.

    Raises:
        ConfigurationError: who asks is not, or no longer, known, or may not.
        AlreadyExists: as the API.
        Stopped: ``stop`` was set.
    """
    while True:
        try:
            return call()
        except Unauthorized as error:
            text = "the cluster rejects the token: it is wrong, was used, or has expired"
            raise ConfigurationError(f"{text}; create another: minik8s token create --print-join-command") from error
        except (Forbidden, NotFound) as error:
            raise ConfigurationError(f"the cluster refuses the request: {error}") from error
        except AlreadyExists:
            raise
        except (TemporaryError, StatusError) as error:
            log.warning("%s; trying again", error)
        if clock.wait(stop, RETRY_S):
            raise Stopped


def discover(
    server: str,
    token: BootstrapToken | None,
    pins: Sequence[str],
    clock: Clock,
    stop: threading.Event,
    fetch: Callable[[str], dict[str, str]] = fetch_info,
) -> bytes:
    """Return the authorities (PEM) of the cluster at ``server``; waits while it cannot be reached, and says so.

    Raises:
        ConfigurationError: it is not the cluster that was meant.
        Stopped: ``stop`` was set.
    """
    while True:
        try:
            return trusted_authorities(fetch(server), token, pins, server)
        except TemporaryError as error:
            log.warning("%s; trying again every %g s", error, RETRY_S)
        if clock.wait(stop, RETRY_S):
            raise Stopped
