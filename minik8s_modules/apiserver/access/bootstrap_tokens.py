"""Machines that join: users of bootstrap tokens, what they may do, and the one thing anybody may read.

A token is looked up in the watch cache at every request, so it ends with its Secret. Its user is
``system:bootstrap:<id>`` in group ``system:bootstrappers``; it may ask for a node's client certificate and read its own
requests, whatever roles say, and its requests are for nothing else (``restrict``). Who has nothing at all may read
``kube-public/cluster-info``, by which he knows the cluster (api/access/bootstrap_tokens.py); the role in kube-public
says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minik8s_modules.api.access import bootstrap_tokens, certificate_requests
from minik8s_modules.api.access.bootstrap_tokens import CLUSTER_INFO, GROUP, NAMESPACE, PREFIX, USER
from minik8s_modules.api.access.certificate_requests import RequestedCertificate
from minik8s_modules.api.errors import Forbidden
from minik8s_modules.api.kinds import CERTIFICATE_SIGNING_REQUEST, SECRET
from minik8s_modules.api.objects import dig, name, spec
from minik8s_modules.apiserver.authorization.attributes import Attributes
from minik8s_modules.apiserver.authorization.identity import ALL_AUTHENTICATED, User
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.write import Write
from minik8s_modules.store.cache import WatchCache

NODE_SIGNER = "kubernetes.io/kube-apiserver-client-kubelet"
NOBODY = User("system:anonymous", ("system:unauthenticated",))
_OPEN = f"/api/v1/namespaces/{CLUSTER_INFO[0]}/configmaps/{CLUSTER_INFO[1]}"


def bootstrap_user(backend: Backend, text: str) -> User | None:
    """Return who shows the token ``text``; None when it is no bootstrap token that is good now."""
    try:
        token = bootstrap_tokens.parse_token(text)
    except ValueError:
        return None
    found = backend.cache.get(SECRET.key(NAMESPACE, f"{PREFIX}{token.id}"))
    if found is None or not bootstrap_tokens.matches(found.object, token, backend.clock.now()):
        return None
    groups = bootstrap_tokens.groups_of(found.object)
    return User(f"{USER}{token.id}", (*groups, ALL_AUTHENTICATED)) if groups else None


def is_open(environ: Mapping[str, Any]) -> bool:
    """Return whether a request is one that needs nobody behind it: reading cluster-info."""
    return environ.get("PATH_INFO") == _OPEN and environ.get("REQUEST_METHOD") == "GET"


def is_newcomer(user: User) -> bool:
    """Return whether ``user`` came with a bootstrap token."""
    return GROUP in user.groups and user.name.startswith(USER)


class NewcomerAuthorizer:
    """Allows newcomers to create signing requests and to read their own."""

    def __init__(self, cache: WatchCache) -> None:
        self._cache = cache

    def why(self, user: User, asked: Attributes) -> str:
        """Return why a newcomer may do it; "" when it may not, or the user is none."""
        kind = CERTIFICATE_SIGNING_REQUEST
        if not is_newcomer(user) or (asked.group, asked.resource) != (kind.group, kind.plural):
            return ""
        found = self._cache.get(kind.key("", asked.name)) if asked.verb == "get" and asked.name else None
        own = found is not None and dig(found.object, "spec", "username") == user.name
        return f"newcomer {user.name}: its own signing requests" if asked.verb == "create" or own else ""


def restrict(write: Write) -> None:
    """Refuse a newcomer's request for anything but a node's client certificate."""
    if not is_newcomer(write.requester.user):
        return
    asked = spec(write.new)
    why = _trouble(asked.get("signerName") or "", asked.get("request") or "")
    if why:
        raise Forbidden(write.target.kind, name(write.new), f"a bootstrap token is for joining as a node: {why}")


def _trouble(signer: str, request: str) -> str:
    if signer != NODE_SIGNER:
        return f"signerName must be {NODE_SIGNER}"
    try:
        asked = certificate_requests.parse(request).asked
        certificate_requests.node_of(asked)
    except ValueError as error:
        return f"{error}; the subject must be CN=system:node:NAME, O=system:nodes"
    return (
        ""
        if asked == RequestedCertificate(asked.common_name, asked.organizations)
        else "it must have no names and extensions"
    )
