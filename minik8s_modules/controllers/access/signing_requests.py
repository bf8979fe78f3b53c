"""What becomes of a CertificateSigningRequest: denied, approved where roles say so, signed, deleted when old. Pure.

Kubernetes' four signers with their rules (pkg/controller/certificates: approver/sarapprove.go, signer/signer.go,
cleaner/cleaner.go; pkg/apis/certificates/helpers.go), and one for identities in the mesh, for which pilots ask.
Requests of other signers are somebody else's, and only cleaned.
Stricter than Kubernetes': what a signer would not sign is denied at once, whoever might approve it, and a node serves
under the one name that is its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.access.certificate_requests import NODE_PREFIX, RequestedCertificate, node_of
from minik8s_modules.api.access.mesh_identities import MESH, SIDECAR, USAGES
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.mutual_tls import TRUST_DOMAIN
from minik8s_modules.base.clock import parse_rfc3339

CLIENT = "kubernetes.io/kube-apiserver-client"
NODE_CLIENT = "kubernetes.io/kube-apiserver-client-kubelet"
NODE_SERVING = "kubernetes.io/kubelet-serving"
LEGACY = "kubernetes.io/legacy-unknown"
SIGNERS = frozenset({CLIENT, NODE_CLIENT, NODE_SERVING, LEGACY, MESH})
SHORTEST = timedelta(seconds=600)
LONGEST = timedelta(days=365)
LONGEST_IN_MESH = timedelta(hours=24)
_IDENTITY = re.compile(
    rf"spiffe://{re.escape(TRUST_DOMAIN)}/ns/[a-z0-9]([a-z0-9-]{{0,61}}[a-z0-9])?/sa/[a-z0-9][a-z0-9.-]{{0,252}}"
)
SETTLED_KEPT, PENDING_KEPT = timedelta(hours=1), timedelta(hours=24)
SETTLED_KEPT_IN_MESH = timedelta(minutes=5)
"""A pilot looks for its answer a minute long, and many sidecars ask."""
_NEVER = datetime.max.replace(tzinfo=UTC)
SERVING_DOMAIN = ".node.minik8s.internal"
"""What a node's name is followed by in the name it serves streams under (reconcile/standalone/startup.py)."""
_CLIENT_USAGES = frozenset({"digital signature", "key encipherment", "client auth"})


class Approve(NamedTuple):
    """Approve if who asked may create ``subresource`` of signing requests."""

    subresource: str
    message: str


class Sign(NamedTuple):
    """Give the certificate."""

    usages: tuple[str, ...]
    lifetime: timedelta


class Deny(NamedTuple):
    """Refuse the request before anybody approves it: this signer gives no such certificate."""

    message: str


class Fail(NamedTuple):
    """Say of an approved request, for good, that this signer gives no such certificate."""

    message: str


class Delete(NamedTuple):
    """Take the request away: nobody needs it any more."""

    why: str


class Wait(NamedTuple):
    """Nothing to do; it is old at ``until``."""

    until: datetime


# by signer, and whether a node asks for itself
_RECOGNIZED = {
    (NODE_CLIENT, True): Approve(
        "selfnodeclient", "Auto approving self kubelet client certificate after SubjectAccessReview."
    ),
    (NODE_CLIENT, False): Approve("nodeclient", "Auto approving kubelet client certificate after SubjectAccessReview."),
    (NODE_SERVING, True): Approve(
        "selfnodeserver", "Auto approving the node's own serving name after SubjectAccessReview."
    ),
    (MESH, False): Approve("meshidentity", "Auto approving an identity in the mesh after SubjectAccessReview."),
}
Step = Approve | Deny | Sign | Fail | Delete | Wait


def decide_request(request: JsonObject, found: RequestedCertificate | str, now: datetime) -> Step:
    """Return what to do with a request now.

    Args:
        request: the object.
        found: what it asks for; a text says why that cannot be read.
        now: the time.
    """
    until, why = _end(request)
    if now >= until:
        return Delete(why)
    spec = objects.spec(request)
    signer, settled = str(spec.get("signerName") or ""), _conditions(request)
    if signer not in SIGNERS or objects.status(request).get("certificate") or settled.keys() & {"Denied", "Failed"}:
        return Wait(until)
    trouble = found if isinstance(found, str) else _trouble(signer, found, frozenset(spec.get("usages") or []))
    if isinstance(found, str) or trouble:
        return Fail(trouble) if "Approved" in settled else Deny(trouble)
    if "Approved" in settled:
        return Sign(tuple(spec.get("usages") or []), _lifetime(spec))
    return _recognized(spec, found) or Wait(until)


