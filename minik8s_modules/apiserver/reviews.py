"""Questions a client asks about itself: SelfSubjectAccessReview (may I?) and SelfSubjectReview (who am I?)."""

from __future__ import annotations

from minik8s_modules.api.errors import BadRequest
from minik8s_modules.api.objects import JsonObject, spec
from minik8s_modules.apiserver.authorization import Attributes, allowed
from minik8s_modules.apiserver.identity import User


def access(user: User, review: JsonObject) -> JsonObject:
    """Return the SelfSubjectAccessReview with its answer."""
    permitted = allowed(user, _asked(spec(review)))
    status = {"allowed": permitted} if permitted else {"allowed": False, "reason": "no role of this user allows it"}
    return {**review, "status": status}


def _asked(wanted: JsonObject) -> Attributes:
    resource, other = wanted.get("resourceAttributes"), wanted.get("nonResourceAttributes")
    if (resource is None) == (other is None):
        raise BadRequest("exactly one of spec.resourceAttributes and spec.nonResourceAttributes must be set")
    if other is not None:
        return Attributes(other.get("verb", ""), path=other.get("path", ""))
    assert resource is not None  # noqa: S101 - the case above; told to the type checker
    plural, subresource = resource.get("resource", ""), resource.get("subresource", "")
    return Attributes(
        resource.get("verb", ""),
        resource.get("group", ""),
        f"{plural}/{subresource}" if subresource else plural,
        resource.get("namespace", ""),
        resource.get("name", ""),
    )


def identity(user: User, review: JsonObject) -> JsonObject:
    """Return the SelfSubjectReview with who asks."""
    return {**review, "status": {"userInfo": user.info()}}
