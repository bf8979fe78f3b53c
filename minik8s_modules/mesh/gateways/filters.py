"""Filters of an HTTPRoute's rule as fields of Envoy's routes, and what of them cannot be done. Pure.

What Envoy cannot do is named by ``filters_fault``; the route then has the condition Accepted: False, UnsupportedValue.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from minik8s_modules.api.objects import JsonObject

_KNOWN = {"RequestHeaderModifier", "ResponseHeaderModifier", "RequestMirror", "RequestRedirect", "URLRewrite"}
_OF_BACKENDS = {"RequestHeaderModifier", "ResponseHeaderModifier"}
_STANDARD = {"http": 80, "https": 443}
_CODES = {
    301: "MOVED_PERMANENTLY",
    302: "FOUND",
    303: "SEE_OTHER",
    307: "TEMPORARY_REDIRECT",
    308: "PERMANENT_REDIRECT",
}
_MILLION = 1_000_000
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
"""RFC 9110, 5.6.2. An Envoy refuses an empty name, and a pseudo-header such as :path, with all that comes beside it."""


def filters_fault(rule: JsonObject) -> str:
    """Return which filter of a rule cannot be done, "" if all can."""
    of_backends = [each for ref in rule.get("backendRefs") or [] for each in ref.get("filters") or []]
    for each in rule.get("filters") or []:
        if each["type"] not in _KNOWN:
            return f"filter {each['type']} is not known here"
    for each in of_backends:
        if each["type"] not in _OF_BACKENDS:
            return f"filter {each['type']} cannot be one of a backendRef here"
    return next(_wrong_fields([*(rule.get("filters") or []), *of_backends]), "")


def _wrong_fields(filters: Iterable[JsonObject]) -> Iterator[str]:
    for each in filters:
        for modifier in (each.get("requestHeaderModifier") or {}, each.get("responseHeaderModifier") or {}):
            names = [one["name"] for field in ("set", "add") for one in modifier.get(field) or []]
            names += modifier.get("remove") or []
            yield from (f"{name!r:.80} is not a valid header name" for name in names if not _TOKEN.fullmatch(name))
            if any(name.lower() == "host" for name in names):
                yield "the header Host is changed by the filter URLRewrite, not by a header modifier"
        redirect = each.get("requestRedirect") or {}
        if redirect and redirect.get("statusCode", 302) not in _CODES:
            yield f"a redirect with the status {redirect['statusCode']} is not known here"


def header_fields(filters: Sequence[JsonObject]) -> JsonObject:
    """Return the fields of a route, or of a cluster's weight, that change headers."""
    fields: JsonObject = {}
    for filter_field, envoy in (("requestHeaderModifier", "request"), ("responseHeaderModifier", "response")):
        declared = [each[filter_field] for each in filters if each.get(filter_field)]
        added = [
            _header(one, action)
            for each in declared
            for field, action in (("set", "OVERWRITE_IF_EXISTS_OR_ADD"), ("add", "APPEND_IF_EXISTS_OR_ADD"))
            for one in each.get(field) or []
        ]
        removed = [name for each in declared for name in each.get("remove") or []]
        fields |= {f"{envoy}_headers_to_add": added} if added else {}
        fields |= {f"{envoy}_headers_to_remove": removed} if removed else {}
    return fields


def _header(declared: JsonObject, action: str) -> JsonObject:
    # a value is a format of Envoy's; what the user wrote is data
    value = declared["value"].replace("%", "%%")
    return {"header": {"key": declared["name"], "value": value}, "append_action": action}


def redirect_of(filters: Sequence[JsonObject], match: JsonObject, port: int, scheme: str) -> JsonObject | None:
    """Return the redirect that filters ask for; None for none. ``port`` and ``scheme`` are those of the listener."""
    declared = next((each["requestRedirect"] for each in filters if each.get("requestRedirect") is not None), None)
    if declared is None:
        return None
    redirect: JsonObject = {"response_code": _CODES[declared.get("statusCode", 302)]}
    wanted = declared.get("scheme") or scheme
    number = declared.get("port") or (_STANDARD[wanted] if declared.get("scheme") else port)
    redirect |= {"scheme_redirect": declared["scheme"]} if declared.get("scheme") else {}
    redirect |= {"host_redirect": declared["hostname"]} if declared.get("hostname") else {}
    # a standard port is left out, unless the caller's Host has that of the listener, which Envoy would keep
    is_plain = number == _STANDARD[wanted] and port == _STANDARD[scheme]
    redirect |= {} if is_plain else {"port_redirect": number}
    path = declared.get("path") or {}
    if path.get("type") == "ReplaceFullPath":
        redirect["path_redirect"] = path.get("replaceFullPath") or "/"
    elif path.get("type") == "ReplacePrefixMatch":
        redirect |= _prefix(path.get("replacePrefixMatch") or "", match)
    return redirect


def rewrite_of(filters: Sequence[JsonObject], match: JsonObject) -> JsonObject:
    """Return the fields of a route's action that change host and path; {} for none."""
    declared: JsonObject = next((each["urlRewrite"] for each in filters if each.get("urlRewrite") is not None), {})
    rewrite: JsonObject = {"host_rewrite_literal": declared["hostname"]} if declared.get("hostname") else {}
    path = declared.get("path") or {}
    if path.get("type") == "ReplaceFullPath":
        rewrite["regex_rewrite"] = _substitution(".+", path.get("replaceFullPath") or "/")
    elif path.get("type") == "ReplacePrefixMatch":
        rewrite |= _prefix(path.get("replacePrefixMatch") or "", match)
    return rewrite


def _prefix(new: str, match: JsonObject) -> JsonObject:
    """Return what puts ``new`` in the place of a match's prefix: whole elements of the path, one slash between them."""
    old = ((match.get("path") or {}).get("value") or "/").rstrip("/")
    new = new.rstrip("/")
    if old and new:
        return {"prefix_rewrite": new}
    if old:
        return {"regex_rewrite": _substitution(f"^{re.escape(old)}/*", "/")}
    return {"regex_rewrite": _substitution("^/", f"{new}/")}


def _substitution(pattern: str, new: str) -> JsonObject:
    return {"pattern": {"regex": pattern}, "substitution": new.replace("\\", "\\\\")}


def fraction_of(mirror: JsonObject) -> JsonObject:
    """Return the share of requests that a mirror gets, as Envoy has it."""
    fraction = mirror.get("fraction")
    if fraction:
        share = fraction["numerator"] * _MILLION // (fraction.get("denominator") or 100)
        return {"numerator": share, "denominator": "MILLION"}
    percent = mirror.get("percent")
    return {"numerator": 100 if percent is None else percent, "denominator": "HUNDRED"}
