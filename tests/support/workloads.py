"""Builds objects from the short form of case files, and replays a decision cut off after every step (STYLE 12)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import POD, Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import rfc3339
from minik8s_modules.controllers.core.steps import (
    Adopt,
    Again,
    Create,
    Delete,
    Patch,
    RecordEvent,
    Release,
    Step,
    WriteStatus,
    controller_reference,
)
from minik8s_modules.controllers.simulation.simulated_cluster import Decider, World, run_deciders

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
SPACE = "shop"


def ago(seconds: float) -> str:
    """Return the time so many seconds before now."""
    return rfc3339(NOW - timedelta(seconds=seconds))


def template(app: str = "web", image: str = "web:1", **meta: Any) -> JsonObject:
    """Return a pod template."""
    labels = meta.pop("labels", {"app": app})
    return {"metadata": {"labels": labels, **meta}, "spec": {"containers": [{"name": "app", "image": image}]}}


def workload(kind: Kind, fields: JsonObject, name: str = "web") -> JsonObject:
    """Return a workload: ``annotations``, ``status``, ``deleting``, ``image``, ``generation``; the rest is its spec."""
    fields = dict(fields)
    meta = {
        "name": name,
        "namespace": SPACE,
        "uid": f"uid-{name}",
        "creationTimestamp": ago(fields.pop("age", 1000)),
        "generation": fields.pop("generation", 1),
        "annotations": fields.pop("annotations", {}),
    }
    if fields.pop("deleting", False):
        meta["deletionTimestamp"] = ago(1)
    status = fields.pop("status", {})
    made = template(image=fields.pop("image", "web:1"), **fields.pop("template", {}))
    spec = {"selector": {"matchLabels": {"app": "web"}}, "template": made, **fields}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, "spec": spec, "status": status}


def pod(fields: JsonObject, owner_kind: Kind, owner: JsonObject) -> JsonObject:
    """Return a pod: ``name, node, phase, ready`` (seconds ago), ``age, cost, restarts, owner, labels, deleting``."""
    name = fields["name"]
    meta: JsonObject = {
        "name": name,
        "namespace": SPACE,
        "uid": fields.get("uid", f"uid-{name}"),
        "labels": fields.get("labels", {"app": "web"}),
        "creationTimestamp": ago(fields.get("age", 100)),
    }
    if "cost" in fields:
        meta["annotations"] = {"controller.kubernetes.io/pod-deletion-cost": str(fields["cost"])}
    if fields.get("deleting"):
        meta["deletionTimestamp"] = ago(1)
    if fields.get("owner", "self") == "self":
        meta["ownerReferences"] = [controller_reference(owner_kind, owner)]
    elif fields["owner"] != "none":
        other = {"metadata": {"name": fields["owner"], "uid": f"uid-{fields['owner']}"}}
        meta["ownerReferences"] = [controller_reference(owner_kind, other)]
    status: JsonObject = {"phase": fields.get("phase", "Running")}
    if "ready" in fields:
        status["conditions"] = [{"type": "Ready", "status": "True", "lastTransitionTime": ago(fields["ready"])}]
    if "restarts" in fields:
        status["containerStatuses"] = [{"name": "app", "restartCount": fields["restarts"]}]
    spec = {"nodeName": fields.get("node", "n1")} if fields.get("node", "n1") else {}
    return {"apiVersion": "v1", "kind": POD.kind, "metadata": meta, "spec": spec, "status": status}


def words(step: Step) -> str:  # noqa: PLR0911 - one line a step
    """Return a step as case files name it."""
    match step:
        case Create(_, obj):
            return f"create {obj['metadata'].get('name') or obj['metadata']['generateName']}"
        case Delete(_, obj):
            return f"delete {objects.name(obj)}"
        case Adopt(_, obj):
            return f"adopt {objects.name(obj)}"
        case Release(_, obj):
            return f"release {objects.name(obj)}"
        case Patch(_, obj, body):
            replicas = body.get("spec", {}).get("replicas")
            return f"patch {objects.name(obj)}" if replicas is None else f"scale {objects.name(obj)} to {replicas}"
        case WriteStatus():
            return "status"
        case RecordEvent(_, _, reason, message):
            return f"tell {reason}: {message}"
        case Again(after_s):
            return f"again in {after_s:g}"


def cut_off(
    everything: Callable[[], Iterable[JsonObject]], kind: Kind, owner: objects.Key, decide: Decider
) -> Sequence[World]:
    """Return the worlds that decisions lead to when the first is cut off after 0, 1, 2, … steps, then repeated.

    Nothing lives in them: no pod becomes ready, no other controller runs.
    """
    count = len(_steps(World(everything(), NOW), kind, owner, decide))
    worlds = []
    for cut in range(count + 1):
        world = World(everything(), NOW)
        about = world.get(kind, owner)
        assert about is not None
        for step in _steps(world, kind, owner, decide)[:cut]:
            world.take(kind, about, step)
        assert run_deciders(world, [(kind, decide)], lambda _world: False), "it never ends"
        worlds.append(world)
    return worlds


def _steps(world: World, kind: Kind, owner: objects.Key, decide: Decider) -> list[Step]:
    about = world.get(kind, owner)
    assert about is not None
    return list(decide(world, about))
