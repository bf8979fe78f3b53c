"""NodeController: registers virtual nodes, pings their providers, renews their Leases and tells their statuses.

One for all nodes of a process: three queues whose keys are names of nodes, which come back by themselves.

    ``pings``     every 10 s, one at a time a node    a provider that does not answer silences its node
    ``leases``    every 10 s (a quarter of 40 s)      ``kube-node-lease/NAME``, owned by the Node
    ``statuses``  every minute, and when told         a heartbeat in every condition; others' conditions stay

A node whose provider does not answer is neither renewed nor told: the control plane sees that it is silent, and does
what it does with any such node. A Node that somebody has deleted is registered again with its next status.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.errors import AlreadyExists, Conflict, NotFound
from minik8s_modules.api.kinds import LEASE, NODE
from minik8s_modules.api.nodes.virtual_nodes import CARRIED_BY
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import Clock, rfc3339, rfc3339_micro
from minik8s_modules.client.interface import Api
from minik8s_modules.runtime.queue import WorkQueue
from minik8s_modules.runtime.queue_metrics import QueueMetrics
from minik8s_modules.runtime.workers import Workers
from minik8s_modules.virtual.figures import Figures
from minik8s_modules.virtual.nodes.declared import with_heartbeat
from minik8s_modules.virtual.nodes.patching import node_patch
from minik8s_modules.virtual.provider import NodeProvider, Provider

log = logging.getLogger(__name__)

LEASE_NAMESPACE = "kube-node-lease"
PING_S = 10.0
STATUS_S = 60.0
LEASE_S = 40
_RENEWED_AT = 0.25
WORKERS = 4


class Timing(NamedTuple):
    """How often; ``lease_s`` is the Lease's duration, renewed four times in it."""

    ping_s: float = PING_S
    status_s: float = STATUS_S
    lease_s: int = LEASE_S


_USUAL = Timing()


class Carried(NamedTuple):
    """A node and who runs its Pods."""

    node: JsonObject
    provider: Provider


