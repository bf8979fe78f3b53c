"""What is done with one CertificateSigningRequest: decided by ``signing_requests.py``, done here.

``settle`` makes one write with the revision it decided on; the write brings the request back. The authority is read
again for every signature, so an exchanged one counts at once.
"""

from __future__ import annotations

import base64
import logging
import sys
from collections.abc import Callable, Iterable
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
from minik8s_modules.base.clock import Clock, SystemClock, rfc3339
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.client.interface import Api
from minik8s_modules.controllers.access import newcomers, signing
from minik8s_modules.controllers.access.signing_requests import (
    Approve,
    Delete,
    Deny,
    Fail,
    Sign,
    Wait,
    decide_request,
)

log = logging.getLogger(__name__)
LEASES = "kube-node-lease"
# nobody who is old waits longer to be taken away; one look costs microseconds
LOOK_EVERY = timedelta(minutes=10)


class AuthorityUnusable(TemporaryError):
    """The files of the authority cannot be used now; while they are exchanged that is so for a moment."""


class NotAllowed(TemporaryError):
    """Who asked may not have a certificate without somebody's approval; a role may come."""


class Signer:
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
        self._clock = clock or SystemClock()

    def settle(self, request: JsonObject) -> float | None:
        """Do what is to be done with one request; return in how many seconds to look again. Raises as the API does."""
        found: RequestedCertificate | str
        try:
            found = _parsed(request).asked
        except ValueError as error:
            found = str(error)
        step = decide_request(request, found, self._clock.now())
        if isinstance(step, Wait):
            return min(LOOK_EVERY, step.until - self._clock.now()).total_seconds()
        try:
            self._take(request, step)
        except (Conflict, NotFound) as error:
            log.debug("signing request %s has changed: %s", objects.name(request), error)
            return 1.0  # it, or the token it came with
        return None

    def _take(self, request: JsonObject, step: Approve | Deny | Sign | Fail | Delete) -> None:
        name = objects.name(request)
        match step:
            case Delete(why):
                self._client.delete(CERTIFICATE_SIGNING_REQUEST, name, uid=objects.uid(request))
                log.info("signing request %s is deleted: %s", name, why)
            case Approve(subresource, message):
                self._approve(request, subresource, message)
            case Deny(message):
                self._end(request, "Denied", message, "approval")
            case Fail(message):
                self._end(request, "Failed", message, "status")
            case Sign():
                self._sign(request, step)

    def _end(self, request: JsonObject, kind: str, message: str, subresource: str) -> None:
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


def trouble(authorities: Iterable[tuple[Path, Path]]) -> str:
    """Return why one of the authorities, by their files, cannot be used; "" where all can."""
    try:
        for files in authorities:
            reader(*files)()
    except AuthorityUnusable as error:
        return str(error)
    return ""


if __name__ == "__main__":  # CERTIFICATE KEY ...: the daemon's look at its authorities before it begins
    sys.stdout.write(trouble((Path(cert), Path(key)) for cert, key in zip(sys.argv[1::2], sys.argv[2::2], strict=True)))
