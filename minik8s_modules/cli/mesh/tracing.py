"""``trace URL --from POD``: what the Pod's sidecar would do with a request, by the configuration that it has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import re2

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import POD, SUBSET
from minik8s_modules.api.network.subsets import pods_of
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.cli.causes.calls import Line
from minik8s_modules.cli.mesh.looking import leading, matching, names_by_address, plain
from minik8s_modules.cli.mesh.sidecars import (
    DUMP,
    Ask,
    Configuration,
    Unanswered,
    container_of,
    read_configuration,
)
from minik8s_modules.client.api import ApiClient


def by_sidecar(
    client: ApiClient, ask: Ask, namespace: str, name: str, service: JsonObject, port: int, path: str
) -> tuple[list[Line], bool]:
    """Return the stations in the sidecar of a Pod, and whether it passes the request on to the Service.

    Raises:
        StatusError: as the API does.
    """
    pod = client.get(POD, name, namespace)
    if not container_of(pod):
        return [Line("sidecar", f"Pod {name} has none: its node's rules choose")], True
    try:
        found = read_configuration(ask(pod, DUMP))
    except Unanswered as unanswered:
        return [Line("sidecar", f"unknown: {plain(unanswered)}", broken=True)], False
    address = objects.spec(service).get("clusterIP")
    listener = next((one.name for one in found.listeners if (one.address.ip, one.address.port) == (address, port)), "")
    if not listener:
        return [Line("sidecar", f"passes {address}:{port} on unchanged, as it has no configuration for it")], True
    pods, subsets = names_by_address(client, namespace), subsets_by_pod(client.list(SUBSET, namespace).items)
    lines = [Line("sidecar", f"{plain(listener)}, version {found.version}")]
    return [*lines, *_routed(found, listener, path, pods, subsets)], False


def _routed(
    found: Configuration, listener: str, path: str, pods: Mapping[str, str], subsets: Mapping[str, Sequence[str]]
) -> Iterator[Line]:
    for route in found.routes.get(listener, ()):
        match = route.get("match") or {}
        if not has_path(match, path):
            continue
        direct = bool(route.get("direct_response"))
        yield Line("route", plain(matching(route)), broken=direct)
        if direct:
            yield Line("answer", plain("; ".join(leading(route, found, pods))), broken=True)
        else:
            yield from _endpoints(found, route, pods, subsets)
        if not match.get("headers"):
            return
    yield Line("route", f"none is for {path}: 404", broken=True)


def _endpoints(
    found: Configuration, route: JsonObject, pods: Mapping[str, str], subsets: Mapping[str, Sequence[str]]
) -> Iterator[Line]:
    weights = found.endpoints.get(str((route.get("route") or {}).get("cluster"))) or {}
    whole = sum(weights.values())
    for at, weight in sorted(weights.items()):
        name = pods.get(at.ip, "no Pod of this namespace")
        within = f", of Subset {', '.join(subsets[name])}" if subsets.get(name) else ""
        yield Line("pod", f"{at} ({name}{within}): {weight / whole:.0%} of them")
    if not whole:
        yield Line("pod", 'none is ready: 503 {"error":"no available endpoint"}', broken=True)


def has_path(match: JsonObject, path: str) -> bool:
    """Return whether a route is for a path, whatever it says of headers."""
    pattern = (match.get("safe_regex") or {}).get("regex")
    if pattern is None:
        return path.startswith(str(match.get("prefix", "/")))
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(str(pattern), options).fullmatch(path) is not None
    except re2.error:
        return False


def subsets_by_pod(subsets: Sequence[JsonObject]) -> dict[str, list[str]]:
    """Return the Subsets that name each Pod."""
    found: dict[str, list[str]] = {}
    for each in sorted(subsets, key=objects.name):
        for pod in pods_of(each):
            found.setdefault(pod, []).append(objects.name(each))
    return found
