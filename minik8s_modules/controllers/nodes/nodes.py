"""A node whose Lease is not renewed any more becomes Unknown.

Registering nodes, and Ready as the gateway sees it, are the reconciler's; this controller writes only Unknown, and only
while the Lease is stale: also then nobody says otherwise. Staleness is measured on our own clock from when a
renewal was *seen*, as Kubernetes does (pkg/controller/nodelifecycle): clocks of other machines do not matter, and a
controller that has just begun judges nobody for 40 s. A virtual node that tells its status is heard of by that, too, as
in Kubernetes: one that comes back does so before its Lease, and would be Unknown again until its next status.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Any, NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.errors import Conflict, NotFound
from minik8s_modules.api.kinds import LEASE, NODE
from minik8s_modules.api.nodes.virtual_nodes import is_virtual
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.base.clock import Clock, rfc3339
from minik8s_modules.client.interface import Api
from minik8s_modules.runtime.events import EventRecorder
from minik8s_modules.runtime.shell import Shell

log = logging.getLogger(__name__)

LEASE_NAMESPACE = "kube-node-lease"
STALE_AFTER_S = 40.0
STALE_AT_MOST_S = 600.0
# the conditions a kubelet reports; Ready is made Unknown also where it was never written
_REPORTED = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")


class NodeVerdict(NamedTuple):
    """The conditions to write, none when there is nothing to say, and when to look again."""

    conditions: tuple[JsonObject, ...]
    look_again_s: float


def stale_after_s(node: JsonObject, lease: JsonObject | None) -> float:
    """Return after how long without a renewal a node is Unknown: a virtual one may ask for more than 40 s by its Lease.

    Thousands of nodes in one process renew every minute or so; a machine is always judged after 40 s, as in Kubernetes.
    """
    asked = objects.spec(lease or {}).get("leaseDurationSeconds")
    return min(max(STALE_AFTER_S, float(asked or 0)), STALE_AT_MOST_S) if is_virtual(node) else STALE_AFTER_S


def decide_node_health(node: JsonObject, unrenewed_s: float, now: str, stale_s: float = STALE_AFTER_S) -> NodeVerdict:
    """Return what to write about ``node`` whose Lease was last seen to change ``unrenewed_s`` seconds ago."""
    if unrenewed_s < stale_s:
        return NodeVerdict((), stale_s - unrenewed_s)
    conditions = []
    for kind in _REPORTED:
        known = objects.condition(node, kind)
        if known is None and kind != "Ready":
            continue
        if known is None or known.get("status") != "Unknown":
            conditions.append(_unknown(kind, known, now))
    return NodeVerdict(tuple(conditions), STALE_AFTER_S)


def _unknown(kind: str, known: Mapping[str, Any] | None, now: str) -> JsonObject:
    never = known is None
    return {
        **(known or {}),
        "type": kind,
        "status": "Unknown",
        "reason": "NodeStatusNeverUpdated" if never else "NodeStatusUnknown",
        "message": "The node's status was never posted." if never else "The node's lease is no longer renewed.",
        "lastTransitionTime": now,
    }


class NodeController(Shell[Key]):
    """Watches Leases and makes nodes Unknown."""

    def __init__(self, client: Api, recorder: EventRecorder, clock: Clock | None = None) -> None:
        self._client = client
        self._recorder = recorder
        super().__init__(client, "nodes", clock)
        self._lock = threading.Lock()
        self._renewed_at: dict[str, float] = {}
        self._nodes = self.follow(NODE, self._on_node)
        self._leases = self.follow(LEASE, self._on_lease, LEASE_NAMESPACE)

    def sync(self, key: Key) -> None:
        """Judge one node.

        Raises:
            StatusError: the API refused, or the node has changed meanwhile; it is judged again.
        """
        node = self._nodes.get("", key.name)
        if node is None:
            return
        with self._lock:
            seen = self._renewed_at.setdefault(key.name, self._clock.monotonic())
        # while the API was away no renewal could be seen, nor made: that time is held against nobody
        unrenewed_s = min(self._clock.monotonic() - seen, self._leases.healthy_for_s())
        stale_s = stale_after_s(node, self._leases.get(LEASE_NAMESPACE, key.name))
        verdict = decide_node_health(node, unrenewed_s, rfc3339(self._clock.now()), stale_s)
        self._queue.add_after(key, verdict.look_again_s)
        if verdict.conditions:
            self._write(key.name, node, verdict.conditions)

    def _write(self, name: str, node: JsonObject, conditions: tuple[JsonObject, ...]) -> None:
        # with the revision judged: a Ready written meanwhile is newer than the verdict
        metadata = {"resourceVersion": objects.resource_version(node)}
        body = {"metadata": metadata, "status": {"conditions": [*conditions]}}
        try:
            self._client.patch(NODE, name, "", body, patch_type="strategic", subresource="status")
        except NotFound:
            return
        except Conflict:
            self._queue.add(Key("", name))
            return
        log.warning("node %s is Unknown: its lease is not renewed", name)
        self._recorder.event(node, "Normal", "NodeNotReady", f"Node {name} status is now: NodeNotReady")

    def _on_node(self, old: JsonObject | None, new: JsonObject | None) -> None:
        if new is None:
            return
        if is_virtual(new) and _heartbeat(new) not in {"", _heartbeat(old or {})}:
            self._heard_of(objects.name(new))
        self._queue.add(objects.key(new))

    def _on_lease(self, old: JsonObject | None, new: JsonObject | None) -> None:
        if new is None:
            return
        renewed = objects.spec(new).get("renewTime")
        if old is None or objects.spec(old).get("renewTime") != renewed:
            self._heard_of(objects.name(new))

    def _heard_of(self, name: str) -> None:
        with self._lock:
            self._renewed_at[name] = self._clock.monotonic()


def _heartbeat(node: JsonObject) -> str:
    """Return when the node last told that it is ready, "" where it does not say so."""
    ready = objects.condition(node, "Ready") or {}
    return str(ready.get("lastHeartbeatTime") or "") if ready.get("status") == "True" else ""