def _conditions(request: JsonObject) -> Mapping[str, JsonObject]:
    return {str(each.get("type")): each for each in objects.status(request).get("conditions") or []}


def _end(request: JsonObject) -> tuple[datetime, str]:
    """Return when the request is old, and what it then is."""
    settled = _conditions(request)
    issued = bool(objects.status(request).get("certificate"))
    for kind, old in (("Denied", "denied"), ("Failed", "failed"), ("Approved", "issued")):
        since = (settled.get(kind) or {}).get("lastUpdateTime")
        if since and (kind != "Approved" or issued):
            if objects.spec(request).get("signerName") == MESH:
                return parse_rfc3339(since) + SETTLED_KEPT_IN_MESH, f"it was {old} more than five minutes ago"
            return parse_rfc3339(since) + SETTLED_KEPT, f"it was {old} more than an hour ago"
    if "Approved" in settled:
        return _NEVER, ""  # another signer takes its time
    created = parse_rfc3339(str(objects.metadata(request)["creationTimestamp"]))
    return created + PENDING_KEPT, "it was neither approved nor denied for a day"


def _recognized(spec: JsonObject, found: RequestedCertificate) -> Approve | None:
    """Return the approval of nodes' and the mesh's certificates; people and programs approve all others."""
    return _RECOGNIZED.get((str(spec.get("signerName") or ""), spec.get("username") == found.common_name))


def _lifetime(spec: JsonObject) -> timedelta:
    longest = LONGEST_IN_MESH if spec.get("signerName") == MESH else LONGEST
    wanted = spec.get("expirationSeconds")
    return longest if wanted is None else min(longest, max(SHORTEST, timedelta(seconds=int(wanted))))


def _trouble(signer: str, found: RequestedCertificate, usages: frozenset[str]) -> str:
    """Return why the signer gives no such certificate, "" when it does."""
    if signer == CLIENT:
        return _client_usages(usages)
    if signer == NODE_CLIENT:
        return _node(found, (), "none") or _exact(usages, "client auth")
    if signer == NODE_SERVING:
        own = found.common_name.removeprefix(NODE_PREFIX) + SERVING_DOMAIN
        return _node(found, (own,), own) or _exact(usages, "server auth")
    return _in_mesh(found, usages) if signer == MESH else ""


def _in_mesh(found: RequestedCertificate, usages: frozenset[str]) -> str:
    """Return why it is no request for the identity of one service account, and nothing beside it."""
    if found != RequestedCertificate(SIDECAR, (), uris=found.uris):
        return f"only the common name {SIDECAR} and the identity are expected"
    if len(found.uris) != 1 or not _IDENTITY.fullmatch(found.uris[0]):
        text = ", ".join(found.uris) or "none"
        return f"the identity must be one spiffe://{TRUST_DOMAIN}/ns/NAMESPACE/sa/ACCOUNT, not {text}"
    return "" if usages == USAGES else f"usages did not match: {', '.join(sorted(USAGES))}"


def _client_usages(usages: frozenset[str]) -> str:
    odd = sorted(usages - _CLIENT_USAGES)
    if odd:
        return f"invalid usage for client certificate: {odd[0]}"
    return "" if "client auth" in usages else "missing required usage for client certificate: client auth"


def _node(found: RequestedCertificate, names: tuple[str, ...], called: str) -> str:
    """Return why it is no request of a node for exactly these DNS names, and nothing beside them."""
    try:
        node_of(found)
    except ValueError as error:
        return str(error)
    if found.extensions:
        return f"the extension {found.extensions[0]} is not expected"
    if found.dns_names != names or found.addresses or found.emails or found.uris:
        text = ", ".join((*found.dns_names, *found.addresses, *found.emails, *found.uris)) or "none"
        return f"subjectAltNames must be {called}, not {text}"
    return ""


def _exact(usages: frozenset[str], purpose: str) -> str:
    allowed = ({"digital signature", purpose}, {"digital signature", "key encipherment", purpose})
    return "" if usages in allowed else f"usages did not match: {', '.join(sorted(allowed[1]))}"
