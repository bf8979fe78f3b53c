"""What load balancers outside ask nodes: whether they have ready Pods of a Service (``healthCheckNodePort``). Pure.

A Service of type LoadBalancer with ``externalTrafficPolicy: Local`` has a port at which each node's nginx answers: 200
where a ready Pod of it runs, 503 elsewhere. So a check is an entry of the section ``ingress``, and differs by node.
Unlike rules, it counts no Pod that only serves while it ends. Source: kubernetes ``pkg/proxy/healthcheck``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.lifecycle.service_strategy import HEALTH_PORT, needs_health_port
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.module_utils.minik8s.entries.ingress import IngressHealthEntry
from minik8s_modules.module_utils.minik8s.names.ingress_entries import HEALTH, SERVER
from minik8s_modules.reconcile.values.values import Entries


class HealthCheck(NamedTuple):
    """The port of a Service's health checks, and how many ready endpoints each node has; of no other node: none."""

    port: int
    ready: Mapping[str, int]
    ipv6: bool = False
    """Whether the Service has addresses of IPv6: nodes are asked there, too."""

    def on(self, node: str) -> IngressHealthEntry:
        """Return the entry of a node."""
        entry: IngressHealthEntry = {"port": self.port, "endpoints": self.ready.get(node, 0)}
        return {**entry, "ipv6": True} if self.ipv6 else entry


def health_check(service: JsonObject, slices: Iterable[JsonObject], leaving: Container[str] = ()) -> HealthCheck | None:
    """Return what nodes are asked about a Service, None for nothing.

    Args:
        service: the Service.
        slices: its EndpointSlices; a Pod with addresses of both families counts once.
        leaving: the UIDs of pods that are known to end, whatever the slices say yet.
    """
    declared = objects.spec(service)
    port = declared.get(HEALTH_PORT)
    if not port or not needs_health_port(declared):
        return None
    kept = declared.get("publishNotReadyAddresses")
    found = {
        (str(endpoint.get("nodeName") or ""), _identity(endpoint))
        for one in slices
        for endpoint in one.get("endpoints") or []
        if (endpoint.get("conditions") or {}).get("ready") is not False
        and (kept or (endpoint.get("targetRef") or {}).get("uid") not in leaving)
    }
    second = "IPv6" in (declared.get("ipFamilies") or [])
    return HealthCheck(int(port), dict(Counter(node for node, _ in found if node)), second)


def _identity(endpoint: JsonObject) -> str:
    return str((endpoint.get("targetRef") or {}).get("uid") or endpoint["addresses"][0])


def checks_on(node: str, checks: Mapping[str, HealthCheck]) -> Entries:
    """Return the entries of a node for checks by ``<namespace>/<name>``."""
    return {f"{HEALTH}{service}": check.on(node) for service, check in checks.items()}


def with_checks(ingress: Entries, checks: Entries) -> Entries:
    """Return a section ``ingress`` with health checks; a node without nginx answers none."""
    return {**ingress, **checks} if checks and SERVER in ingress else ingress


def imagined_checks(
    ingress: Entries,
    before: Entries,
    services: Mapping[str, JsonObject | None],
    slices: Mapping[str, list[JsonObject]],
    node: str,
) -> Entries:
    """Return a section ``ingress`` with health checks as they would be.

    Args:
        ingress: what every node would get.
        before: what the node has now, with its health checks.
        services: those that would differ, None for those that would go.
        slices: what would be behind them.
        node: its name.
    """
    stay = {
        key: entry for key, entry in before.items() if key.startswith(HEALTH) and key[len(HEALTH) :] not in services
    }
    checks = {
        key: check
        for key, one in services.items()
        if one is not None and (check := health_check(one, slices.get(key, []))) is not None
    }
    return with_checks(ingress, {**stay, **checks_on(node, checks)})
