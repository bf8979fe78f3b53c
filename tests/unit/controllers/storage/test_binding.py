"""Claims and volumes: each file of tests/cases/bind_claims, cut off after every step of whatever is decided."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import NODE, PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM, POD, STORAGE_CLASS, Kind
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.api.schema.structural import type_errors, unknown_fields
from minik8s_modules.api.storage import claims
from minik8s_modules.controllers.core.steps import Again, RecordEvent
from minik8s_modules.controllers.simulation.deciders import STORAGE_DECIDERS
from minik8s_modules.controllers.simulation.simulated_cluster import World
from tests.support.workloads import NOW, SPACE, ago

CASES = sorted((Path(__file__).parents[3] / "cases" / "bind_claims").glob("*.yml"))
EACH = pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)


def made(kind: Kind, fields: JsonObject) -> JsonObject:
    """Return an object: ``name``, ``deleting`` and other fields of metadata, ``phase``; the rest is its spec."""
    fields = dict(fields)
    meta = {"name": fields.pop("name"), **({"namespace": fields.pop("namespace", SPACE)} if kind.namespaced else {})}
    meta["uid"] = fields.pop("uid", f"uid-{meta['name']}")
    for field in ("annotations", "labels", "finalizers"):
        if field in fields:
            meta[field] = fields.pop(field)
    meta["creationTimestamp"] = ago(fields.pop("age", 100))
    if fields.pop("deleting", False):
        meta["deletionTimestamp"] = ago(1)
    of_status = ("phase", "reason", "addresses", *(("capacity",) if kind == PERSISTENT_VOLUME_CLAIM else ()))
    status = {field: fields.pop(field) for field in of_status if field in fields}
    whole = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta}
    return {**whole, **fields} if kind == STORAGE_CLASS else {**whole, "spec": fields, "status": status}


def volume(fields: JsonObject) -> JsonObject:
    fields = {
        "phase": "Available",
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Retain",
        **fields,
    }
    fields["capacity"] = {"storage": fields.pop("size", "1Gi")}
    if fields.pop("placed", True):
        fields["hostPath"] = {"path": "/data"}
    return made(PERSISTENT_VOLUME, fields)


def claim(fields: JsonObject) -> JsonObject:
    fields = {"phase": "Pending", "accessModes": ["ReadWriteOnce"], **fields}
    fields["resources"] = {"requests": {"storage": fields.pop("size", "1Gi")}}
    return made(PERSISTENT_VOLUME_CLAIM, fields)


class Case:
    """One file."""

    def __init__(self, path: Path) -> None:
        self.case = yaml.safe_load(path.read_text(encoding="utf-8"))

    def world(self) -> World:
        """Return a world to begin in."""
        there = [claim(each) for each in self.case.get("claims", [])]
        there += [volume(each) for each in self.case.get("volumes", [])]
        there += [made(STORAGE_CLASS, each) for each in self.case.get("classes", [])]
        there += [made(NODE, each) for each in self.case.get("nodes", [])]
        return World([*there, *(made(POD, each) for each in self.case.get("pods", []))], NOW)


DECIDERS = tuple(STORAGE_DECIDERS.items())


def run(world: World, limit: int = 1000) -> int:
    """Take steps until none is left, or ``limit`` are taken, even in the middle of a decision; return how many."""
    taken = 0
    for _ in range(100):
        before = taken
        for kind, decide in DECIDERS:
            for obj in world.all(kind):
                for step in decide(world, obj):
                    if taken == limit:
                        return taken
                    if isinstance(step, RecordEvent | Again):
                        world.take(kind, obj, step)
                        continue
                    taken += 1
                    world.take(kind, obj, step)
                    finish(world, kind, obj)
        if taken == before:
            return taken
    raise AssertionError("it never ends")


def finish(world: World, kind: Kind, obj: JsonObject) -> None:
    """Take out what nothing holds any more, as the API server does."""
    now = world.get(kind, objects.key(obj))
    if now is not None and objects.is_deleting(now) and not objects.finalizers(now):
        world.remove(kind, now)


def picture(world: World) -> dict[str, Any]:
    """Return who has whom: of claims ``phase volume size``, of volumes ``phase claim``."""
    found: dict[str, Any] = {}
    for obj in world.all(PERSISTENT_VOLUME_CLAIM):
        size = objects.dig(obj, "status", "capacity", "storage")
        parts = (objects.status(obj).get("phase"), objects.spec(obj).get("volumeName"), size)
        found[objects.name(obj)] = " ".join(str(each) for each in parts if each)
    for obj in world.all(PERSISTENT_VOLUME):
        held = claims.holder(obj)
        words = [
            str(objects.status(obj).get("phase")),
            *([held.key.name if held.uid else f"({held.key.name})"] if held else []),
        ]
        found[objects.name(obj)] = " ".join(words)
    return found


@EACH
def test_claims_get_volumes(path: Path):
    case = Case(path)
    world = case.world()
    run(world)
    assert picture(world) == case.case["end"]
    for name, spec in case.case.get("made", {}).items():
        found = world.get(PERSISTENT_VOLUME, Key("", name))
        assert found is not None
        assert objects.spec(found).items() >= spec.items()
    for name, marks in case.case.get("marks", {}).items():
        claimed = world.get(PERSISTENT_VOLUME_CLAIM, Key(SPACE, name))
        assert claimed is not None
        assert objects.annotations(claimed) == marks
    leaving = [objects.name(each) for each in world.all(PERSISTENT_VOLUME) if objects.is_deleting(each)]
    assert leaving == case.case.get("deleting", [])
    message = [f"{each.type} {each.reason}: {each.message}" for each in world.events]
    assert list(dict.fromkeys(message)) == case.case.get("told", [])
    for kind, _ in DECIDERS:
        for obj in world.all(kind):
            assert unknown_fields(kind, obj) == []
            assert type_errors(kind, obj) == []


@EACH
def test_cut_off_after_any_step_it_comes_to_the_same(path: Path):
    case = Case(path)
    whole = case.world()
    for cut in range(run(whole)):
        world = case.world()
        run(world, cut)
        run(world)
        assert picture(world) == picture(whole), f"after {cut} steps"


def shared(world: World) -> int:
    """Return how many bound claims name a volume that another bound claim names."""
    bound = [each for each in world.all(PERSISTENT_VOLUME_CLAIM) if claims.is_bound(each)]
    return len(bound) - len({objects.spec(each)["volumeName"] for each in bound})


@EACH
def test_at_no_moment_have_two_claims_one_volume(path: Path):
    case = Case(path)
    for cut in range(run(case.world()) + 1):
        world = case.world()
        before = shared(world)
        run(world, cut)
        assert shared(world) <= before


def test_there_are_cases():
    assert len(CASES) > 20
