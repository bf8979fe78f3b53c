"""What sidecars are to be told, by namespace, and who waits for a change of it. Shared by threads.

A namespace is decided on when its first sidecar asks, and from then on at each change; others cost nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from minik8s_modules.mesh.authorizations.guards import NO_POLICIES, Policies
from minik8s_modules.mesh.identities.securing import NOBODY, Peers
from minik8s_modules.mesh.mapping import Withholding
from minik8s_modules.mesh.messages import Snapshot
from minik8s_modules.mesh.resources import CLUSTER
from minik8s_modules.mesh.retained import Services


@dataclass(frozen=True)
class Configuration:
    """What sidecars of one namespace, or Gateways, get."""

    snapshot: Snapshot
    split_by: Mapping[str, str]
    """What is behind each ADDRESS:PORT: the VirtualService that splits it, or the HTTPRoutes that lead it.

    The latter are NAMESPACE/NAME, with commas between them.
    """
    withholdings: frozenset[Withholding] = frozenset()
    """The batches of RollingUpdates whose Pods get no requests by it."""
    services: Services = field(default_factory=Services)
    """What it was made from: clusters that it has no more go on by that where sidecars keep them."""
    peers: Peers = NOBODY
    """Who speaks TLS."""
    policies: Policies = NO_POLICIES
    """Who may call the namespace's Pods."""

    @cached_property
    def versions(self) -> Mapping[str, Mapping[str, str]]:
        """The versions of what there is, by type and name: compared by each sidecar's stream, made once."""
        return {kind: {name: each.version for name, each in of.items()} for kind, of in self.snapshot.items()}

    @cached_property
    def on_demand(self) -> frozenset[str]:
        """The clusters that a sidecar is told of when it asks for them; their endpoints have the same names."""
        clusters = self.snapshot.get(CLUSTER, {})
        return frozenset(name for name, each in clusters.items() if each.on_demand)

    @cached_property
    def calls_by_tls(self) -> bool:
        """Whether who has it calls others by TLS, and needs a certificate for that."""
        return any(each.by_tls for each in self.snapshot.get(CLUSTER, {}).values())


class Catalogue:
    """The last decision on each namespace that has sidecars.

    Args:
        asked: called with a namespace that somebody waits for and that nobody has decided on yet.
    """

    def __init__(self, asked: Callable[[str], None]) -> None:
        self._asked = asked
        self._lock = threading.Lock()
        self._configurations: dict[str, Configuration] = {}
        self._waiting: dict[str, list[Callable[[], None]]] = {}

    def get(self, namespace: str) -> Configuration | None:
        """Return the last decision; None while there is none."""
        with self._lock:
            return self._configurations.get(namespace)

    def put(self, namespace: str, configuration: Configuration) -> None:
        """Keep a decision and wake who waits for it; one on a namespace without sidecars is dropped."""
        with self._lock:
            waiting = list(self._waiting.get(namespace, ()))
            if waiting:
                self._configurations[namespace] = configuration
        for wake in waiting:
            wake()

    def has_sidecars(self, namespace: str) -> bool:
        """Return whether somebody waits for changes of a namespace."""
        with self._lock:
            return namespace in self._waiting

    def awaited(self) -> list[str]:
        """Return what somebody waits for changes of."""
        with self._lock:
            return list(self._waiting)

    def wait_for(self, namespace: str, wake: Callable[[], None]) -> None:
        """Call ``wake``, from any thread, at each change from now on."""
        with self._lock:
            first = namespace not in self._waiting
            self._waiting.setdefault(namespace, []).append(wake)
        if first:
            self._asked(namespace)

    def leave(self, namespace: str, wake: Callable[[], None]) -> None:
        """End what ``wait_for`` began; the last one takes the decision with it."""
        with self._lock:
            waiting = self._waiting.get(namespace, [])
            waiting.remove(wake)
            if not waiting:
                del self._waiting[namespace]
                self._configurations.pop(namespace, None)
