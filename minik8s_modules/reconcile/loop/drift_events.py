"""Events about drift: one of each object that somebody changed on a node, and one of the Node for each section."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby, islice
from typing import Literal

from minik8s_modules.api import objects
from minik8s_modules.api.nodes.drift_policies import DRIFT, OF_PODS
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.base.clock import rfc3339
from minik8s_modules.module_utils.minik8s.names.ingress_entries import HEALTH
from minik8s_modules.reconcile.events.pod_events import Recorder
from minik8s_modules.reconcile.loop.drifts import SHARED, Difference

HEALED, FOUND = "DriftHealed", "DriftFound"
"""Reasons of Events: it was put right, it was not."""
_OBJECTS = 20
"""A node that lost everything has the first objects of a section told; the Node's own Event counts them all."""
_SHOWN = 5
Concerned = Callable[[str, str], Sequence[JsonObject]]
"""Returns the objects that a section and key are about; none of what is the node's own."""


class DriftEvents:
    """Tells what a pass found; one caller at a time.

    Args:
        recorder: of Events.
        concerned: see ``Concerned``.
        node: the Node of a name.
    """

    def __init__(self, recorder: Recorder, concerned: Concerned, node: Callable[[str], JsonObject | None]) -> None:
        self._recorder = recorder
        self._concerned = concerned
        self._node = node

    def tell(self, node: str, found: Iterable[Difference]) -> None:
        """Record what differed on ``node``; the differences of a section stand together."""
        for (section, healed, _), each in groupby(found, lambda one: (one.section, one.healed, one.held)):
            differences = list(each)
            obj = self._node(node)
            if obj is not None:
                self._record(obj, f"{section}: {_summary(section, differences, healed=healed)}", healed=healed)
            self._tell_objects(node, differences)

    def _tell_objects(self, node: str, differences: Iterable[Difference]) -> None:
        owners: dict[str, tuple[JsonObject, list[Difference]]] = {}
        for one in differences:
            for obj in self._concerned(one.section, one.key):
                owners.setdefault(objects.uid(obj), (obj, []))[1].append(one)
        for obj, concerning in islice(owners.values(), _OBJECTS):
            section, healed = concerning[0].section, concerning[0].healed
            text = f"node {node}: {section}: {_summary(section, concerning, healed=healed)}"
            self._record(obj, text, healed=healed)

    def _record(self, obj: JsonObject, message: str, *, healed: bool) -> None:
        kind: Literal["Normal", "Warning"] = "Normal" if healed else "Warning"
        self._recorder.event(obj, kind, HEALED if healed else FOUND, message)


def _summary(section: str, differences: Sequence[Difference], *, healed: bool) -> str:
    """Say what was not as declared, since when, and what became of it."""
    shown = "; ".join(f"{one.key}: {one.what}" for one in differences[:_SHOWN])
    more = f" and {len(differences) - _SHOWN} more" if len(differences) > _SHOWN else ""
    since = differences[0].since
    when = f"changed after {rfc3339(since)}" if since is not None else "changed at an unknown time"
    left = f"left so by {DRIFT}: report" if differences[0].held else "not put right"
    done = f"put right by minik8s_{section}" if healed else left
    return f"{when} by somebody else, {done}: {shown}{more}"


def concerned(
    section: str,
    key: str,
    pod: Callable[[str], JsonObject | None],
    service: Callable[[Key], JsonObject | None],
    host: Callable[[str], list[JsonObject]],
) -> list[JsonObject]:
    """Return the objects that a section's key is about, found by the pod's UID, the Service's key or the host."""
    if section in OF_PODS:
        found = pod(key.partition("/")[0])
        return [found] if found is not None else []
    if key in SHARED.get(section, ()) or section not in {"services", "dns", "ingress"}:
        return []
    kind, _, name = key.partition("/")
    if section == "services":
        kind, name = "service", key.rpartition(":")[0]
    elif section == "ingress":
        health = key.startswith(HEALTH)
        kind, name = ("service", key[len(HEALTH) :]) if health else ("host", key)
    if kind == "service":
        one = service(Key(*name.split("/", 1))) if "/" in name else None
        return [one] if one is not None else []
    return [*host(name)] if kind == "host" else []
