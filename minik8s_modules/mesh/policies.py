"""What a VirtualService does with requests besides splitting them, as in Envoy's YAML. Pure."""

from __future__ import annotations

from minik8s_modules.api.network.durations import milliseconds
from minik8s_modules.api.objects import JsonObject

FAULT = "type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault"
_PREDICATE = "type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"
_ALWAYS = "connect-failure,refused-stream,reset-before-request"
"""What is tried again without being asked for: nothing of the request was sent."""
_TRIES = 2
_SAFE: JsonObject = {"name": ":method", "string_match": {"exact": "GET"}}
"""Requests that may be sent twice (RFC 9110, 9.2.2). PUT and DELETE may, too, but programs differ; a pattern that has
HEAD and OPTIONS besides costs a sidecar 10 kB more for each Service."""


def seconds(text: str) -> str:
    """Return a time as protobuf's JSON has it."""
    whole, rest = divmod(milliseconds(text), 1000)
    return f"{whole}.{rest:03}s" if rest else f"{whole}s"


def retry_policy(policy: JsonObject) -> JsonObject:
    """Return which requests are sent again, and to whom: another Pod than before."""
    declared = policy.get("retries") or {}
    converted: JsonObject = {
        "retry_on": ",".join([_ALWAYS, *(declared.get("retryOn") or ())]),
        "num_retries": declared.get("attempts", _TRIES),
        "host_selection_retry_max_attempts": "5",
        "retry_host_predicate": [{"name": "previous_hosts", "typed_config": {"@type": _PREDICATE}}],
    }
    if declared.get("perTryTimeout"):
        converted["per_try_timeout"] = seconds(declared["perTryTimeout"])
    return converted


def by_method(route: JsonObject, policy: JsonObject) -> list[JsonObject]:
    """Return a route twice, first for GET, which is sent again if a Pod goes before it answers.

    Where nothing is to be tried again, or each try has a time of its own, the route alone.
    """
    again = retry_policy(policy)
    if not again["num_retries"] or "per_try_timeout" in again:
        return [route]
    match = {**route["match"], "headers": [*(route["match"].get("headers") or ()), _SAFE]}
    action = {**route["route"], "retry_policy": {**again, "retry_on": f"{again['retry_on']},reset"}}
    return [{**route, "match": match, "route": action}, route]


def is_for_get(route: JsonObject) -> bool:
    """Return whether a route is the first of the two; one that an HTTPRoute has for GET alone is not."""
    again = str(((route.get("route") or {}).get("retry_policy") or {}).get("retry_on", ""))
    return _SAFE in ((route.get("match") or {}).get("headers") or ()) and "reset" in again.split(",")


def route_timeout(policy: JsonObject) -> str:
    """Return how long an answer may take; 0s for as long as it likes."""
    return seconds(policy["timeout"]) if policy.get("timeout") else "0s"


def mirror_policies(policy: JsonObject, cluster: str) -> JsonObject:
    """Return the fields of a route that send copies to a cluster; {} where nobody asks for any."""
    declared = policy.get("mirror")
    if not declared:
        return {}
    return {"request_mirror_policies": [{"cluster": cluster, "runtime_fraction": {"default_value": _share(declared)}}]}


def fault_filters(policy: JsonObject) -> list[JsonObject]:
    """Return the filters that delay and abort requests, none where nobody asks for any."""
    declared = policy.get("fault") or {}
    fault: JsonObject = {"@type": FAULT}
    if declared.get("delay"):
        delay = declared["delay"]
        fault["delay"] = {"fixed_delay": seconds(delay["fixed"]), "percentage": _share(delay)}
    if declared.get("abort"):
        abort = declared["abort"]
        fault["abort"] = {"http_status": abort["httpStatus"], "percentage": _share(abort)}
    return [{"name": "fault", "typed_config": fault}] if declared else []


def _share(declared: JsonObject) -> JsonObject:
    return {"numerator": declared.get("percent") or 100, "denominator": "HUNDRED"}
