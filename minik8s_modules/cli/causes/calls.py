"""The way of a request that the API server sends itself: to an extension of an APIService, or to a webhook.

It goes to an endpoint of the Service (apiserver/webhooks/places.py). An address that is a pod's is reached through the
gateway of the pod's node where the control plane has no route to it (apiserver/nodes/webhook_routes.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.kind import Kind
from minik8s_modules.api.kinds import (
    API_SERVICE,
    MUTATING_WEBHOOK_CONFIGURATION,
    POD,
    SERVICE,
    VALIDATING_WEBHOOK_CONFIGURATION,
)
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.places import place
from minik8s_modules.cli.causes.pods import pod_cause
from minik8s_modules.cli.causes.service_endpoints import behind, leads_nowhere
from minik8s_modules.cli.causes.surroundings import Around
from minik8s_modules.client.api import ApiClient

CALLED = (API_SERVICE, MUTATING_WEBHOOK_CONFIGURATION, VALIDATING_WEBHOOK_CONFIGURATION)
"""What the API server calls itself."""
_HTTPS = 443


class Line(NamedTuple):
    """One station of the way; ``broken``: it ends here."""

    station: str
    text: str
    broken: bool = False


def called(client: ApiClient, kind: Kind, name: str) -> Iterator[Line]:
    """Yield the stations of what the API server asks of an object of ``CALLED``. Raises as the API does."""
    try:
        obj = client.get(kind, name)
    except NotFound:
        yield Line("name", f"there is no {kind.kind} {name}", broken=True)
        return
    around = Around(client)
    yield from _extension(around, obj) if kind == API_SERVICE else _webhooks(around, obj)


def _extension(around: Around, obj: JsonObject) -> Iterator[Line]:
    declared, service = objects.spec(obj), objects.spec(obj).get("service")
    path = f"/apis/{declared.get('group')}/{declared.get('version')}"
    if not service:
        yield Line("group", f"{path if declared.get('group') else '/api/v1'}: the API server answers it itself")
        return
    found = objects.condition(obj, "Available") or {}
    available = found.get("status") == "True"
    text = f"{found['reason']}: {found.get('message', '')}" if found.get("reason") else "it has not been processed yet"
    answered = "available" if available else f"requests get 503: {text}"
    yield Line("group", f"{path} → APIService {objects.name(obj)}, {answered}", broken=not available)
    yield from _to(around, service, bool(declared.get("insecureSkipTLSVerify")))


def _webhooks(around: Around, obj: JsonObject) -> Iterator[Line]:
    if not obj.get("webhooks"):
        yield Line("webhook", f"{obj.get('kind')} {objects.name(obj)} has no webhooks")
    for each in obj.get("webhooks") or []:
        config = each.get("clientConfig") or {}
        if config.get("service"):
            yield Line("webhook", f"{each.get('name')}, by {each.get('failurePolicy') or 'Fail'} if it is not reached")
            yield from _to(around, config["service"], blind=False)
        else:
            yield Line("webhook", f"{each.get('name')} → {config.get('url')}, from the API server's machine")


def _to(around: Around, reference: JsonObject, blind: bool) -> Iterator[Line]:  # noqa: FBT001 - of an APIService's spec
    """Yield the stations behind a reference to a port of a Service."""
    space, name, port = reference.get("namespace", ""), reference.get("name", ""), reference.get("port") or _HTTPS
    service = around.get(SERVICE, name, space)
    if service is None:
        unread = f"Service {space}/{name} may not be read"
        yield Line("service", unread if around.unread else f"there is no Service {space}/{name}", broken=True)
        return
    wanted = next((each for each in objects.spec(service).get("ports") or [] if each.get("port") == port), None)
    if wanted is None:
        yield Line("service", f"Service {space}/{name} has no port {port}", broken=True)
        return
    trust = "a certificate that is not verified" if blind else f"a certificate for {name}.{space}.svc"
    yield Line("service", f"{space}/{name}:{port}, by TLS with {trust}")
    found = behind(around, service)
    endpoints = [
        Line("endpoints", _endpoint(around, space, endpoint, address, number["port"]))
        for one in found.slices
        for endpoint in one.get("endpoints") or []
        if (endpoint.get("conditions") or {}).get("ready") is not False
        for address in endpoint.get("addresses") or []
        for number in one.get("ports") or []
        if number.get("port") and (number.get("name") or "") == (wanted.get("name") or "")
    ]
    yield from endpoints
    if not endpoints:
        cause = leads_nowhere(service, found, lambda pod: pod_cause(pod, around))
        yield Line("endpoints", f"none: {cause or f'no endpoint has the port {port}'}", broken=True)


def _endpoint(around: Around, space: str, endpoint: JsonObject, address: str, port: int) -> str:
    """Return how an endpoint is reached; a tunnel leads to pods alone, and to no address that is not the pod's."""
    target = endpoint.get("targetRef") or {}
    here = target.get("kind") == "Pod" and target.get("namespace") == space
    pod = around.get(POD, str(target.get("name")), space) if here else None
    own = {each.get("ip") for each in objects.status(pod).get("podIPs") or []} if pod else set()
    node = objects.spec(pod).get("nodeName") if pod else None
    if pod is None or node is None or address not in own:
        return f"{place(address, port)}, directly: no pod of its namespace has it, so no gateway leads there"
    tunnel = f"through the gateway of node {node} where the API server has no route"
    return f"{place(address, port)} (pod {objects.name(pod)}), directly, or {tunnel}"
