"""``trace HOST/PATH`` through Gateways: what their Envoys would do with a request, decided as pilots decide it.

Certificates are taken for valid, as who asks may not read them; `minik8s why` tells what a listener lacks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from minik8s_modules.api import objects
from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.kind import Kind
from minik8s_modules.api.kinds import ENDPOINT_SLICE, NAMESPACE, POD, ROLLING_UPDATE, SERVICE
from minik8s_modules.api.network.gateway_api import GATEWAY_KINDS, name_of_parts
from minik8s_modules.api.network.references import secrets_of
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.cli.causes.calls import Line
from minik8s_modules.cli.mesh.sidecars import Configuration
from minik8s_modules.cli.mesh.tracing import routed
from minik8s_modules.client.interface import Lister
from minik8s_modules.mesh.gateways.certificates import Certificate
from minik8s_modules.mesh.gateways.deciding import Declared, GatewayVerdict, decide_gateways
from minik8s_modules.mesh.policies import is_for_get
from minik8s_modules.mesh.resources import ENDPOINTS, ROUTES, Resource
from minik8s_modules.mesh.wording import weights_of


def by_gateways(client: Lister, host: str, path: str, entry: tuple[Key, str] | None = None) -> list[Line]:
    """Return the stations of a request in each Gateway that answers for a host; [] where none does.

    Args:
        client: who asks.
        host: the host that the request names.
        path: its path.
        entry: the Service, and the port of it ("" for all), by which the request comes; None for any.

    Raises:
        StatusError: as the API does.
    """
    declared = _declared(client)
    if not declared.gateways:
        return []
    decision = decide_gateways(declared)
    pods = {
        str(ip): str(objects.key(pod)) for pod in client.list(POD).items if (ip := objects.status(pod).get("podIP"))
    }
    return [
        line
        for key, told in sorted(decision.told.items())
        if entry is None or entry[0] == Key(key.namespace, name_of_parts(key.name))
        for line in _through(key, decision.gateways[key], _at(told, key, entry), host, path, pods)
    ]


def _at(told: Sequence[Resource], key: Key, entry: tuple[Key, str] | None) -> Sequence[Resource]:
    """Return what of it a Gateway does at the port by which a request comes."""
    port = entry[1] if entry else ""
    return [each for each in told if not port or each.type_url != ROUTES or each.name == f"{key}:{port}"]


def _declared(client: Lister) -> Declared:
    classes, gateways, routes, grants = (_list(client, each) for each in GATEWAY_KINDS)
    services, slices, updates = (list(client.list(each).items) for each in (SERVICE, ENDPOINT_SLICE, ROLLING_UPDATE))
    spaces = {objects.name(each): objects.labels(each) for each in client.list(NAMESPACE).items}
    certificates: dict[Key, Certificate | str] = {key: Certificate("", "") for key in secrets_of(gateways, grants)}
    return Declared(classes, gateways, routes, grants, services, slices, updates, spaces, certificates)


def _list(client: Lister, kind: Kind) -> list[JsonObject]:
    try:
        return list(client.list(kind).items)
    except NotFound:
        return []


def _through(
    key: Key, verdict: GatewayVerdict, told: Sequence[Resource], host: str, path: str, pods: dict[str, str]
) -> Iterator[Line]:
    endpoints = {each.name: weights_of(each.body) for each in told if each.type_url == ENDPOINTS}
    for each in told:
        found = _host(each.body["virtual_hosts"], host) if each.type_url == ROUTES else None
        if found is None:
            continue
        listener = each.name.removeprefix(f"{key}:")
        where = ", ".join(verdict.addresses) or "no address"
        why = f": {verdict.unreachable[1]}" if verdict.unreachable else ""
        text = f"{key} at {where}, port {listener}{why} (minik8s why -n {key.namespace} gateway/{key.name})"
        yield Line("gateway", text, broken=bool(verdict.unreachable))
        once = [one for one in found["routes"] if not is_for_get(one)]
        named = [{**one, "metadata": _owner(one["name"])} for one in once]
        yield from routed(Configuration({}, [], {each.name: named}, endpoints, "", ""), each.name, path, pods, {})


def _owner(route: str) -> JsonObject:
    return {"filter_metadata": {"minik8s.io": {"httproute": route}}}


def _host(hosts: Sequence[JsonObject], host: str) -> JsonObject | None:
    """Return what answers for a host, as Envoy chooses: the name itself, the longest suffix, any."""
    found = [each for each in hosts if _covers(each["name"], host)]
    return max(found, key=lambda each: (each["name"] == host, len(each["name"])), default=None)


def _covers(domain: str, host: str) -> bool:
    return domain in {"*", host} or (domain.startswith("*.") and host.endswith(domain[1:]))
