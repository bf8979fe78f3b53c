"""What becomes of a CertificateSigningRequest: approved where roles say so, signed, failed, deleted when old. Pure.

Kubernetes' four signers with their rules (pkg/controller/certificates: approver/sarapprove.go, signer/signer.go,
cleaner/cleaner.go; pkg/apis/certificates/helpers.go). Requests of other signers are somebody else's, and only cleaned.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import parse_rfc3339
from minik8s_modules.controllers.signing import Asked

CLIENT = "kubernetes.io/kube-apiserver-client"
NODE_CLIENT = "kubernetes.io/kube-apiserver-client-kubelet"
NODE_SERVING = "kubernetes.io/kubelet-serving"
LEGACY = "kubernetes.io/legacy-unknown"
SIGNERS = frozenset({CLIENT, NODE_CLIENT, NODE_SERVING, LEGACY})
SHORTEST = timedelta(seconds=600)
LONGEST = timedelta(days=365)
SETTLED_KEPT, PENDING_KEPT = timedelta(hours=1), timedelta(hours=24)
_NEVER = datetime.max.replace(tzinfo=UTC)
_NODE_PREFIX, _NODES = "system:node:", "system:nodes"
SERVING_DOMAIN = ".node.minik8s.internal"
"""What a node's name is followed by in the name it serves streams under (reconcile/solo.py)."""
_CLIENT_USAGES = frozenset({"digital signature", "key encipherment", "client auth"})


class Approve(NamedTuple):
    """Approve if who asked may create ``subresource`` of signing requests."""

    subresource: str
    message: str


class Sign(NamedTuple):
    """Give the certificate."""

    usages: tuple[str, ...]
    lifetime: timedelta


class Fail(NamedTuple):
    """Say for good that this signer gives no such certificate."""

    message: str


class Delete(NamedTuple):
    """Take the request away: nobody needs it any more."""

    why: str


class Wait(NamedTuple):
    """Nothing to do; it is old at ``until``."""

    until: datetime


Step = Approve | Sign | Fail | Delete | Wait


def decide_request(request: JsonObject, found: Asked | str, now: datetime) -> Step:
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
    if "Approved" not in settled:
        return _recognized(spec, found) or Wait(until)
    trouble = found if isinstance(found, str) else _trouble(signer, found, frozenset(spec.get("usages") or []))
    return Fail(trouble) if trouble else Sign(tuple(spec.get("usages") or []), _lifetime(spec))


def _conditions(request: JsonObject) -> Mapping[str, JsonObject]:
    return {str(each.get("type")): each for each in objects.status(request).get("conditions") or []}


def _end(request: JsonObject) -> tuple[datetime, str]:
    """Return when the request is old, and what it then is."""
    settled = _conditions(request)
    issued = bool(objects.status(request).get("certificate"))
    for kind, old in (("Denied", "denied"), ("Failed", "failed"), ("Approved", "issued")):
        since = (settled.get(kind) or {}).get("lastUpdateTime")
        if since and (kind != "Approved" or issued):
            return parse_rfc3339(since) + SETTLED_KEPT, f"it was {old} more than an hour ago"
    if "Approved" in settled:
        return _NEVER, ""  # another signer takes its time
    created = parse_rfc3339(str(objects.metadata(request)["creationTimestamp"]))
    return created + PENDING_KEPT, "nobody settled it for a day"


def _recognized(spec: JsonObject, found: Asked | str) -> Approve | None:
    """Return the approval of a node's own certificates; people and programs approve all others."""
    signer = str(spec.get("signerName") or "")
    if isinstance(found, str) or signer not in {NODE_CLIENT, NODE_SERVING}:
        return None
    if _trouble(signer, found, frozenset(spec.get("usages") or [])):
        return None
    if signer == NODE_SERVING:
        return _serving_node(spec, found)
    if spec.get("username") == found.common_name:
        return Approve("selfnodeclient", "Auto approving self kubelet client certificate after SubjectAccessReview.")
    return Approve("nodeclient", "Auto approving kubelet client certificate after SubjectAccessReview.")


def _serving_node(spec: JsonObject, found: Asked) -> Approve | None:
    """Return the approval of a certificate by which a node serves its streams: for the one name that is only its own.

    A certificate for addresses could be for another machine's, so people approve those.
    """
    own = found.common_name.removeprefix(_NODE_PREFIX) + SERVING_DOMAIN
    if spec.get("username") != found.common_name or found.addresses or found.dns_names != (own,):
        return None
    return Approve("selfnodeserver", "Auto approving the node's own serving name after SubjectAccessReview.")


def _lifetime(spec: JsonObject) -> timedelta:
    wanted = spec.get("expirationSeconds")
    if wanted is None:
        return LONGEST
    return min(LONGEST, max(SHORTEST, timedelta(seconds=int(wanted))))


def _trouble(signer: str, found: Asked, usages: frozenset[str]) -> str:
    """Return why the signer gives no such certificate, "" when it does."""
    if signer == CLIENT:
        return _client_usages(usages)
    if signer == NODE_CLIENT:
        return _node(found) or _none_of(found) or _exact(usages, "client auth")
    if signer == NODE_SERVING:
        return _node(found) or _serving_names(found) or _exact(usages, "server auth")
    return ""


def _client_usages(usages: frozenset[str]) -> str:
    odd = sorted(usages - _CLIENT_USAGES)
    if odd:
        return f"invalid usage for client certificate: {odd[0]}"
    return "" if "client auth" in usages else "missing required usage for client certificate: client auth"


def _node(found: Asked) -> str:
    if found.organizations != (_NODES,):
        return f"subject organization is not {_NODES}"
    return (
        "" if found.common_name.startswith(_NODE_PREFIX) else f"subject common name does not begin with {_NODE_PREFIX}"
    )


def _none_of(found: Asked) -> str:
    for names, called in (
        (found.dns_names, "DNS"),
        (found.emails, "Email"),
        (found.addresses, "IP"),
        (found.uris, "URI"),
    ):
        if names:
            return f"{called} subjectAltNames are not allowed"
    return ""


def _serving_names(found: Asked) -> str:
    for names, called in ((found.emails, "Email"), (found.uris, "URI")):
        if names:
            return f"{called} subjectAltNames are not allowed"
    return "" if found.dns_names or found.addresses else "DNS or IP subjectAltName is required"


def _exact(usages: frozenset[str], purpose: str) -> str:
    allowed = ({"digital signature", purpose}, {"digital signature", "key encipherment", purpose})
    return "" if usages in allowed else f"usages did not match: {', '.join(sorted(allowed[1]))}"
