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
    selecting,
)
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.mutual_tls import can_speak
from minik8s_modules.cli import output
from minik8s_modules.cli.causes.calls import Line
from minik8s_modules.client.interface import Lister
from minik8s_modules.mesh.authorizations.guards import http_ports_of
from minik8s_modules.mesh.mapping import SERVICE_NAME

STATION = "authorization"


def caller_of(pod: JsonObject) -> Caller:
    """Return as whom a Pod calls by mutual TLS."""
    return Caller(objects.namespace(pod), str(objects.spec(pod).get("serviceAccountName") or "default"))


def authorized(client: Lister, service: JsonObject, path: str, caller: Caller) -> list[Line]:
    """Return what becomes of a GET at the Pods of a Service; nothing where no policy selects one.

    Raises:
        StatusError: as the API does.
    """
    space, name = objects.namespace(service), objects.name(service)
    policies = policies_in(client, space)
    selector = objects.spec(service).get("selector") or {}
    if not policies or not selector:
        return []
    slices = [
        each for each in client.list(ENDPOINT_SLICE, space).items if objects.labels(each).get(SERVICE_NAME) == name
    ]
    pods = [pod for pod in client.list(POD, space).items if selector.items() <= objects.labels(pod).items()]
    request, http = Request("GET", path.partition("?")[0], f"{name}.{space}"), http_ports_of(slices)
    found: dict[tuple[Access, bool], list[str]] = {}
    for pod in pods:
        if not (chosen := selecting(policies, space, objects.labels(pod))):
            continue
        able = can_speak(objects.spec(pod))
        for port in _ports_of(slices, objects.name(pod)) if able else [0]:
            is_http = port in http.get(objects.name(pod), ())
            decided = access(chosen, caller, port, http=is_http, request=request) if able else Access(ALL)
            found.setdefault((decided, able), []).append(objects.name(pod))
    return list(_lines(found, caller, {objects.name(each): action_of(each) for each in policies}))


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
    found: Mapping[tuple[Access, bool], list[str]], caller: Caller, actions: Mapping[str, str]
) -> Iterator[Line]:
    for (decided, able), names in sorted(found.items()):
        pods = ", ".join(sorted({*names}))
        if not able:
            text = f"not asked for at {pods}: no sidecar that takes mutual TLS enforces AuthorizationPolicies there"
            yield Line(STATION, text)
        elif decided.passes == NONE:
            by = (
                f"AuthorizationPolicy {decided.policy} denies it"
                if decided.policy
                else "no AuthorizationPolicy allows it"
            )
            yield Line(STATION, f"refused by {pods}: {by} ({caller})", broken=True)
        else:
            by = f"AuthorizationPolicy {decided.policy}" if decided.policy else "no policy denies it"
            kind = f" ({actions[decided.policy]})" if decided.policy else ""
            yield Line(STATION, f"passes at {pods}: {by}{kind} ({caller})")
