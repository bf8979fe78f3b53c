"""Nodes that are not ready get a taint that pods may tolerate for a while; ``taint_eviction.py`` acts on it.

Ready False is ``node.kubernetes.io/not-ready``, Unknown ``node.kubernetes.io/unreachable``, both NoExecute; a ready
node has neither. One node is tainted every ten seconds at most. Where no node at all is ready the fault is probably
ours: then no node has the taints, and nothing is evicted. Where more than half of a zone is not ready, no further node
of it gets them. Virtual nodes do not count where it is about machines. Source: kubernetes
``pkg/controller/nodelifecycle`` (``doNoExecuteTaintingPass``, ``handleDisruption``).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from datetime import datetime

from minik8s_modules.api import objects
from minik8s_modules.api.errors import Conflict, NotFound
from minik8s_modules.api.kinds import NODE
from minik8s_modules.api.nodes.virtual_nodes import is_virtual
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.base.clock import rfc3339
from minik8s_modules.controllers.core.steps import Again, Patch, RecordEvent, Step
from minik8s_modules.runtime.controller import Context, Loop, Looping

NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
NO_EXECUTE = "NoExecute"
# --node-eviction-rate 0.1, --unhealthy-zone-threshold 0.55, and what kube-controller-manager has for small clusters
PAUSE_S = 10.0
_UNHEALTHY_SHARE = 0.55
_UNHEALTHY_LEAST = 3
_ZONE = ("topology.kubernetes.io/region", "topology.kubernetes.io/zone")
# seconds: many changes have all nodes looked at for a tenth of the time, and none waits for longer than a second
_REST, _LEAST_REST_S, _MOST_REST_S = 10.0, 0.01, 1.0
_BY_STATUS = {"True": "", "False": NOT_READY, "Unknown": UNREACHABLE}


def decide_taints(nodes: Sequence[JsonObject], last_taint_s: float | None, now: datetime) -> list[Step]:
    """Return the steps that put the taints right.

    Args:
        nodes: all of them; one that says nothing of Ready is left alone.
        last_taint_s: how long ago a node was last tainted, in seconds; None when that is not known to have happened.
        now: becomes timeAdded.
    """
    known = [node for node in nodes if _wanted(node) is not None]
    machines = [node for node in known if not is_virtual(node)]
    none_ready = {True: _are_all_silent(known), False: _are_all_silent(machines)}  # by whether a node is virtual
    steps: list[Step] = []
    late: list[tuple[JsonObject, str]] = []
    for node in known:
        wanted, present = "" if none_ready[is_virtual(node)] else _wanted(node) or "", _present(node)
        if present == ({wanted} if wanted else set()):
            continue
        if wanted and not present:
            late.append((node, wanted))
        else:
            steps.append(_patch(node, wanted, now))
    if not late:
        return steps
    return [*steps, *_next(late, _halted_zones(known), last_taint_s, now)]


def _are_all_silent(nodes: Sequence[JsonObject]) -> bool:
    return bool(nodes) and all(_wanted(node) for node in nodes)


def _next(
    late: Sequence[tuple[JsonObject, str]], halted: set[tuple[str, ...]], last_taint_s: float | None, now: datetime
) -> list[Step]:
    """Return the taint of the first node that has to get one, if it is time, and when the next is due."""
    free = [(node, wanted) for node, wanted in late if _zone(node) not in halted]
    if not free:
        return []
    if last_taint_s is not None and last_taint_s < PAUSE_S:
        return [Again(PAUSE_S - last_taint_s)]
    node, wanted = min(free, key=lambda each: (_since(each[0]), objects.name(each[0])))
    text = f"Node {objects.name(node)} is tainted {wanted}:{NO_EXECUTE}; pods that do not tolerate it are evicted"
    steps: list[Step] = [_patch(node, wanted, now), RecordEvent(node, "Normal", "NodeTainted", text)]
    return steps if len(free) == 1 else [*steps, Again(PAUSE_S)]


def _wanted(node: JsonObject) -> str | None:
    """Return the key of the taint that the node's Ready asks for, "" for none; None where it says nothing."""
    return _BY_STATUS.get(str((objects.condition(node, "Ready") or {}).get("status")))


