"""Signing requests: who asks is what the server saw, not what the client says; who approves must hold the signer.

Source: kubernetes ``plugin/pkg/admission/certificates`` (approval, signing, subjectrestriction) and the strategy of
``certificates/certificates``.
"""

from __future__ import annotations

from minik8s_modules.api.access import certificate_requests
from minik8s_modules.api.errors import Forbidden
from minik8s_modules.api.objects import name, spec, status
from minik8s_modules.apiserver.access import bootstrap_tokens
from minik8s_modules.apiserver.authorization.attributes import Attributes
from minik8s_modules.apiserver.authorization.identity import MASTERS
from minik8s_modules.apiserver.http.write import Write

CLIENT_SIGNER = "kubernetes.io/kube-apiserver-client"
_ASKER = ("username", "uid", "groups", "extra")


def requester(write: Write) -> None:
    """Put who asks into a new request, over whatever it says itself."""
    own = {field: value for field, value in spec(write.new).items() if field not in _ASKER}
    write.new["spec"] = {**own, **write.requester.user.info()}


def subject(write: Write) -> None:
    """Refuse a request for a client certificate of system:masters, and what a newcomer may not ask for."""
    bootstrap_tokens.restrict(write)
    if spec(write.new).get("signerName") != CLIENT_SIGNER:
        return
    try:
        groups = certificate_requests.parse(spec(write.new)["request"]).asked.organizations
    except ValueError as error:  # what it cannot read it cannot let through
        raise Forbidden(write.target.kind, name(write.new), str(error)) from error
    if MASTERS in groups:
        text = f"use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed"
        raise Forbidden(write.target.kind, name(write.new), text)


def approval(write: Write) -> None:
    """Refuse an approval, or a certificate, of somebody without rights for the signer."""
    verb = {"approval": "approve", "status": "sign"}[write.target.subresource]
    old = write.old or {}
    if verb == "sign" and status(old).get("certificate") == status(write.new).get("certificate"):
        return
    signer = spec(old).get("signerName") or ""
    every = f"{signer.partition('/')[0]}/*"
    asked = Attributes(verb, write.target.kind.group, "signers")
    access, user = write.requester.access, write.requester.user
    if not any(access.allowed(user, asked._replace(name=each)) for each in (signer, every)):
        text = f'user not permitted to {verb} requests with signerName "{signer}"'
        raise Forbidden(write.target.kind, name(old), text)
