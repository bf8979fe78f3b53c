"""Validation of ValidatingAdmissionPolicies and their bindings.

Source: kubernetes ``pkg/apis/admissionregistration/validation``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from minik8s_modules.api import cause, syntax
from minik8s_modules.api.errors import Cause
from minik8s_modules.api.objects import JsonObject, name, spec
from minik8s_modules.api.validation import check
from minik8s_modules.api.validation.extensions.expressions import PolicyNames, expression, match_conditions
from minik8s_modules.api.validation.extensions.webhooks import RULE
from minik8s_modules.api.validation.meta import label_selector

_REASONS = ("Forbidden", "Invalid", "RequestEntityTooLarge")
_MOST_ANNOTATIONS = 20
_LONGEST_VALUE = 5 * 1024
_IDENTIFIER = re.compile(r"[_a-zA-Z][_a-zA-Z0-9]*")
_RESERVED = frozenset({
    "true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import", "let",
    "loop", "package", "namespace", "return", "var", "void", "while",
})  # fmt: skip
_BOTH = (
    "must not contain both Deny and Warn (repeating the same validation failure information in the API response and "
    "headers serves no purpose)"
)


def _resource_names(at: str, values: Any) -> list[Cause]:
    causes = [
        c
        for i, each in enumerate(values or ())
        for c in cause.all_invalid(f"{at}[{i}]", each, syntax.path_segment(each))
    ]
    return causes + cause.duplicates(at, values or ())


MATCH_RESOURCES = check.fields(
    ("matchPolicy", check.mandatory(check.one_of("Equivalent", "Exact"))),
    (("namespaceSelector", "objectSelector"), label_selector),
    (
        ("resourceRules", "excludeResourceRules"),
        check.each(check.every(check.fields(("resourceNames", _resource_names)), RULE)),
    ),
)


def _group_version(at: str, value: Any) -> list[Cause]:
    if not value:
        return [cause.required(at)]
    group, _, version = value.rpartition("/")
    if value.count("/") > 1:
        return [cause.invalid(at, value, f"unexpected GroupVersion string: {value}")]
    causes = cause.all_invalid(at, group, syntax.dns1123_subdomain(group)) if group else []
    if not version:
        return [*causes, cause.invalid(at, value, "version must be specified")]
    return causes + cause.all_invalid(at, version, syntax.dns1035_label(version))


def _kind(at: str, value: Any) -> list[Cause]:
    if not value:
        return [cause.required(at)]
    problems = syntax.dns1035_label(value.lower())
    text = f"may have mixed case, but should otherwise match: {', '.join(problems)}"
    return [cause.invalid(at, value, text)] if problems else []


_PARAM_KIND = check.fields(("apiVersion", _group_version), ("kind", _kind))


def _constraints(at: str, value: Any) -> list[Cause]:
    if value is None:
        return [cause.required(at)]
    causes = MATCH_RESOURCES(at, value)
    return causes if value.get("resourceRules") else [*causes, cause.required(f"{at}.resourceRules")]


_SPEC = check.fields(
    ("failurePolicy", check.mandatory(check.one_of("Fail", "Ignore"))),
    ("paramKind", check.if_given(_PARAM_KIND)),
    ("matchConstraints", _constraints),
)


def validate_policy(policy: JsonObject) -> list[Cause]:
    """Return what is wrong with a policy."""
    declared = spec(policy)
    names = PolicyNames(params=declared.get("paramKind") is not None)
    causes = _SPEC("spec", declared)
    causes += match_conditions("spec.matchConditions", declared.get("matchConditions"), params=names.params)
    causes += _variables(declared, names)
    if not declared.get("validations") and not declared.get("auditAnnotations"):
        text = "validations or auditAnnotations must contain at least one item"
        return [*causes, *(cause.required(f"spec.{field}", text) for field in ("validations", "auditAnnotations"))]
    for index, each in enumerate(declared.get("validations") or ()):
        causes += _validation(f"spec.validations[{index}]", each, names)
    return causes + list(_annotations(name(policy), declared.get("auditAnnotations") or [], names))


def _variables(declared: JsonObject, names: PolicyNames) -> list[Cause]:
    causes = []
    for index, each in enumerate(declared.get("variables") or ()):
        at, called, source = f"spec.variables[{index}]", each.get("name") or "", each.get("expression") or ""
        if not called.strip():
            causes.append(cause.required(f"{at}.name", "name is not specified"))
        elif not _IDENTIFIER.fullmatch(called) or called in _RESERVED:
            causes.append(cause.invalid(f"{at}.name", called, "name is not a valid CEL identifier"))
        if not source.strip():
            causes.append(cause.required(f"{at}.expression", "expression is not specified"))
        else:
            causes += names.declare(f"{at}.expression", called, source)
    return causes


def _validation(at: str, each: JsonObject, names: PolicyNames) -> list[Cause]:
    source, message = each.get("expression") or "", each.get("message") or ""
    if not source.strip():
        causes = [cause.required(f"{at}.expression", "expression is not specified")]
    else:
        causes = expression(f"{at}.expression", source, names, "bool")
    computed = each.get("messageExpression") or ""
    if computed and not computed.strip():
        causes.append(cause.invalid(f"{at}.messageExpression", computed, "must be non-empty if specified"))
    elif computed:
        causes += expression(f"{at}.messageExpression", computed, names, "string", authorizer=False)
    if message and not message.strip():
        causes.append(cause.invalid(f"{at}.message", message, "message must be non-empty if specified"))
    elif "\n" in message.strip() or "\r" in message.strip():
        causes.append(cause.invalid(f"{at}.message", message, "message must not contain line breaks"))
    return causes + check.if_given(check.one_of(*_REASONS))(f"{at}.reason", each.get("reason"))


def _annotations(policy: str, values: list[JsonObject], names: PolicyNames) -> Iterator[Cause]:
    if len(values) > _MOST_ANNOTATIONS:
        text = f"must not have more than {_MOST_ANNOTATIONS} auditAnnotations"
        yield cause.invalid("spec.auditAnnotations", values, text)
    seen = set()
    for index, each in enumerate(values[:_MOST_ANNOTATIONS]):
        at, key = f"spec.auditAnnotations[{index}]", each.get("key") or ""
        yield from cause.all_invalid(f"{at}.key", f"{policy}/{key}", syntax.qualified_name(f"{policy}/{key}"))
        source = (each.get("valueExpression") or "").strip()
        if not source:
            yield cause.required(f"{at}.valueExpression", "valueExpression is not specified")
        elif len(source) > _LONGEST_VALUE:
            yield cause.required(f"{at}.valueExpression", f"must not exceed {_LONGEST_VALUE} bytes in length")
        else:
            yield from expression(f"{at}.valueExpression", source, names, "string", "null")
        if key in seen:
            yield cause.duplicate(f"{at}.key", key)
        seen.add(key)


# --- bindings -------------------------------------------------------------------------------------


def _param_ref(at: str, ref: Any) -> list[Cause]:
    called, selector, text = ref.get("name"), ref.get("selector"), "name and selector are mutually exclusive"
    causes = cause.all_invalid(f"{at}.name", called, syntax.path_segment(called)) if called else []
    if called and selector is not None:
        causes += [cause.forbidden(f"{at}.name", text), cause.forbidden(f"{at}.selector", text)]
    if selector is not None:
        causes += label_selector(f"{at}.selector", selector)
    if not called and selector is None:
        causes.append(cause.required(at, "one of name or selector must be specified"))
    action = ref.get("parameterNotFoundAction")
    return causes + check.mandatory(check.one_of("Allow", "Deny"))(f"{at}.parameterNotFoundAction", action)


def _actions(at: str, values: Any) -> list[Cause]:
    if not values:
        return [cause.required(at)]
    one = check.one_of("Audit", "Deny", "Warn")
    causes = [c for i, each in enumerate(values) for c in one(f"{at}[{i}]", each)] + cause.duplicates(at, values)
    return [*causes, cause.invalid(at, values, _BOTH)] if {"Deny", "Warn"} <= {*values} else causes


validate_policy_binding = check.of_spec(
    ("policyName", check.mandatory(check.subdomain)),
    ("paramRef", check.if_given(_param_ref)),
    ("matchResources", check.if_given(MATCH_RESOURCES)),
    ("validationActions", _actions),
)
