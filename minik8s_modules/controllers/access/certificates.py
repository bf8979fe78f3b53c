"""``minik8s-certificates --config FILE``: signs CertificateSigningRequests; the only process with authorities' keys.

A process and a user of its own: neither the API server nor the other controllers can read the key. A sync
reads one request, asks ``signing_requests.decide_request``, and makes one write with the revision it decided on; the
write brings the request back. The authority is read again for every signature, so an exchanged one counts at once.
"""

from __future__ import annotations

import base64
import logging
import sys
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

from minik8s_modules.api import objects
from minik8s_modules.api.access import certificate_requests
from minik8s_modules.api.access.bootstrap_tokens import NAMESPACE, PREFIX
from minik8s_modules.api.access.certificate_requests import RequestedCertificate
from minik8s_modules.api.access.mesh_identities import MESH
from minik8s_modules.api.errors import Conflict, NotFound
from minik8s_modules.api.kinds import CERTIFICATE_SIGNING_REQUEST, LEASE, NODE, SECRET, SUBJECT_ACCESS_REVIEW, Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import Clock, rfc3339
from minik8s_modules.base.config import Configuration
from minik8s_modules.base.errors import ConfigurationError, TemporaryError
from minik8s_modules.base.process import run_daemon
from minik8s_modules.client.configured import client_of, election_client
from minik8s_modules.client.interface import Api
from minik8s_modules.controllers.access import newcomers, signing
from minik8s_modules.controllers.access.signing_requests import (
    Approve,
    Delete,
    Deny,
    Fail,
    Sign,
    Step,
    Wait,
    decide_request,
)
from minik8s_modules.runtime.leader import LeaderElector, Token
from minik8s_modules.runtime.shell import Shell

log = logging.getLogger(__name__)
LEASE_NAME = "minik8s-certificates"
LEASES = "kube-node-lease"
# nobody who is old waits longer to be taken away; one look costs microseconds
LOOK_EVERY = timedelta(minutes=10)


class AuthorityUnusable(TemporaryError):
    """The files of the authority cannot be used now; while they are exchanged that is so for a moment."""


class NotAllowed(TemporaryError):
    """Who asked may not have a certificate without somebody's approval; a role may come."""


