"""Whose sidecar asks: the Pod that the token in its request was issued to, as the API server says.

What a sidecar says of itself (its node id) counts for nothing: who has a Pod's token learns what that Pod's namespace
may know, and no more.
"""

from __future__ import annotations

from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import TOKEN_REVIEW
from minik8s_modules.client.interface import Api

_ACCOUNT, _POD = "system:serviceaccount:", "authentication.kubernetes.io/pod-name"


class Sidecar(NamedTuple):
    """The Pod that a sidecar stands beside."""

    namespace: str
    pod: str


def sidecar_of(api: Api, authorization: str) -> Sidecar | None:
    """Return the Pod of the bearer token in a header's value; None if it is no token of a Pod that there is.

    Raises:
        StatusError: the API server refused to say.
        TemporaryError: no API server could be asked.
    """
    kind, _, token = authorization.partition(" ")
    if kind.lower() != "bearer" or not token.strip():
        return None
    review = objects.status(api.create(TOKEN_REVIEW, {"spec": {"token": token.strip()}}))
    user = review.get("user") or {}
    pods = (user.get("extra") or {}).get(_POD) or []
    name = str(user.get("username", ""))
    if not review.get("authenticated") or not name.startswith(_ACCOUNT) or len(pods) != 1:
        return None
    return Sidecar(name.removeprefix(_ACCOUNT).partition(":")[0], pods[0])
