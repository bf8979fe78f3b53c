"""Which objects a pilot can read: others, put into the store by hand or by another release, are as if not there. Pure.

A pilot decides on many objects at once, so one of wrong types would end what it tells all others. Built-in kinds have
their types; of custom kinds, whose definitions may be anybody's, an outline says what is read here. Policies are never
left out: one that cannot be read lets nobody in (``api.network.readable_policies``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from minik8s_modules.api.kind import Kind
from minik8s_modules.api.kinds import ENDPOINT_SLICE, ROLLING_UPDATE, SERVICE, SIDECAR_MAPPING, SUBSET, VIRTUAL_SERVICE
from minik8s_modules.api.network.gateway_api import GATEWAY_KINDS
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.schema.structural import is_readable, missing_fields, type_errors

ANY, TEXT, NUMBER = "anything", "a text", "a number from 0 to 2147483647"
EACH, NEEDED = "*", "!"
"""Name of all fields of a map; end of the name of a field that has to be there."""
_MOST = 2**31 - 1
Outline = Any
"""ANY, TEXT or NUMBER, a set of texts, a list of one outline, or outlines by names of fields; other fields may be."""

_TEXTS: Outline = {EACH: TEXT}
_CONDITIONS: Outline = [{"type": TEXT, "status": TEXT, "reason": TEXT, "message": TEXT, "lastTransitionTime": TEXT}]
_SELECTOR: Outline = {
    "matchLabels": _TEXTS,
    "matchExpressions": [{"key!": TEXT, "operator!": TEXT, "values": [TEXT]}],
}
_REFERENCE: Outline = {"group": TEXT, "kind": TEXT, "namespace": TEXT, "name!": TEXT, "port": NUMBER}
_HEADER: Outline = {"name!": TEXT, "value!": TEXT, "type": TEXT}
_MODIFIER: Outline = {"set": [_HEADER], "add": [_HEADER], "remove": [TEXT]}
_PATH: Outline = {"type": TEXT, "replaceFullPath": TEXT, "replacePrefixMatch": TEXT}
_FILTER: Outline = {
    "type!": TEXT,
    "requestHeaderModifier": _MODIFIER,
    "responseHeaderModifier": _MODIFIER,
    "requestMirror": {
        "backendRef!": _REFERENCE,
        "percent": NUMBER,
        "fraction": {"numerator!": NUMBER, "denominator": NUMBER},
    },
    "requestRedirect": {
        "scheme": frozenset({"http", "https"}), "hostname": TEXT, "port": NUMBER, "statusCode": NUMBER, "path": _PATH,
    },
    "urlRewrite": {"hostname": TEXT, "path": _PATH},
}  # fmt: skip
_MATCH: Outline = {
    "path": {"type": frozenset({"Exact", "PathPrefix", "RegularExpression"}), "value": TEXT},
    "method": TEXT,
    "headers": [_HEADER],
    "queryParams": [_HEADER],
}
_RULE: Outline = {
    "matches": [_MATCH],
    "filters": [_FILTER],
    "backendRefs": [{**_REFERENCE, "weight": NUMBER, "filters": [_FILTER]}],
    "timeouts": _TEXTS,
}
_LISTENER: Outline = {
    "name!": TEXT,
    "port!": NUMBER,
    "protocol!": TEXT,
    "hostname": TEXT,
    "allowedRoutes": {
        "namespaces": {"from": TEXT, "selector": _SELECTOR},
        "kinds": [{"group": TEXT, "kind!": TEXT}],
    },
    "tls": {"certificateRefs": [_REFERENCE]},
}
OUTLINES: Mapping[tuple[str, str], Outline] = {
    GATEWAY_KINDS.classes.id: {"spec!": {"controllerName!": TEXT}, "status": {"conditions": _CONDITIONS}},
    GATEWAY_KINDS.gateways.id: {
        "spec!": {
            "gatewayClassName!": TEXT,
            "listeners": [_LISTENER],
            "infrastructure": {"labels": _TEXTS, "annotations": _TEXTS},
        },
        "status": {"conditions": _CONDITIONS, "listeners": [{"name!": TEXT, "conditions": _CONDITIONS}]},
    },
    GATEWAY_KINDS.routes.id: {
        "spec": {"parentRefs": [{**_REFERENCE, "sectionName": TEXT}], "hostnames": [TEXT], "rules": [_RULE]},
        "status": {"parents": [{"controllerName": TEXT, "conditions": _CONDITIONS}]},
    },
    GATEWAY_KINDS.grants.id: {
        "spec": {
            "from": [{"group": TEXT, "kind": TEXT, "namespace": TEXT}],
            "to": [{"group": TEXT, "kind": TEXT, "name": TEXT}],
        },
    },
}
_SPLIT: Outline = {
    "spec!": {
        "serviceRef!": TEXT,
        "port!": NUMBER,
        "subsets!": [{"name!": TEXT}],
        "fault": {"delay": {"fixed!": TEXT}, "abort": {"httpStatus!": NUMBER}},
    },
}
"""What a VirtualService must have; its definition says nothing of that, as the API server asks for it by itself."""
_POLICY_STATUS: Outline = {"enforcedBy": [TEXT], "refusedBy": [TEXT], "conditions": _CONDITIONS}


def misfit(outline: Outline, value: Any, place: str = "") -> str:
    """Return where a value is of another type than its outline says, and of which it should be; "" if it fits."""
    if outline == ANY or _is_plain(outline, value):
        return ""
    if isinstance(outline, dict) and isinstance(value, dict):
        wanted = {**dict.fromkeys(value, outline[EACH])} if EACH in outline else outline
        faults = (_misfit_of_field(each, name, value, place) for name, each in wanted.items())
        return next(filter(None, faults), "")
    if isinstance(outline, list) and isinstance(value, list):
        faults = (
            f"{place}[{number}] is null" if each is None else misfit(outline[0], each, f"{place}[{number}]")
            for number, each in enumerate(value)
        )
        return next(filter(None, faults), "")
    return f"{place or 'it'} is not {_wanted(outline)}"


def _wanted(outline: Outline) -> str:
    if isinstance(outline, str):
        return outline
    if isinstance(outline, frozenset):
        return f"one of {sorted(outline)}"
    return "an object" if isinstance(outline, dict) else "a list"


def _misfit_of_field(outline: Outline, name: str, value: JsonObject, place: str) -> str:
    field = name.removesuffix(NEEDED)
    inner, there = value.get(field), f"{place}.{field}" if place else field
    if inner is None:
        return f"{there} is missing" if name.endswith(NEEDED) else ""
    return misfit(outline, inner, there)


def _is_plain(outline: Outline, value: Any) -> bool:
    if isinstance(outline, frozenset):
        return isinstance(value, str) and value in outline
    if outline == TEXT:
        return isinstance(value, str)
    return outline == NUMBER and type(value) is int and 0 <= value <= _MOST


def _outlined(outline: Outline, obj: JsonObject) -> None:
    """Raise ValueError for an object that does not fit."""
    if fault := misfit(outline, obj):
        raise ValueError(fault)


def _typed(kind: Kind, obj: JsonObject) -> None:
    """Raise ValueError for an object of a built-in kind that has other types, or lacks what it must have."""
    if not is_readable(kind, obj) and (wrong := type_errors(kind, obj)):
        raise ValueError(str(wrong[0]))
    declared = {field: value for field, value in obj.items() if field != "status"}
    if missing := missing_fields(kind, declared, (None,)):
        raise ValueError(str(missing[0]))
    if _has_null_item(obj):
        raise ValueError("a null stands in a list")
    if kind is VIRTUAL_SERVICE:
        _outlined(_SPLIT, obj)


def _has_null_item(value: Any) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return (isinstance(value, list) and None in value) or any(
        _has_null_item(each) for each in inner if isinstance(each, dict | list)
    )


READERS: Mapping[tuple[str, str], Callable[[JsonObject], object]] = {
    **{
        kind.id: partial(_typed, kind)
        for kind in (SERVICE, ENDPOINT_SLICE, VIRTUAL_SERVICE, SUBSET, ROLLING_UPDATE, SIDECAR_MAPPING)
    },
    **{kind: partial(_outlined, outline) for kind, outline in OUTLINES.items()},
}
"""By group and kind, what raises ValueError for an object that is to be left out."""


def with_readable_status(policy: JsonObject) -> JsonObject:
    """Return an AuthorizationPolicy as it is, but for a status that cannot be read, which is none."""
    if misfit(_POLICY_STATUS, policy.get("status") or {}):
        return {field: value for field, value in policy.items() if field != "status"}
    return policy
