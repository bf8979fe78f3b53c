"""Validation of roles and bindings, and of questions about them. Source: kubernetes ``pkg/apis/rbac/validation``."""

from __future__ import annotations

from collections.abc import Callable

from minik8s_modules.api import cause, syntax
from minik8s_modules.api.access.rbac import GROUP
from minik8s_modules.api.errors import Cause
from minik8s_modules.api.objects import JsonObject, namespace, spec
from minik8s_modules.api.validation import check, others


def validate_role(role: JsonObject) -> list[Cause]:
    """Return why the Role may not be kept: its rules name verbs, groups and resources, and no paths."""
    return _rules(role, namespaced=True)


def validate_cluster_role(role: JsonObject) -> list[Cause]:
    """Return why the ClusterRole may not be kept."""
    aggregation = role.get("aggregationRule")
    if aggregation is not None and not aggregation.get("clusterRoleSelectors"):
        detail = "at least one clusterRoleSelector required if aggregationRule is non-nil"
        return [cause.required("aggregationRule.clusterRoleSelectors", detail)]
    return _rules(role, namespaced=False)


def _rules(role: JsonObject, *, namespaced: bool) -> list[Cause]:
    found = enumerate(role.get("rules") or [])
    return [one for index, rule in found for one in _rule(f"rules[{index}]", rule, namespaced=namespaced)]


def _rule(at: str, rule: JsonObject, *, namespaced: bool) -> list[Cause]:
    causes = [] if rule.get("verbs") else [cause.required(f"{at}.verbs", "verbs must contain at least one value")]
    if rule.get("nonResourceURLs"):
        return causes + _path_rule(at, rule, namespaced=namespaced)
    if not rule.get("apiGroups"):
        causes.append(cause.required(f"{at}.apiGroups", "resource rules must supply at least one api group"))
    if not rule.get("resources"):
        causes.append(cause.required(f"{at}.resources", "resource rules must supply at least one resource"))
    return causes


def _path_rule(at: str, rule: JsonObject, *, namespaced: bool) -> list[Cause]:
    field, urls = f"{at}.nonResourceURLs", rule["nonResourceURLs"]
    if namespaced:
        return [cause.invalid(field, urls, "namespaced rules cannot apply to non-resource URLs")]
    if any(rule.get(other) for other in ("apiGroups", "resources", "resourceNames")):
        return [cause.invalid(field, urls, "rules cannot apply to both regular resources and non-resource URLs")]
    return []


def _subject(account: check.Rule) -> check.Rule:
    """Return the rule of a subject; ``account`` is the one of accounts."""

    def rule(at: str, subject: JsonObject) -> list[Cause]:
        return (account if subject.get("kind") == "ServiceAccount" else _USER_OR_GROUP)(at, subject)

    return rule


def _group_of(at: str, subject: JsonObject) -> list[Cause]:
    kind = subject.get("kind") or ""
    if kind not in {"User", "Group"}:
        return [cause.not_supported(f"{at}.kind", kind, ("ServiceAccount", "User", "Group"))]
    return _GROUP(f"{at}.apiGroup", subject.get("apiGroup"))


_GROUP = check.absent_as("", check.one_of(GROUP))
_USER_OR_GROUP = check.fields(("name", check.mandatory()), ("", _group_of))
# of the namespace of its RoleBinding, unless it names another (rbac.go, ``appliesToUser``)
_ACCOUNT = check.fields(
    ("name", check.mandatory(check.subdomain)),
    ("apiGroup", check.if_set(check.one_of(""))),
)
_ACCOUNT_ANYWHERE = check.fields(("", _ACCOUNT), ("namespace", check.mandatory()))


def _binding(account: check.Rule, *kinds: str) -> Callable[[JsonObject], list[Cause]]:
    rule = check.fields(
        ("roleRef.apiGroup", _GROUP),
        ("roleRef.kind", check.absent_as("", check.one_of(*kinds))),
        ("roleRef.name", check.mandatory(check.syntax_of(syntax.path_segment))),
        ("subjects", check.each(_subject(account))),
    )
    return lambda binding: rule("", binding)


validate_role_binding = _binding(_ACCOUNT, "Role", "ClusterRole")
validate_cluster_role_binding = _binding(_ACCOUNT_ANYWHERE, "ClusterRole")  # only a ClusterRole holds everywhere


def validate_binding_update(new: JsonObject, old: JsonObject) -> list[Cause]:
    """Return why the old binding may not become the new one: it stays one of the same role."""
    if new.get("roleRef") == old.get("roleRef"):
        return []
    return [cause.invalid("roleRef", new.get("roleRef"), "cannot change roleRef")]


def validate_subject_review(review: JsonObject) -> list[Cause]:
    """Return what keeps a SubjectAccessReview from being answered: it names a user or groups, and one question."""
    causes = others.validate_access_review(review)
    asked = spec(review)
    if not asked.get("user") and not asked.get("groups"):
        causes.append(cause.required("spec.user", "at least one of user or group must be specified"))
    return causes


def validate_local_review(review: JsonObject) -> list[Cause]:
    """Return what keeps a LocalSubjectAccessReview from being answered: it asks about its own namespace."""
    attributes = spec(review).get("resourceAttributes")
    causes = validate_subject_review(review)
    if attributes is None:
        causes.append(cause.required("spec.resourceAttributes", "must be specified"))
    elif attributes.get("namespace") != namespace(review):
        detail = "must match metadata.namespace"
        causes.append(cause.invalid("spec.resourceAttributes.namespace", attributes.get("namespace") or "", detail))
    return causes


def validate_rules_review(review: JsonObject) -> list[Cause]:
    """Return what keeps a SelfSubjectRulesReview from being answered: rules are those of a namespace."""
    return [] if spec(review).get("namespace") else [cause.required("spec.namespace", "no namespace on request")]
