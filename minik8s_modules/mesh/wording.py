"""A route of Envoy's in words: which requests it has, where it leads them, and what becomes of them. Pure.

``trace`` and ``mesh routes`` say so of what a sidecar has, where what a Pod tells is data; plans of what it would have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import re2

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.mesh.policies import is_for_get

NOBODY = "503: no available endpoint"


class Address(NamedTuple):
    """Where a Pod answers."""

    ip: str
    port: int

    def __str__(self) -> str:
        """Return it as Envoy prints it."""
        return f"{self.ip}:{self.port}"


Endpoints = Mapping[str, Mapping[Address, int]]
"""Weights by cluster and address."""


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


def shares(route: JsonObject, endpoints: Endpoints) -> list[Share]:
    """Return the clusters that a route leads to."""
    action = route.get("route") or {}
    weighted = (action.get("weighted_clusters") or {}).get("clusters")
    clusters = [(str(each.get("name")), int(each.get("weight") or 0)) for each in weighted or ()]
    clusters = clusters if weighted else [(str(action.get("cluster")), 1)]
    whole = sum(weight for _name, weight in clusters) or 1
    return [
        Share(name, weight / whole, endpoints.get(name) or {}, not weighted or name in endpoints)
        for name, weight in clusters
        if weight
    ]


def leading(route: JsonObject, endpoints: Endpoints, pods: Mapping[str, str]) -> Iterable[str]:
    """Yield where a route leads, in words: Pods with their shares, or an answer of the sidecar's own."""
    answer = answer_of(route)
    if answer:
        yield answer
        return
    of = shares(route, endpoints)
    for each in of:
        told = ", ".join(_pods(each, pods)) or (NOBODY if each.known else "500: there is no such backend")
        yield told if each.part == 1 or each.endpoints else f"{each.part:.0%} {told}"


def _pods(share: Share, pods: Mapping[str, str]) -> Iterator[str]:
    whole = sum(share.endpoints.values())
    for at, weight in sorted(share.endpoints.items()):
        yield f"{pods.get(at.ip, at.ip)} {share.part * weight / whole:.0%}"


def besides(route: JsonObject) -> Iterator[str]:
    """Yield what is done with requests besides leading them somewhere, in words."""
    action = route.get("route") or {}
    tries = (action.get("retry_policy") or {}).get("per_try_timeout")
    yield from [f"timeout {action['timeout']}"] if action.get("timeout", "0s") != "0s" else []
    yield from [f"timeout of each try {tries}"] if tries else []
    yield from [f"Host becomes {action['host_rewrite_literal']}"] if action.get("host_rewrite_literal") else []
    rewritten = action.get("prefix_rewrite") or (action.get("regex_rewrite") or {}).get("substitution")
    yield from [f"path becomes {rewritten}"] if rewritten else []
    for each in action.get("request_mirror_policies") or ():
        share = each["runtime_fraction"]["default_value"]
        yield f"copied to {each['cluster']} ({share['numerator'] / _PARTS[share['denominator']]:.2%})"
    yield from _headers(route)
    for each in (action.get("weighted_clusters") or {}).get("clusters") or ():
        yield from (f"{told} for {each['name']}" for told in _headers(each))


_PARTS = {"HUNDRED": 100, "MILLION": 1_000_000}


def _headers(of: JsonObject) -> Iterator[str]:
    for which in ("request", "response"):
        for each in of.get(f"{which}_headers_to_add") or ():
            added = "added to" if each["append_action"].startswith("APPEND") else "set in"
            header = each["header"]
            yield f"header {header['key']}: {header['value'].replace('%%', '%')} {added} the {which}"
        yield from (f"header {each} removed from the {which}" for each in of.get(f"{which}_headers_to_remove") or ())


def weights_of(assignment: JsonObject) -> dict[Address, int]:
    """Return the weights in an assignment of endpoints."""
    found = [each for group in assignment["endpoints"] for each in group["lb_endpoints"]]
    pairs = [(each["endpoint"]["address"]["socket_address"], each["load_balancing_weight"]) for each in found]
    return {Address(at["address"], at["port_value"]): weight for at, weight in pairs}


def ways(routes: Iterable[JsonObject], endpoints: Endpoints, pods: Mapping[str, str]) -> dict[str, str]:
    """Return what becomes of requests by which they are, in the order in which that is looked at."""
    found: dict[str, str] = {}
    for route in routes:
        if not is_for_get(route):  # the same once more, for requests that may be sent twice
            found.setdefault(matching(route), ", ".join([*leading(route, endpoints, pods), *besides(route)]))
    return found


def plain(text: Any) -> str:
    """Return what a Pod said without what would steer a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(text))
