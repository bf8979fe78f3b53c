"""Nodes get a NoSchedule taint for each condition that says so, and for being cordoned.

Whoever schedules by taints reads there what the scheduler here also reads for itself (``NodeReady``,
``NodeUnschedulable``). A machine's taints of pressure are the reconciler's, which measures it and sets them with the
condition (reconcile/housekeeping/pressure.py); of a virtual node, whose conditions are its provider's, all are set
here.
Source: kubernetes ``pkg/controller/nodelifecycle`` (``doNoScheduleTaintingPass``).
"""

from __future__ import annotations

from collections.abc import Iterable

from minik8s_modules.api import objects
from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.kinds import NODE
from minik8s_modules.api.nodes.virtual_nodes import is_virtual
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.runtime.controller import Context, Loop, Looping

_PREFIX, _EFFECT = "node.kubernetes.io/", "NoSchedule"
_TAINTS = {
    ("Ready", "False"): "not-ready",
    ("Ready", "Unknown"): "unreachable",
    ("MemoryPressure", "True"): "memory-pressure",
    ("DiskPressure", "True"): "disk-pressure",
    ("PIDPressure", "True"): "pid-pressure",
    ("NetworkUnavailable", "True"): "network-unavailable",
}
_CORDONED = "unschedulable"
_MEASURED = frozenset({"memory-pressure", "disk-pressure", "pid-pressure"})
_OF_MACHINES = frozenset({*_TAINTS.values(), _CORDONED}) - _MEASURED


def decide_condition_taints(node: JsonObject) -> list[JsonObject] | None:
    """Return the taints that ``node`` is to have, None where they are right already."""
    ours = _OF_MACHINES | _MEASURED if is_virtual(node) else _OF_MACHINES
    conditions = [
        (str(each.get("type")), str(each.get("status"))) for each in objects.status(node).get("conditions") or []
    ]
    names = {_TAINTS[each] for each in conditions if each in _TAINTS} | ({_CORDONED} if _is_cordoned(node) else set())
    wanted = [{"key": f"{_PREFIX}{name}", "effect": _EFFECT} for name in sorted(names & ours)]
    present = objects.spec(node).get("taints") or []
    others = [each for each in present if each.get("effect") != _EFFECT or _name(each) not in ours]
    if {each["key"] for each in wanted} == {each["key"] for each in present if each not in others}:
        return None
    return [*others, *wanted]


def _is_cordoned(node: JsonObject) -> bool:
    return bool(objects.spec(node).get("unschedulable"))


def _name(taint: JsonObject) -> str:
    """Return the taint's name if it is one of Kubernetes' own of nodes, else nothing."""
    return str(taint.get("key") or "").removeprefix(_PREFIX) if str(taint.get("key")).startswith(_PREFIX) else ""


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
