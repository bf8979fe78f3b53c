"""A route of Envoy's in words: which requests it has, and where it leads them. What a Pod says of it is data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import re2

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.cli.mesh.sidecars import Address, Configuration

NOBODY = "503: no available endpoint"


class Share(NamedTuple):
    """A cluster that a route leads to, its share of the requests, and what it has: weights by address.

    ``known`` is False of a backend that an HTTPRoute names and that is not there.
    """

    cluster: str
    part: float
    endpoints: Mapping[Address, int]
    known: bool


def matching(route: JsonObject) -> str:
    """Return which requests a route has, in words."""
    match = route.get("match") or {}
    path, headers = _path(match), match.get("headers") or ()
    words = [_header(each) for each in headers]
    words += [f"?{each.get('name')}={_value(each)}" for each in match.get("query_parameters") or ()]
    return ", ".join([path, *words] if path != _ALL or not words else words)


_ALL = "all"


def _path(match: JsonObject) -> str:
    pattern = (match.get("safe_regex") or {}).get("regex")
    if pattern is not None:
        return f"path ~ {unwrapped(str(pattern))}"
    if match.get("path") is not None:
        return f"path {match['path']}"
    if match.get("path_separated_prefix") is not None:
        return f"path {match['path_separated_prefix']} and below"
    return _ALL


def _header(header: JsonObject) -> str:
    name = "method" if header.get("name") == ":method" else header.get("name")
    return f"{name}: {_value(header)}"


def _value(matched: JsonObject) -> str:
    match = matched.get("string_match") or {}
    return str(match.get("exact") or f"~ {(match.get('safe_regex') or {}).get('regex')}")


def unwrapped(pattern: str) -> str:
    """Return a pattern of whole paths as it was declared (``url_patterns.whole_path``)."""
    inner = pattern.removeprefix("(?s:.*)(?:").removesuffix(")(?s:.*)")
    return inner if len(inner) == len(pattern) - len("(?s:.*)(?:" + ")(?s:.*)") else pattern


def has_path(match: JsonObject, path: str) -> bool:
    """Return whether a route is for a path, whatever it says of headers and the query."""
    if match.get("path") is not None:
        return path == str(match["path"])
    below = match.get("path_separated_prefix")
    if below is not None:
        return path == str(below) or path.startswith(f"{below}/")
    pattern = (match.get("safe_regex") or {}).get("regex")
    if pattern is None:
        return path.startswith(str(match.get("prefix", "/")))
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(str(pattern), options).fullmatch(path) is not None
    except re2.error:
        return False


def asks_more(match: JsonObject) -> bool:
    """Return whether a route asks for more than a path, so that the next ones are for requests without it."""
    return bool(match.get("headers") or match.get("query_parameters"))


def answer_of(route: JsonObject) -> str:
    """Return what is answered without asking a Pod; "" where one is asked."""
    direct, redirect = route.get("direct_response"), route.get("redirect")
    if direct:
        return f"{direct.get('status')} {(direct.get('body') or {}).get('inline_string', '')}".strip()
    if redirect:
        changes = {name.removesuffix("_redirect"): value for name, value in redirect.items() if name != "response_code"}
        told = ", ".join(f"{name} {value}" for name, value in sorted(changes.items()))
        return f"redirect ({redirect.get('response_code', 'MOVED_PERMANENTLY')}) to {told or 'the same'}"
    return ""


def declared_by(route: JsonObject) -> str:
    """Return the HTTPRoute that a route comes of; "" where it comes of none."""
    told = ((route.get("metadata") or {}).get("filter_metadata") or {}).get("minik8s.io") or {}
    return str(told.get("httproute") or "")


def shares(route: JsonObject, found: Configuration) -> list[Share]:
    """Return the clusters that a route leads to."""
    action = route.get("route") or {}
    weighted = (action.get("weighted_clusters") or {}).get("clusters")
    clusters = [(str(each.get("name")), int(each.get("weight") or 0)) for each in weighted or ()]
    clusters = clusters if weighted else [(str(action.get("cluster")), 1)]
    whole = sum(weight for _name, weight in clusters) or 1
    return [
        Share(name, weight / whole, found.endpoints.get(name) or {}, not weighted or name in found.endpoints)
        for name, weight in clusters
        if weight
    ]


def leading(route: JsonObject, found: Configuration, pods: Mapping[str, str]) -> Iterable[str]:
    """Yield where a route leads, in words: Pods with their shares, or an answer of the sidecar's own."""
    answer = answer_of(route)
    if answer:
        yield answer
        return
    of = shares(route, found)
    for each in of:
        told = ", ".join(_pods(each, pods)) or (NOBODY if each.known else "500: there is no such backend")
        yield told if each.part == 1 or each.endpoints else f"{each.part:.0%} {told}"


def _pods(share: Share, pods: Mapping[str, str]) -> Iterator[str]:
    whole = sum(share.endpoints.values())
    for at, weight in sorted(share.endpoints.items()):
        yield f"{pods.get(at.ip, at.ip)} {share.part * weight / whole:.0%}"


def plain(text: Any) -> str:
    """Return what a Pod said without what would steer a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(text))
