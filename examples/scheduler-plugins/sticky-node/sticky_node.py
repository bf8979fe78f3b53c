"""A pod runs where its owners' pods ran before: PreFilter reads the node, Filter keeps to it, PostBind writes it.

The chain of owners is followed to its end, whatever their kinds (a ReplicaSet's Deployment, a VirtualMachineInstance's
VirtualMachine): the outermost owner has the node.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.errors import Conflict, StatusError
from minik8s_modules.api.kind import Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.client.discovery import kind_at
from minik8s_modules.scheduler.framework.infos import NodeInfo, PodInfo
from minik8s_modules.scheduler.framework.points import CycleState, Event, Handle, Wake
from minik8s_modules.scheduler.framework.snapshot import Snapshot
from minik8s_modules.scheduler.framework.statuses import SKIP, Status, error, unschedulable

ANNOTATION = "sticky.minik8s.io/node"
_TRIES = 5
_DEPTH = 8


class Owner(NamedTuple):
    """The outermost owner of a pod, as it was read."""

    kind: Kind
    object: JsonObject

    @property
    def node(self) -> str:
        """Where its pods run; "" where none has run yet."""
        return objects.annotations(self.object).get(ANNOTATION, "")


class StickyNode:
    """Keeps pods to the node of their owner."""

    name = "StickyNode"

    def __init__(self, _arguments: Mapping[str, Any], handle: Handle) -> None:
        self._handle = handle

    def pre_filter(
        self, state: CycleState, pod: PodInfo, _snapshot: Snapshot
    ) -> tuple[frozenset[str] | None, Status | None]:
        """Read the owner's node; a pod without an owner goes where it likes."""
        try:
            owner = self._owner(pod.pod)
        except (StatusError, TemporaryError) as failure:
            return None, error(f"its owner cannot be read: {failure}")
        if owner is None:
            return None, SKIP
        state[self.name] = owner
        return None, None

    def filter(self, state: CycleState, _pod: PodInfo, node: NodeInfo) -> Status | None:
        """Keep to the owner's node, if there is one."""
        home = state[self.name].node
        return (
            None if home in {"", node.name} else unschedulable(f"node(s) were not {home}, where its owner's pods run")
        )

    def post_bind(self, state: CycleState, _pod: PodInfo, node: str) -> None:
        """Write the node that was chosen first."""
        owner: Owner | None = state.get(self.name)
        for _ in range(_TRIES):
            if owner is None or owner.node:
                return
            version = objects.resource_version(owner.object)
            body = {"metadata": {"resourceVersion": version, "annotations": {ANNOTATION: node}}}
            name, space = objects.name(owner.object), objects.namespace(owner.object)
            try:
                self._handle.api.patch(owner.kind, name, space, body)
            except Conflict:
                owner = Owner(owner.kind, self._handle.api.get(owner.kind, name, space))
            else:
                return

    def wakes(self) -> tuple[Wake, ...]:
        """Return what may make the one node fit."""
        return Wake(Event("Node", "*")), Wake(Event("AssignedPod", "Delete"))

    def _owner(self, pod: JsonObject) -> Owner | None:
        found: Owner | None = None
        child, space = pod, objects.namespace(pod)
        for _ in range(_DEPTH):
            reference = objects.controller_of(child)
            if reference is None:
                break
            kind = self._kind(reference)
            if kind is None:
                break
            child = self._handle.api.get(kind, reference["name"], space if kind.namespaced else "")
            found = Owner(kind, child)
        return found

    def _kind(self, reference: JsonObject) -> Kind | None:
        return kind_at(self._handle.api, str(reference["apiVersion"]), str(reference["kind"]))