class NodeController:
    """See the top of this file.

    Args:
        client: of the API.
        carried: by name.
        clock: of periods and heartbeats.
        workers: threads of each queue; providers that hang hold up at most so many pings.
    """

    def __init__(
        self,
        client: Api,
        carried: Mapping[str, Carried],
        clock: Clock,
        figures: Figures,
        metrics: QueueMetrics,
        timing: Timing = _USUAL,
        workers: int = WORKERS,
    ) -> None:
        self._client, self._clock, self._figures, self._timing = client, clock, figures, timing
        self._lock = threading.Lock()
        self._nodes = {name: each.node for name, each in carried.items()}
        self._providers = {name: each.provider for name, each in carried.items()}
        self._answers: dict[str, float] = {}
        """When a node's provider last answered, by the monotonic clock; a node that is not there is silent."""
        self._uids: dict[str, str] = {}
        self._leases: dict[str, JsonObject] = {}
        self._queues: dict[str, WorkQueue[str]] = {}
        self._workers: list[Workers[str]] = []
        for name, act, period_s in (
            ("pings", self.ping, timing.ping_s),
            ("leases", self.renew, timing.lease_s * _RENEWED_AT),
            ("node-statuses", self.tell, timing.status_s),
        ):
            queue: WorkQueue[str] = WorkQueue(clock, counts=metrics.queue(name))
            self._queues[name] = queue
            self._workers.append(Workers(queue, self._repeating(queue, act, period_s), name, workers))
        figures.gauge_nodes(self._counted)

    def start(self) -> None:
        """Begin with a ping of every node; what answers is registered. Returns at once."""
        for node, provider in self._providers.items():
            if isinstance(provider, NodeProvider):
                provider.notify_node_status(self._notifier(node))
            self._queues["pings"].add(node)
        for workers in self._workers:
            workers.start()

    def stop(self) -> None:
        """End; the Nodes stay, and are seen to be silent in time."""
        for workers in self._workers:
            workers.stop()

    def is_answering(self, node: str) -> bool:
        """Return whether the node's provider answered its last ping, and not too long ago."""
        with self._lock:
            at = self._answers.get(node)
        # a ping that hangs is one that is not answered: what was heard before counts for the Lease's time
        return at is not None and self._clock.monotonic() - at <= max(self._timing.lease_s, 2 * self._timing.ping_s)

    # ------------------------------------------------------------------ the three

    def ping(self, name: str) -> None:
        """Ask the node's provider whether it lives; never raises."""
        provider = self._providers[name]
        try:
            if isinstance(provider, NodeProvider):
                with self._figures.call("ping"):
                    provider.ping()
        except Exception as error:  # noqa: BLE001 - whatever it is, the node is silent
            with self._lock:
                heard = self._answers.pop(name, None)
            if heard is not None:
                log.warning("node %s: its provider does not answer, and the node stops reporting: %s", name, error)
            return
        with self._lock:
            new = name not in self._answers
            self._answers[name] = self._clock.monotonic()
        if new:
            log.info("node %s: its provider answers", name)
            self._queues["node-statuses"].add(name)

    def tell(self, name: str) -> None:
        """Register the node, or tell its status; raises as the API does."""
        if not self.is_answering(name):
            return
        now = rfc3339(self._clock.now())
        with self._lock:
            node = self._nodes[name]
        try:
            current = self._client.get(NODE, name)
        except NotFound:
            current = self._register(with_heartbeat(node, None, now))
        patch = node_patch(with_heartbeat(node, current, now), current)
        if patch.meta:
            self._client.patch(NODE, name, "", patch.meta, patch_type="strategic")
        if patch.status:
            body = {"status": patch.status}
            self._client.patch(NODE, name, "", body, patch_type="strategic", subresource="status")
        with self._lock:
            new = self._uids.get(name) != objects.uid(current)
            self._uids[name] = objects.uid(current)
        if new:
            self._queues["leases"].add(name)

    def _register(self, node: JsonObject) -> JsonObject:
        try:
            # whose it is only a server can say; it is asked to
            noted = {**objects.annotations(node), CARRIED_BY: ""}
            made = self._client.create(NODE, {**node, "metadata": {**objects.metadata(node), "annotations": noted}})
        except AlreadyExists:
            return self._client.get(NODE, objects.name(node))
        log.info("node %s is registered", objects.name(node))
        return made

    def renew(self, name: str) -> None:
        """Renew the node's Lease; raises as the API does."""
        with self._lock:
            uid, lease = self._uids.get(name), self._leases.get(name)
        if not uid or not self.is_answering(name):
            return
        wanted = self._lease(name, uid, lease)
        try:
            written = self._client.update(LEASE, wanted) if lease is not None else self._client.create(LEASE, wanted)
        except (AlreadyExists, Conflict):
            written = self._client.update(LEASE, self._lease(name, uid, self._client.get(LEASE, name, LEASE_NAMESPACE)))
        except NotFound:
            if lease is None:
                raise
            written = self._client.create(LEASE, self._lease(name, uid, None))
        with self._lock:
            self._leases[name] = written

    def _lease(self, name: str, uid: str, before: JsonObject | None) -> JsonObject:
        owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}
        meta = objects.metadata(before or {})
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {**meta, "name": name, "namespace": LEASE_NAMESPACE, "ownerReferences": [owner]},
            "spec": {
                "holderIdentity": name,
                "leaseDurationSeconds": self._timing.lease_s,
                "renewTime": rfc3339_micro(self._clock.now()),
            },
        }

    # ------------------------------------------------------------------ parts

    def _notifier(self, name: str) -> Callable[[JsonObject], None]:
        def notify(node: JsonObject) -> None:
            with self._lock:
                known = self._nodes[name]
                meta = {
                    **known["metadata"],
                    "labels": dict(objects.labels(node)),
                    "annotations": dict(objects.annotations(node)),
                }
                self._nodes[name] = {**known, "metadata": meta, "status": dict(objects.status(node))}
            self._queues["node-statuses"].add(name)

        return notify

    @staticmethod
    def _repeating(queue: WorkQueue[str], act: Callable[[str], None], period_s: float) -> Callable[[str], None]:
        def repeat(name: str) -> None:
            act(name)
            queue.add_after(name, period_s)

        return repeat

    def _counted(self) -> dict[tuple[str, ...], float]:
        answering = sum(self.is_answering(name) for name in self._providers)
        return {("true",): answering, ("false",): len(self._providers) - answering}
