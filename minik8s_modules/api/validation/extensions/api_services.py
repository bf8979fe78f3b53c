"""Validation of APIServices. Source: kube-aggregator ``pkg/apis/apiregistration/validation/validation.go``."""

from __future__ import annotations

from typing import Any

from minik8s_modules.api import cause, syntax
from minik8s_modules.api.errors import Cause
from minik8s_modules.api.objects import JsonObject, name, spec
from minik8s_modules.api.validation import check

_HIGHEST_GROUP, _HIGHEST_VERSION = 20000, 1000
_LEGACY = "only v1 may have an empty group and it better be legacy kube"


def _priority(highest: int) -> check.Rule:
    def found(at: str, value: Any) -> list[Cause]:
        given = value or 0
        right = 0 < given <= highest
        return [] if right else [cause.invalid(at, given, f"must be positive and less than {highest}")]

    return found


def _port(at: str, value: Any) -> list[Cause]:
    problems = syntax.port_number(value)
    return [cause.invalid(at, value, f"port is not valid: [{' '.join(problems)}]")] if problems else []


_SPEC = check.fields(
    ("group", check.if_set(check.syntax_of(syntax.dns1123_subdomain))),
    ("version", check.syntax_of(syntax.dns1035_label)),
    ("groupPriorityMinimum", _priority(_HIGHEST_GROUP)),
    ("versionPriority", _priority(_HIGHEST_VERSION)),
)
_SERVICE = check.fields(("namespace", check.mandatory()), ("name", check.mandatory()), ("port", _port))


def validate(api_service: JsonObject) -> list[Cause]:
    """Return what is wrong with an APIService."""
    declared = spec(api_service)
    group, version = declared.get("group") or "", declared.get("version") or ""
    causes: list[Cause] = []
    wanted = f"{version}.{group}"
    if name(api_service) != wanted:
        causes.append(
            cause.invalid("metadata.name", name(api_service), f'must be `spec.version+"."+spec.group`: "{wanted}"')
        )
    if not group and version != "v1":
        causes.append(cause.required("spec.group", _LEGACY))
    return [*causes, *_SPEC("spec", declared), *_trust(declared)]


def _trust(declared: JsonObject) -> list[Cause]:
    """Return what is wrong with the service, and with how its certificate is checked."""
    service, bundle = declared.get("service"), declared.get("caBundle") or ""
    blind = bool(declared.get("insecureSkipTLSVerify"))
    if service is not None:
        found = _SERVICE("spec.service", service)
        text = "may not be true if caBundle is present"
        return [*found, *([cause.invalid("spec.insecureSkipTLSVerify", blind, text)] if blind and bundle else [])]
    found = []
    if bundle:
        found.append(cause.invalid("spec.caBundle", _size(bundle), "local APIServices may not have a caBundle"))
    if blind:
        text = "local APIServices may not have insecureSkipTLSVerify"
        found.append(cause.invalid("spec.insecureSkipTLSVerify", blind, text))
    return found


def _size(encoded: str) -> str:
    """Return how large what is written as base64 is."""
    return f"{len(encoded) * 3 // 4 - encoded.count('=')} bytes"
