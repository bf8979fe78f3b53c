"""What Services would be on a node if objects were applied: the part of ``plan`` about the section ``services``. Pure.

Endpoints are those of the pods as they are: which pods would become ready, and when, is not foreseen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from minik8s_modules.api import objects
from minik8s_modules.controllers.endpoints_of_pods import has_endpoints, offers
from minik8s_modules.controllers.endpointslices import decide_slices
from minik8s_modules.reconcile.services import DATAPLANE, service_ports
from minik8s_modules.reconcile.values import Entries

JsonObject = dict[str, Any]


def with_services(
    entries: Entries, changes: Mapping[str, JsonObject | None], pods: Iterable[JsonObject], node: str
) -> Entries:
    """Return a node's section with the Services of ``changes`` (by namespace/name; None: gone) as they would be."""
    if not changes or DATAPLANE not in entries:
        return entries
    imagined = {key: entry for key, entry in entries.items() if key.rpartition(":")[0] not in changes}
    everyone = list(pods)
    for service in changes.values():
        if service is not None:
            imagined |= _entries(service, entries, everyone, node)
    return imagined


def _entries(service: JsonObject, before: Entries, pods: list[JsonObject], node: str) -> dict[str, JsonObject]:
    slices = imagined_slices(service, pods)
    entries = {key: port.on(node) for key, port in service_ports(service, slices).items()}
    if has_endpoints(service):
        return entries
    # its endpoints are a user's: they stay
    return {key: {**entry, "endpoints": before.get(key, entry)["endpoints"]} for key, entry in entries.items()}


def imagined_slices(service: JsonObject, pods: Iterable[JsonObject]) -> list[JsonObject]:
    """Return the slices that a Service would have of these pods."""
    found = _chosen(service, pods) if has_endpoints(service) else []
    return [step.obj for step in decide_slices(service, offers(service, found), [])]


def _chosen(service: JsonObject, pods: Iterable[JsonObject]) -> list[JsonObject]:
    wanted = objects.spec(service)["selector"].items()
    namespace = objects.namespace(service)
    return [pod for pod in pods if objects.namespace(pod) == namespace and wanted <= objects.labels(pod).items()]
