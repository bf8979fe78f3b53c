"""Clusters that a sidecar keeps while it refuses what would lead its requests elsewhere: their endpoints go on. Pure.

What a sidecar keeps leads to Pods, and Pods go: their addresses are given to others, of anybody. So a cluster that is
decided on no more follows its Service: Pods that it had and that are still there, each with its share; if none of them
is, or it is of a Subset or a backend, all that there are now. Of a Service or Subset that is gone, it has none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from minik8s_modules.api import objects
from minik8s_modules.api.network.subsets import pods_of
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.mesh.endpoints import Endpoint
from minik8s_modules.mesh.mapping import Branch, Declared, decide_mapping
from minik8s_modules.mesh.resources import ENDPOINTS, Resource, assignment

Weights = Mapping[tuple[str, int], int]
"""By address and port of a Pod."""


class Services:
    """The Services that a decision was made from; nothing is computed before a sidecar keeps a cluster."""

    def __init__(self, declared: Sequence[Declared] = ()) -> None:
        self._declared = declared

    def weights(self, name: str, kept: Weights) -> Weights:
        """Return the endpoints that a cluster is to have now; ``kept`` are those it has."""
        service, _, group = name.partition("/")
        namespace, now = self._endpoints.get(service, ("", ()))
        if group and group != "*":
            pods = self._pods(namespace, group)
            now = tuple(each for each in now if each.pod in pods)
        places: Weights = {(each.ip, each.port): 1 for each in now}
        still = {place: weight for place, weight in kept.items() if place in places}
        return places if group else still or places

    @cached_property
    def _endpoints(self) -> Mapping[str, tuple[str, tuple[Endpoint, ...]]]:
        """Namespaces and Pods by what clusters are called: SERVICE.NAMESPACE:PORT, in a crowd ADDRESS:PORT."""
        found: dict[str, tuple[str, tuple[Endpoint, ...]]] = {}
        for of in self._declared:
            services, slices, updates = map(_by_namespace, (of.services, of.slices, of.rolling_updates))
            for space, own in services.items():
                plain = Declared([*map(_plain, own)], slices[space], rolling_updates=updates[space])
                for place, port in decide_mapping(plain).ports.items():
                    name = f"{port.service}.{space}:{port.port}"
                    found[name] = found[place] = (space, port.branches[0].endpoints)
        return found

    def _pods(self, namespace: str, subset: str) -> set[str]:
        subsets = (each for of in self._declared for each in of.subsets)
        return {pod for each in subsets if objects.key(each) == Key(namespace, subset) for pod in pods_of(each)}


def _by_namespace(found: Iterable[JsonObject]) -> dict[str, list[JsonObject]]:
    by: dict[str, list[JsonObject]] = defaultdict(list)
    for each in found:
        by[objects.namespace(each)].append(each)
    return by


def _plain(service: JsonObject) -> JsonObject:
    """Return a Service without what has sidecars leave it to nodes; one without an address is found by its name."""
    declared = objects.spec(service)
    address = declared.get("clusterIP") or "None"
    spec = {"clusterIP": objects.name(service) if address == "None" else address, "ports": declared.get("ports") or []}
    return {**service, "spec": spec}


def kept_resource(name: str, weights: Weights) -> Resource:
    """Return the endpoints of a cluster that a sidecar keeps."""
    endpoints = tuple(Endpoint("", *place, weight) for place, weight in weights.items())
    return Resource(ENDPOINTS, name, assignment(name, Branch("", None, endpoints)), "")