def _read(node: JsonObject) -> None:
    """Read what is decided by."""
    _wanted(node)
    _present(node)


def _since(node: JsonObject) -> str:
    return str((objects.condition(node, "Ready") or {}).get("lastTransitionTime") or "")


def _is_ours(taint: JsonObject) -> bool:
    return taint.get("key") in {NOT_READY, UNREACHABLE} and taint.get("effect") == NO_EXECUTE


def _present(node: JsonObject) -> set[str]:
    return {str(taint["key"]) for taint in objects.spec(node).get("taints") or [] if _is_ours(taint)}


def _patch(node: JsonObject, wanted: str, now: datetime) -> Patch:
    """Return the node's taints with ``wanted`` alone of ours; one that only changes its key keeps its time."""
    taints = objects.spec(node).get("taints") or []
    others = [taint for taint in taints if not _is_ours(taint)]
    times = [str(taint["timeAdded"]) for taint in taints if _is_ours(taint) and taint.get("timeAdded")]
    if wanted:
        others.append({"key": wanted, "effect": NO_EXECUTE, "timeAdded": min(times, default=rfc3339(now))})
    return Patch(NODE, node, {"spec": {"taints": others or None}})


def _zone(node: JsonObject) -> tuple[str, ...]:
    """Return the zone in which a node counts: virtual ones are in one of their own."""
    return (*(objects.labels(node).get(label, "") for label in _ZONE), "virtual" if is_virtual(node) else "")


def _halted_zones(nodes: Iterable[JsonObject]) -> set[tuple[str, ...]]:
    zones: dict[tuple[str, ...], list[bool]] = {}
    for node in nodes:
        zones.setdefault(_zone(node), []).append(bool(_wanted(node)))
    return {
        zone
        for zone, unready in zones.items()
        if sum(unready) >= _UNHEALTHY_LEAST and _UNHEALTHY_SHARE <= sum(unready) / len(unready) < 1
    }


_ALL = Key("", "all")


class TaintController(Looping):
    """Keeps the taints of all nodes."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._lock = threading.Lock()
        self._tainted_at_s: float | None = None
        self._rests_until_s = 0.0
        self._loop = Loop(context, "taints", self.sync, workers=1)
        self._nodes = self._loop.watch(NODE, _if_it_matters)

    def sync(self, key: Key) -> None:
        """Look at all nodes, or later where that took long a moment ago.

        Raises:
            StatusError: the API refused; Conflict where a node has changed meanwhile.
            TemporaryError: it did not answer.
        """
        clock = self._context.clock
        began_s = clock.monotonic()
        if began_s < self._rests_until_s:
            self._loop.add_after(key, self._rests_until_s - began_s)
            return
        with self._lock:
            ago_s = None if self._tainted_at_s is None else began_s - self._tainted_at_s
        steps = objects.decided(self._nodes.list(), lambda some: decide_taints(some, ago_s, clock.now()), _read)
        ended_s = clock.monotonic()
        rest_s = min(_REST * (ended_s - began_s), _MOST_REST_S)
        self._rests_until_s = ended_s + rest_s if rest_s >= _LEAST_REST_S else 0.0
        for step in steps:
            match step:
                case Patch(_, node, body):
                    self._patch(node, body)
                case RecordEvent(node, event_type, reason, message):
                    with self._lock:
                        self._tainted_at_s = clock.monotonic()
                    self._context.recorder.event(node, event_type, reason, message, component="node-controller")
                case Again(after_s):
                    self._loop.add_after(key, after_s)

    def _patch(self, node: JsonObject, body: JsonObject) -> None:
        seen = {"uid": objects.uid(node), "resourceVersion": objects.resource_version(node)}
        try:
            self._context.client.patch(NODE, objects.name(node), "", {**body, "metadata": seen})
        except NotFound:
            return
        except Conflict:
            # its change is on its way to the copy, and brings the key back; the other nodes do not wait for it
            self._loop.add_after(_ALL, 1.0)


def _if_it_matters(old: JsonObject | None, new: JsonObject | None) -> Iterable[Key]:
    def state(node: JsonObject | None) -> object:
        return None if node is None else (_wanted(node), sorted(_present(node)))

    return [_ALL] if state(old) != state(new) else []
