"""Questions about rights: may I, may he, what may I, who am I. Answered from the same chain that decides requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minik8s_modules.api.access.rbac import Rule
from minik8s_modules.api.errors import BadRequest
from minik8s_modules.api.objects import JsonObject, spec
from minik8s_modules.apiserver.authorization.attributes import Attributes
from minik8s_modules.apiserver.authorization.authorization import Access, Requester
from minik8s_modules.apiserver.authorization.identity import User


def own_access(requester: Requester, review: JsonObject) -> JsonObject:
    """Return the SelfSubjectAccessReview with its answer."""
    return _answered(requester.access, requester.user, review)


def access(requester: Requester, review: JsonObject) -> JsonObject:
    """Return the SubjectAccessReview or LocalSubjectAccessReview with its answer."""
    about = spec(review)
    extra = {key: tuple(values) for key, values in (about.get("extra") or {}).items()}
    groups = tuple(about.get("groups") or ())
    user = User(about.get("user") or "", groups, about.get("uid") or "", tuple(sorted(extra.items())))
    return _answered(requester.access, user, review)


def _answered(chain: Access, user: User, review: JsonObject) -> JsonObject:
    why = chain.why(user, _asked(spec(review)))
    status = {"allowed": True, "reason": why} if why else {"allowed": False, "reason": "no role of this user allows it"}
    return {**review, "status": status}


def _asked(asked: JsonObject) -> Attributes:
    resource, other = asked.get("resourceAttributes"), asked.get("nonResourceAttributes")
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


def own_rules(requester: Requester, review: JsonObject) -> JsonObject:
    """Return the SelfSubjectRulesReview with the requester's rules in a namespace."""
    rules = requester.access.rules(requester.user, spec(review)["namespace"])
    resources = [_shown(rule) for rule in rules if rule.resources]
    paths = [{"verbs": sorted(rule.verbs), "nonResourceURLs": list(rule.urls)} for rule in rules if rule.urls]
    return {**review, "status": {"resourceRules": resources, "nonResourceRules": paths, "incomplete": False}}


def _shown(rule: Rule) -> Mapping[str, Any]:
    shown = {"verbs": sorted(rule.verbs), "apiGroups": sorted(rule.groups), "resources": sorted(rule.resources)}
    return {**shown, **({"resourceNames": sorted(rule.names)} if rule.names else {})}


def identity(user: User, review: JsonObject) -> JsonObject:
    """Return the SelfSubjectReview with who asks."""
    return {**review, "status": {"userInfo": user.info()}}
