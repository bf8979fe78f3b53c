"""Virtual nodes get a NoSchedule taint for each condition that says so, as Kubernetes gives them to every node.

Machines need none: the scheduler looks at whether a node is ready or cordoned (``NodeReady``, ``NodeUnschedulable``),
and the reconciler, which measures pressures, also sets their taints. A virtual node's conditions are its provider's,
and nobody else turns them into taints. Source: kubernetes ``pkg/controller/nodelifecycle``
(``doNoScheduleTaintingPass``).
"""

from __future__ import annotations

from collections.abc import Iterable

from minik8s_modules.api import objects
from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.kinds import NODE
from minik8s_modules.api.nodes.virtual_nodes import is_virtual
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.runtime.controller import Context, Loop, Looping

_PREFIX = "node.kubernetes.io/"
_TAINTS = {
    ("Ready", "False"): "not-ready",
    ("Ready", "Unknown"): "unreachable",
    ("MemoryPressure", "True"): "memory-pressure",
    ("DiskPressure", "True"): "disk-pressure",
    ("PIDPressure", "True"): "pid-pressure",
    ("NetworkUnavailable", "True"): "network-unavailable",
}
_CORDONED = "unschedulable"
_OURS = frozenset(f"{_PREFIX}{name}" for name in (*_TAINTS.values(), _CORDONED))


def decide_condition_taints(node: JsonObject) -> list[JsonObject] | None:
    """Return the taints that ``node`` is to have, None where they are right already."""
    if not is_virtual(node):
        return None
    told = [(str(each.get("type")), str(each.get("status"))) for each in objects.status(node).get("conditions") or []]
    names = [_TAINTS[each] for each in told if each in _TAINTS]
    names += [_CORDONED] if objects.spec(node).get("unschedulable") else []
    wanted = [{"key": f"{_PREFIX}{name}", "effect": "NoSchedule"} for name in names]
    present = objects.spec(node).get("taints") or []
    if {each["key"] for each in wanted} == {each.get("key") for each in present if _is_ours(each)}:
        return None
    return [*(each for each in present if not _is_ours(each)), *wanted]


def _is_ours(taint: JsonObject) -> bool:
    return taint.get("key") in _OURS and taint.get("effect") == "NoSchedule"


class ConditionTaintController(Looping):
    """Keeps these taints."""

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._loop = Loop(context, "condition-taints", self.sync, workers=1)
        self._nodes = self._loop.watch(NODE, _if_it_matters)

    def sync(self, key: Key) -> None:
        """Look at one node.

        Raises:
            StatusError: the API refused; Conflict where the node has changed meanwhile.
            TemporaryError: it did not answer.
        """
        node = self._nodes.get("", key.name)
        taints = decide_condition_taints(node) if node is not None else None
        if node is None or taints is None:
            return
        seen = {"uid": objects.uid(node), "resourceVersion": objects.resource_version(node)}
        try:
            self._client.patch(NODE, key.name, "", {"metadata": seen, "spec": {"taints": taints or None}})
        except NotFound:
            return


def _if_it_matters(_old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
    return [objects.key(new)] if new is not None and decide_condition_taints(new) is not None else []
