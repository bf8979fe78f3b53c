"""``trace URL --from POD``: what the Pod's sidecar would do with a request, by the configuration that it has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from minik8s_modules.api import objects
from minik8s_modules.api.errors import Forbidden
from minik8s_modules.api.kinds import POD, SUBSET
from minik8s_modules.api.network.authorization import Caller
from minik8s_modules.api.network.subsets import pods_of
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods.mutual_tls import STRICT, namespace_identity
from minik8s_modules.cli import output
from minik8s_modules.cli.causes.calls import Line
from minik8s_modules.cli.mesh.authorizing import authorized, caller_of
from minik8s_modules.cli.mesh.expecting import peers_in
from minik8s_modules.cli.mesh.looking import names_by_address
from minik8s_modules.cli.mesh.sidecars import (
    DUMP,
    Ask,
    Configuration,
    Unanswered,
    container_of,
    read_configuration,
)
from minik8s_modules.client.api import ApiClient
from minik8s_modules.mesh.wording import Share, answer_of, asks_more, declared_by, has_path, matching, plain, shares


def by_sidecar(
    client: ApiClient, ask: Ask, namespace: str, name: str, service: JsonObject, port: int, path: str, host: str = ""
) -> tuple[list[Line], bool]:
    """Return the stations in the sidecar of a Pod, and whether it passes the request on to the Service.

    ``host`` is the name by which the Service is called, "" for any of its own.

    Raises:
        StatusError: as the API does.
    """
    pod = client.get(POD, name, namespace)

    def plain_text(obstacle: str) -> list[Line]:
        return guarded(client, service, obstacle) or authorized(client, service, path, Caller(), port, host)

    if not container_of(pod):
        lines = [Line("sidecar", f"Pod {name} has none: its node's rules choose")]
        return [*lines, *plain_text(f"Pod {name} has no sidecar")], True
    address = objects.spec(service).get("clusterIP")
    if ":" in str(address):
        lines = [Line("sidecar", f"is passed by: {address} is an address of IPv6, and the node's rules choose")]
        return [*lines, *plain_text("connections to IPv6 addresses go past the caller's sidecar")], True
    try:
        found = read_configuration(ask(pod, DUMP))
    except Unanswered as unanswered:
        return [Line("sidecar", f"unknown: {plain(unanswered)}", broken=True)], False
    listener = next((one.name for one in found.listeners if (one.address.ip, one.address.port) == (address, port)), "")
    if not listener and address in found.crowds.get(port, ()):
        text = f"asks the pilot for the Pods of {address}:{port} at the first request, and splits requests among them"
        return [Line("sidecar", text)], False
    if not listener:
        lines = [Line("sidecar", f"passes {address}:{port} on unchanged, as it has no configuration for it")]
        return [*lines, *plain_text("the sidecar passes connections to this Service on unchanged")], True
    pods, subsets = (
        _names(client, namespace, objects.namespace(service)),
        subsets_by_pod(client.list(SUBSET, namespace).items),
    )
    lines = [Line("sidecar", f"{plain(listener)}, version {found.version}"), *guarded(client, service)]
    checked = authorized(client, service, path, caller_of(pod), port, host)
    return [*lines, *routed(found, listener, path, pods, subsets), *checked], False


def guarded(client: ApiClient, service: JsonObject, obstacle: str = "") -> list[Line]:
    """Return what mutual TLS makes of connections to a Service's Pods; ``obstacle`` is why the caller speaks none."""
    space, selector = objects.namespace(service), objects.spec(service).get("selector") or {}
    known = peers_in(client, space).pods.get(space, {})
    peers = {
        objects.name(pod): known[objects.name(pod)]
        for pod in (client.list(POD, space).items if known and selector else ())
        if selector.items() <= objects.labels(pod).items() and objects.name(pod) in known
    }
    called = sorted(name for name, each in peers.items() if each.is_called_by_tls)
    strict = sorted(name for name, each in peers.items() if each.mode == STRICT)
    if not obstacle and called:
        account = f"certificates of {namespace_identity(space)}… are wanted"
        return [Line("mutual TLS", f"with {', '.join(called)}; {account}")]
    if obstacle and strict:
        return [Line("mutual TLS", f"refused by {', '.join(strict)}: STRICT, {obstacle}", broken=True)]
    return []


def _names(client: ApiClient, own: str, other: str) -> dict[str, str]:
    """Return the names of Pods by their addresses, those of the Service's namespace with it."""
    if other == own:
        return names_by_address(client, own)
    try:
        found = {ip: f"{other}/{name}" for ip, name in names_by_address(client, other).items()}
    except Forbidden:
        output.warn(f"you may not list Pods of namespace {other}: which of them are called is not known by name")
        found = {}
    return {**found, **names_by_address(client, own)}


def routed(
    found: Configuration, listener: str, path: str, pods: Mapping[str, str], subsets: Mapping[str, Sequence[str]]
) -> Iterator[Line]:
    """Yield the stations of a request to a listener: the routes for its path, and where they lead."""
    for route in found.routes.get(listener, ()):
        match = route.get("match") or {}
        if not has_path(match, path):
            continue
        answer, owner = answer_of(route), declared_by(route)
        fails = bool(route.get("direct_response"))
        yield Line("route", plain(f"{matching(route)}{f' (HTTPRoute {owner})' if owner else ''}"), broken=fails)
        if answer:
            yield Line("answer", plain(answer), broken=fails)
        else:
            for share in shares(route, found.endpoints):
                yield from _endpoints(share, pods, subsets)
        if not asks_more(match):
            return
    yield Line("route", f"none is for {path}: 404", broken=True)


def _endpoints(share: Share, pods: Mapping[str, str], subsets: Mapping[str, Sequence[str]]) -> Iterator[Line]:
    whole = sum(share.endpoints.values())
    for at, weight in sorted(share.endpoints.items()):
        name = pods.get(at.ip, "no Pod of this namespace")
        within = f", of Subset {', '.join(subsets[name])}" if subsets.get(name) else ""
        yield Line("pod", f"{at} ({name}{within}): {share.part * weight / whole:.0%} of them")
    if not whole:
        part = "" if share.part == 1 else f"{share.part:.0%} of them: "
        reason = 'none is ready: 503 {"error":"no available endpoint"}' if share.known else "no such backend: 500"
        yield Line("pod", f"{part}{reason}", broken=True)


def subsets_by_pod(subsets: Sequence[JsonObject]) -> dict[str, list[str]]:
    """Return the Subsets that name each Pod."""
    found: dict[str, list[str]] = {}
    for each in sorted(subsets, key=objects.name):
        for pod in pods_of(each):
            found.setdefault(pod, []).append(objects.name(each))
    return found