class CertificateController(Shell[str]):
    """Approves, signs and cleans signing requests.

    Args:
        client: of the signer's own identity.
        authority: reads the cluster's authority, or raises AuthorityUnusable.
        clock: the time.
        mesh: as ``authority``, for identities in the mesh; None where there is no mesh.
    """

    def __init__(
        self,
        client: Api,
        authority: Callable[[], signing.Authority],
        clock: Clock | None = None,
        mesh: Callable[[], signing.Authority] | None = None,
    ) -> None:
        self._client = client
        self._authority = authority
        self._mesh = mesh
        super().__init__(client, "certificates", clock)
        self._requests = self.follow(
            CERTIFICATE_SIGNING_REQUEST, lambda old, new: self._queue.add(objects.name(new or old or {}))
        )

    def sync(self, name: str) -> None:
        """Do what is to be done with one request. Raises as the API does."""
        request = self._requests.get("", name)
        if request is None:
            return
        found: RequestedCertificate | str
        try:
            found = _parsed(request).asked
        except ValueError as error:
            found = str(error)
        step = decide_request(request, found, self._clock.now())
        try:
            self._take(request, step)
        except (Conflict, NotFound) as error:
            log.debug("signing request %s has changed: %s", name, error)
            self._queue.add_after(name, 1.0)  # it, or the token it came with

    def _take(self, request: JsonObject, step: Step) -> None:
        name = objects.name(request)
        match step:
            case Wait(until):
                self._queue.add_after(name, min(LOOK_EVERY, until - self._clock.now()).total_seconds())
            case Delete(why):
                self._client.delete(CERTIFICATE_SIGNING_REQUEST, name, uid=objects.uid(request))
                log.info("signing request %s is deleted: %s", name, why)
            case Approve(subresource, message):
                self._approve(request, subresource, message)
            case Deny(message):
                self._settle(request, "Denied", message, "approval")
            case Fail(message):
                self._settle(request, "Failed", message, "status")
            case Sign():
                self._sign(request, step)

    def _settle(self, request: JsonObject, kind: str, message: str, subresource: str) -> None:
        """Say for good that there is no certificate."""
        condition = self._condition(kind, "SignerValidationFailure", message)
        self._write(request, {"conditions": [*_conditions(request), condition]}, subresource)
        asker = objects.spec(request).get("username")
        log.warning("signing request %s of %s: %s: %s", objects.name(request), asker, kind.lower(), message)

    def _sign(self, request: JsonObject, step: Sign) -> None:
        authority = self._authority_of(request)
        pem = signing.sign(_parsed(request), authority, step.usages, self._clock.now(), step.lifetime)
        if objects.spec(request).get("signerName") == MESH:
            pem += authority.bundle
        self._write(request, {"certificate": base64.b64encode(pem).decode()}, "status")
        log.info("signing request %s of %s: signed", objects.name(request), objects.spec(request).get("username"))

    def _authority_of(self, request: JsonObject) -> signing.Authority:
        if objects.spec(request).get("signerName") != MESH:
            return self._authority()
        if self._mesh is None:
            raise AuthorityUnusable("this signer has no authority of the mesh (mesh_authority)")
        return self._mesh()

    def _approve(self, request: JsonObject, subresource: str, message: str) -> None:
        if not self._may(request, subresource):
            text = f"{objects.name(request)}: {objects.spec(request).get('username')} has no right to {subresource}"
            raise NotAllowed(f"signing request {text}; approve it, or bind the role")
        condition = self._refusal(request) or self._condition("Approved", "AutoApproved", message)
        self._write(request, {"conditions": [*_conditions(request), condition]}, "approval")

    def _refusal(self, request: JsonObject) -> JsonObject | None:
        """Return why a newcomer gets no certificate, None when it does, and its token is claimed; others need none."""
        token = newcomers.token_id(request)
        if not token:
            return None
        while True:
            secret = self._found(SECRET, f"{PREFIX}{token}", NAMESPACE)
            node, lease = self._node_of(request)
            step = newcomers.decide_newcomer(request, secret, node, lease, self._clock.now())
            match step:
                case newcomers.Claim(claimed):
                    self._client.update(SECRET, claimed)  # a Conflict: another request was faster
                case newcomers.Refuse(reason, message):
                    log.warning("signing request %s is denied: %s", objects.name(request), message)
                    return self._condition("Denied", reason, message)
                case newcomers.Admit():
                    return None

    def _node_of(self, request: JsonObject) -> tuple[JsonObject | None, JsonObject | None]:
        """Return the Node whose name is asked for, and its Lease."""
        name = certificate_requests.node_of(_parsed(request).asked)
        return self._found(NODE, name), self._found(LEASE, name, LEASES)

    def _found(self, kind: Kind, name: str, namespace: str = "") -> JsonObject | None:
        try:
            return self._client.get(kind, name, namespace)
        except NotFound:
            return None

    def _may(self, request: JsonObject, subresource: str) -> bool:
        """Return whether who asked may create ``subresource`` of signing requests."""
        spec = objects.spec(request)
        attributes = {
            "group": CERTIFICATE_SIGNING_REQUEST.group,
            "resource": CERTIFICATE_SIGNING_REQUEST.plural,
            "verb": "create",
            "subresource": subresource,
        }
        user = {"user": spec.get("username"), "uid": spec.get("uid"), "groups": spec.get("groups")}
        asked = {**user, "extra": spec.get("extra"), "resourceAttributes": attributes}
        review = {"spec": {field: value for field, value in asked.items() if value}}
        return bool(objects.status(self._client.create(SUBJECT_ACCESS_REVIEW, review)).get("allowed"))

    def _condition(self, kind: str, reason: str, message: str) -> JsonObject:
        now = rfc3339(self._clock.now())
        times = {"lastUpdateTime": now, "lastTransitionTime": now}
        return {"type": kind, "status": "True", "reason": reason, "message": message, **times}

    def _write(self, request: JsonObject, fields: JsonObject, subresource: str) -> None:
        body = {**request, "status": {**objects.status(request), **fields}}
        self._client.update(CERTIFICATE_SIGNING_REQUEST, body, subresource=subresource)


def _parsed(request: JsonObject) -> certificate_requests.Request:
    return certificate_requests.parse(str(objects.spec(request).get("request") or ""))


def _conditions(request: JsonObject) -> list[JsonObject]:
    return list(objects.status(request).get("conditions") or [])


def reader(certificate: Path, key: Path) -> Callable[[], signing.Authority]:
    """Return a function that reads the authority from its files."""

    def read() -> signing.Authority:
        try:
            return signing.load_authority(certificate.read_bytes(), key.read_bytes())
        except (OSError, ValueError) as error:
            raise AuthorityUnusable(f"authority {certificate}, {key}: {error}") from error

    return read


def serve(configuration: Configuration, stop: threading.Event) -> None:
    """Run until ``stop`` is set.

    Raises:
        ConfigurationError: the configuration, the kubeconfig or the authority cannot be used.
    """
    client = client_of(configuration, "minik8s-certificates")
    authority = reader(Path(configuration.text("authority.cert")), Path(configuration.text("authority.key")))
    mesh = None
    if configuration.has("mesh_authority"):
        mesh = reader(Path(configuration.text("mesh_authority.cert")), Path(configuration.text("mesh_authority.key")))
    try:
        authority()
        if mesh is not None:
            mesh()
    except AuthorityUnusable as error:
        raise ConfigurationError(str(error)) from error

    def lead(_token: Token, lost: threading.Event) -> None:
        controller = CertificateController(client, authority, mesh=mesh)
        controller.start()
        lost.wait()
        controller.stop()

    try:
        LeaderElector(election_client(configuration, "minik8s-certificates"), LEASE_NAME).run(stop, lead)
    finally:
        client.close()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the daemon; return its exit code."""
    return run_daemon("minik8s-certificates", "Signs certificate signing requests.", serve, argv)


if __name__ == "__main__":
    sys.exit(main())
