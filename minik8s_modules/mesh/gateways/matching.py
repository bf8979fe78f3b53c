"""Matches of HTTPRoutes as Envoy's, and which of several goes first. Pure.

Source: Gateway API v1.3, HTTPRouteMatch: an exact path, then the longest prefix, a method, the most headers, the most
query parameters; then the oldest route, then the first by name, then the first rule. Patterns come after exact paths.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.network.url_patterns import pattern_fault
from minik8s_modules.api.objects import JsonObject

EXACT, PREFIX, PATTERN = "Exact", "PathPrefix", "RegularExpression"
ALL: JsonObject = {"path": {"type": PREFIX, "value": "/"}}
_CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")
"""No field of HTTP has these; half a surrogate pair is no text that could be sent."""


class Order(NamedTuple):
    """What a match is sorted by; the smallest goes first."""

    kind: int
    length: int
    method: int
    headers: int
    query: int
    created: str
    route: str
    rule: int
    match: int


def order_of(match: JsonObject, route: JsonObject, rule: int, number: int) -> Order:
    """Return the place of a match of a route's rule."""
    path = _path(match)
    kind = {EXACT: 0, PATTERN: 1, PREFIX: 2}[path["type"]]
    return Order(
        kind,
        -len(path["value"]),
        0 if match.get("method") else 1,
        -len(match.get("headers") or []),
        -len(match.get("queryParams") or []),
        str(objects.metadata(route).get("creationTimestamp") or ""),
        str(objects.key(route)),
        rule,
        number,
    )


def envoy_match(match: JsonObject) -> JsonObject:
    """Return a match as Envoy's."""
    converted = _envoy_path(_path(match))
    headers = [_named(each) for each in match.get("headers") or []]
    if match.get("method"):
        headers.append({"name": ":method", "string_match": {"exact": match["method"]}})
    converted |= {"headers": headers} if headers else {}
    query = [_named(each) for each in match.get("queryParams") or []]
    return converted | ({"query_parameters": query} if query else {})


def match_fault(match: JsonObject) -> str:
    """Return what of a match an Envoy would refuse: a pattern that is none, or a prefix with a query."""
    path = _path(match)
    if path["type"] == PREFIX and set(path["value"]) & set("?#"):
        return f"the path {path['value']!r:.80} has ? or #, which no path of a request has"
    patterns = [path["value"]] if path["type"] == PATTERN else []
    for each in (*(match.get("headers") or []), *(match.get("queryParams") or [])):
        patterns += [each["value"]] if each.get("type") == PATTERN else []
    return next((f"{pattern}: {fault}" for pattern in patterns if (fault := _fault(pattern))), "")


_fault = lru_cache(4096)(pattern_fault)  # up to 10 ms each, and asked at every change of the cluster


def text_fault(declared: object) -> str:
    """Return which text, however deep in what is declared, has characters that no field of HTTP may have."""
    found = next((each for each in _texts(declared) if _CONTROL.search(each)), None)
    return "" if found is None else f"{found!r:.80} has a control character, such as a line's end"


def _texts(declared: object) -> Iterator[str]:
    if isinstance(declared, str):
        yield declared
    elif isinstance(declared, dict):
        for each in declared.values():
            yield from _texts(each)
    elif isinstance(declared, list):
        for each in declared:
            yield from _texts(each)


def _path(match: JsonObject) -> JsonObject:
    path = match.get("path") or {}
    return {"type": path.get("type") or PREFIX, "value": path.get("value") or "/"}


def _envoy_path(path: JsonObject) -> JsonObject:
    if path["type"] == EXACT:
        return {"path": path["value"]}
    if path["type"] == PATTERN:
        return {"safe_regex": {"regex": path["value"]}}
    prefix = path["value"].rstrip("/")
    return {"path_separated_prefix": prefix} if prefix else {"prefix": "/"}


def _named(declared: JsonObject) -> JsonObject:
    if declared.get("type") == PATTERN:
        return {"name": declared["name"], "string_match": {"safe_regex": {"regex": declared["value"]}}}
    return {"name": declared["name"], "string_match": {"exact": declared["value"]}}
