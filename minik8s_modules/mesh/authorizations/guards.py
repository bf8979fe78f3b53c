"""Which AuthorizationPolicies are a Pod's, and which of its ports are of HTTP. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.network.authorization import needs_http, selecting, speaks_http
from minik8s_modules.api.objects import JsonObject

OWN_PORTS = (15001, 15006, 15008)
"""Where Envoy itself takes what nodes lead to it; whatever Services say, no application's."""


class Guard(NamedTuple):
    """What is enforced at one Pod; it says the same as another that is equal, and may be a key.

    Attributes:
        policies: those that select it, by name: each a name and a spec, which is JSON.
        http_ports: its ports of HTTP, if a policy asks for more than connections have.
    """

    policies: tuple[tuple[str, str], ...]
    http_ports: tuple[int, ...] = ()

    @property
    def names(self) -> list[str]:
        """The names of the policies."""
        return [name for name, _spec in self.policies]

    def specs(self) -> list[tuple[str, JsonObject]]:
        """Return names and specs."""
        return [(name, json.loads(spec)) for name, spec in self.policies]


class Policies(NamedTuple):
    """The policies of one namespace, and the ports of HTTP of its Pods, by name."""

    declared: Sequence[JsonObject] = ()
    http_ports: Mapping[str, frozenset[int]] = MappingProxyType({})

    @property
    def newest(self) -> int:
        """The resourceVersion of the one that was written last; 0 of none."""
        return newest(self.declared)

    def guard(self, namespace: str, pod: str, labels: Mapping[str, str]) -> Guard | None:
        """Return what is enforced at a Pod; None where nothing is."""
        found = selecting(self.declared, namespace, labels)
        if not found:
            return None
        return guard_of(found, self.http_ports.get(pod, ()))


NO_POLICIES = Policies()


def guard_of(policies: Sequence[JsonObject], http_ports: Iterable[int]) -> Guard:
    """Return what is enforced at a Pod with these policies and ports of HTTP."""
    ports = http_ports if needs_http(policies) else ()
    return Guard(tuple((objects.name(each), spec_text(each)) for each in policies), tuple(sorted(ports)))


def newest(policies: Iterable[JsonObject]) -> int:
    """Return the resourceVersion of the one that was written last; 0 of none."""
    return max((int(objects.metadata(each).get("resourceVersion") or 0) for each in policies), default=0)


def spec_text(policy: JsonObject) -> str:
    """Return the spec of a policy as a guard has it."""
    return json.dumps(objects.spec(policy), sort_keys=True)


def http_ports_of(slices: Iterable[JsonObject]) -> dict[str, frozenset[int]]:
    """Return the ports of Pods that Services say are of HTTP, by name of Pod; ready or not."""
    found: dict[str, set[int]] = {}
    for each in slices:
        ports = {
            int(port["port"])
            for port in each.get("ports") or []
            if port.get("port") and (port.get("protocol") or "TCP") == "TCP" and speaks_http(port)
        }.difference(OWN_PORTS)
        for endpoint in each.get("endpoints") or [] if ports else []:
            target = endpoint.get("targetRef") or {}
            if target.get("kind") == "Pod":
                found.setdefault(str(target.get("name")), set()).update(ports)
    return {name: frozenset(ports) for name, ports in found.items()}
