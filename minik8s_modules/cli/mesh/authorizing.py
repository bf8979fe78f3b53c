"""What AuthorizationPolicies make of a request to a Service's Pods: which of them decides, and how."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from minik8s_modules.api import objects
from minik8s_modules.api.errors import Forbidden, NotFound
from minik8s_modules.api.kinds import ENDPOINT_SLICE, POD
from minik8s_modules.api.network.authorization import (
    ALL,
    AUTHORIZATION_POLICY,
    NONE,
    Access,
    Caller,
    Request,
    access,
    action_of,
    needs_http,
    selecting,
)
from minik8s_modules.api.network.path_patterns import normalized
from minik8s_modules.api.network.readable_policies import readable_policy
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.mutual_tls import can_speak
from minik8s_modules.cli import output
from minik8s_modules.cli.causes.calls import Line
from minik8s_modules.client.interface import Lister
from minik8s_modules.mesh.authorizations.guards import http_ports_of
from minik8s_modules.mesh.mapping import SERVICE_NAME

STATION = "policies"
_ENCODED = Access(NONE, "/")
"""What no policy says of a path, as no name of one has a slash."""


def caller_of(pod: JsonObject) -> Caller:
    """Return as whom a Pod calls by mutual TLS."""
    return Caller(objects.namespace(pod), str(objects.spec(pod).get("serviceAccountName") or "default"))


def authorized(
    client: Lister, service: JsonObject, path: str, caller: Caller, port: int = 0, host: str = ""
) -> list[Line]:
    """Return what becomes of a GET at the Pods of a Service; nothing where no policy selects one.

    Args:
        client: asks for what there is.
        service: that is called.
        path: as it is sent.
        caller: who calls.
        port: of the Service; 0 for all.
        host: by which it is called; "" for its name with its namespace.

    Raises:
        StatusError: as the API does.
    """
    space, name = objects.namespace(service), objects.name(service)
    read = [readable_policy(each) for each in policies_in(client, space)]
    policies = [policy for policy, _fault in read]
    selector = objects.spec(service).get("selector") or {}
    if not policies or not selector:
        return []
    slices = client.list(ENDPOINT_SLICE, space).items
    own = [_at(each, service, port) for each in slices if objects.labels(each).get(SERVICE_NAME) == name]
    pods = [pod for pod in client.list(POD, space).items if selector.items() <= objects.labels(pod).items()]
    seen, http = normalized(path), http_ports_of(slices)
    request = Request("GET", seen or "", host or f"{name}.{space}")
    found: dict[tuple[Access, bool], list[str]] = {}
    for pod in pods:
        if not (chosen := selecting(policies, space, objects.labels(pod))):
            continue
        able = can_speak(objects.spec(pod))
        for number in _ports_of(own, objects.name(pod)) if able else [0]:
            is_http = number in http.get(objects.name(pod), ())
            decided = access(chosen, caller, number, http=is_http, request=request) if able else Access(ALL)
            if able and is_http and seen is None and needs_http(chosen):
                decided = _ENCODED
            found.setdefault((decided, able), []).append(objects.name(pod))
    faults = {objects.name(policy): fault for policy, fault in read if fault}
    return list(_lines(found, caller, {objects.name(each): action_of(each) for each in policies}, faults))


def _at(of: JsonObject, service: JsonObject, port: int) -> JsonObject:
    """Return an EndpointSlice with those ports alone to which a port of its Service leads."""
    names = {each.get("name") or "" for each in objects.spec(service).get("ports") or [] if each.get("port") == port}
    return {**of, "ports": [each for each in of.get("ports") or [] if not port or (each.get("name") or "") in names]}


def policies_in(client: Lister, namespace: str) -> Sequence[JsonObject]:
    """Return the policies of a namespace; none where nobody has defined the kind, or who asks may not see them."""
    try:
        return client.list(AUTHORIZATION_POLICY, namespace).items
    except NotFound:
        return ()
    except Forbidden:
        output.warn(f"you may not list AuthorizationPolicies of namespace {namespace}: what they refuse is not known")
        return ()


def _ports_of(slices: Sequence[JsonObject], pod: str) -> list[int]:
    ports = {
        int(port["port"])
        for each in slices
        for endpoint in each.get("endpoints") or []
        if (endpoint.get("targetRef") or {}).get("name") == pod
        for port in each.get("ports") or []
        if port.get("port")
    }
    return sorted(ports)


def _lines(
    found: Mapping[tuple[Access, bool], list[str]],
    caller: Caller,
    actions: Mapping[str, str],
    faults: Mapping[str, str],
) -> Iterator[Line]:
    for (decided, able), names in sorted(found.items()):
        pods = ", ".join(sorted({*names}))
        if not able:
            text = f"not asked for at {pods}: no sidecar that takes mutual TLS enforces AuthorizationPolicies there"
            yield Line(STATION, text)
        elif decided.passes == NONE:
            by = _refusal(decided, faults)
            yield Line(STATION, f"refused by {pods}: {by} ({caller})", broken=True)
        else:
            by = f"AuthorizationPolicy {decided.policy}" if decided.policy else "no policy denies it"
            kind = f" ({actions[decided.policy]})" if decided.policy else ""
            yield Line(STATION, f"passes at {pods}: {by}{kind} ({caller})")


def _refusal(decided: Access, faults: Mapping[str, str]) -> str:
    if fault := faults.get(decided.policy):
        return f"AuthorizationPolicy {decided.policy} denies everything, as it cannot be read ({fault})"
    if decided == _ENCODED:
        return "its path is refused in this spelling, whatever policies say"
    return f"AuthorizationPolicy {decided.policy} denies it" if decided.policy else "no AuthorizationPolicy allows it"
