"""Endpoints: the older form of what EndpointSlices tell, for clients that read it. At most 1,000 addresses.

Source: kubernetes ``pkg/controller/endpoint/endpoints_controller.go`` and ``RepackSubsets``. Endpoints of a Service
without selector are the user's and never written here.
"""

from __future__ import annotations

from collections.abc import Sequence

from minik8s_modules.api import objects
from minik8s_modules.api.errors import AlreadyExists, Conflict, NotFound
from minik8s_modules.api.kinds import ENDPOINTS, POD, SERVICE
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.api.selectors import from_map
from minik8s_modules.controllers.network.endpoints_of_pods import (
    Offer,
    Ports,
    families_of,
    has_endpoints,
    hostname_of,
    is_headless,
    offers,
    reference,
)
from minik8s_modules.controllers.network.endpointslices import HEADLESS_LABEL, concerned
from minik8s_modules.runtime.controller import Context, Loop, Looping
from minik8s_modules.runtime.informers import BY_LABEL, BY_NAMESPACE, selected

MANAGED_BY, MANAGER = "endpoints.kubernetes.io/managed-by", "endpoint-controller"
OVER_CAPACITY = "endpoints.kubernetes.io/over-capacity"
MOST_ADDRESSES = 1000


def decide_endpoints(service: JsonObject, found: Sequence[Offer], present: JsonObject | None) -> JsonObject | None:
    """Return the Endpoints to write (with its resourceVersion if there is one), None when they are right."""
    shown = [one for one in found if not one.terminating or objects.spec(service).get("publishNotReadyAddresses")]
    kept = sorted(shown, key=lambda one: not one.ready)[:MOST_ADDRESSES]
    subsets = _subsets(service, kept)
    labels = {**objects.labels(service), MANAGED_BY: MANAGER}
    if is_headless(service):
        labels[HEADLESS_LABEL] = ""
    known = objects.annotations(present or {})
    annotations = {key: value for key, value in known.items() if key != OVER_CAPACITY}
    if len(shown) > len(kept):
        annotations[OVER_CAPACITY] = "truncated"
    if present is not None and (present.get("subsets") or [], objects.labels(present), known) == (
        subsets,
        labels,
        annotations,
    ):
        return None
    metadata = {**(present or {}).get("metadata", {}), "labels": labels, "annotations": annotations}
    metadata |= {"name": objects.name(service), "namespace": objects.namespace(service)}
    return {"metadata": metadata, "subsets": subsets}


def _subsets(service: JsonObject, found: Sequence[Offer]) -> list[JsonObject]:
    """Return the addresses by the ports they offer."""
    groups: dict[Ports, dict[bool, list[JsonObject]]] = {}
    for one in sorted(found, key=lambda offer: offer.address):
        sides = groups.setdefault(one.ports, {True: [], False: []})
        sides[one.ready].append(_address(service, one))
    subsets = []
    for ports, sides in sorted(groups.items()):
        if not ports and not is_headless(service):
            continue
        named = (("addresses", sides[True]), ("notReadyAddresses", sides[False]))
        subset: JsonObject = {field: found_there for field, found_there in named if found_there}
        published = [{name: value for name, value in port.to_json().items() if value != ""} for port in ports]
        subsets.append({**subset, "ports": published} if published else subset)
    return subsets


def _address(service: JsonObject, offer: Offer) -> JsonObject:
    address: JsonObject = {"ip": offer.address}
    if hostname := hostname_of(service, offer.pod):
        address["hostname"] = hostname
    if node := objects.spec(offer.pod).get("nodeName"):
        address["nodeName"] = node
    return {**address, "targetRef": reference(offer.pod)}


class EndpointsController(Looping):
    """Keeps the Endpoints of Services that have a selector."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._loop = Loop(context, "endpoints", self.sync)
        self._services = self._loop.watch_own(SERVICE)
        self._pods = self._loop.watch(POD, self._of_pod, BY_NAMESPACE, BY_LABEL)
        self._endpoints = self._loop.watch_own(ENDPOINTS)

    def sync(self, key: Key) -> None:
        """Write the Endpoints of one Service.

        Raises:
            StatusError: the API refused; it is tried again.
        """
        service = self._services.get(key.namespace, key.name)
        present = self._endpoints.get(key.namespace, key.name)
        if service is None or objects.is_deleting(service):
            if present is not None and objects.labels(present).get(MANAGED_BY) == MANAGER:
                self._delete(present)
            return
        if not has_endpoints(service):
            return
        pods = selected(self._pods, key.namespace, from_map(objects.spec(service)["selector"]))
        wanted = decide_endpoints(service, offers(service, pods, family=families_of(service)[0]), present)
        if wanted is not None:
            self._write(wanted, new=present is None)

    def _write(self, endpoints: JsonObject, *, new: bool) -> None:
        try:
            if new:
                self._context.client.create(ENDPOINTS, endpoints)
            else:
                self._context.client.update(ENDPOINTS, endpoints)
        except (Conflict, NotFound, AlreadyExists):
            # our copy is older than the object; its change brings the key back
            return

    def _delete(self, present: JsonObject) -> None:
        try:
            name, namespace = objects.name(present), objects.namespace(present)
            self._context.client.delete(ENDPOINTS, name, namespace, uid=objects.uid(present))
        except (NotFound, Conflict):
            return

    def _of_pod(self, old: JsonObject | None, new: JsonObject | None) -> set[Key]:
        return concerned(self._services, old, new)
