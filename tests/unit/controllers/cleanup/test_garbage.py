"""Garbage collection: each file of tests/cases/decide_garbage, also cut off after every step of every object."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import CONFIG_MAP
from minik8s_modules.api.lifecycle.propagation import with_policy
from minik8s_modules.api.merging.patch import merge_patch
from minik8s_modules.controllers.cleanup.garbage import Item, OwnerState, decide_garbage, is_waiting
from minik8s_modules.controllers.cleanup.garbage_graph import Graph
from minik8s_modules.controllers.core.steps import Delete, Patch, Step
from tests.support.workloads import SPACE, ago

CASES = sorted((Path(__file__).parents[3] / "cases" / "decide_garbage").glob("*.yml"))
EACH = pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)


def made(fields: dict[str, Any]) -> dict[str, Any]:
    meta: dict[str, Any] = {"name": fields["name"], "namespace": SPACE, "uid": f"uid-{fields['name']}"}
    kind = "Nonsense" if fields.get("unknown") else "ConfigMap"
    meta["ownerReferences"] = [
        {"apiVersion": "v1", "kind": kind, "name": name, "uid": f"uid-{name}", "blockOwnerDeletion": "block" in fields}
        for name in fields.get("owners", [])
    ]
    meta["finalizers"] = fields.get("finalizers", [])
    if fields.get("deleting"):
        meta["deletionTimestamp"] = ago(1)
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}


class World:
    """ConfigMaps that are deleted as the API server deletes."""

    def __init__(self, case: dict[str, Any]) -> None:
        self.found = {f"uid-{each['name']}": made(each) for each in case["objects"]}

    def steps(self, uid: str) -> list[Step]:
        """Decide about one object."""
        obj = self.found[uid]
        owners = {each["uid"]: self._state(each) for each in objects.owner_references(obj)}
        dependents = [
            Item(CONFIG_MAP, each)
            for each in self.found.values()
            if uid in {reference["uid"] for reference in objects.owner_references(each)}
        ]
        return decide_garbage(Item(CONFIG_MAP, obj), owners, dependents)

    def _state(self, reference: dict[str, Any]) -> OwnerState:
        if reference["kind"] != "ConfigMap":
            return OwnerState.UNKNOWN
        owner = self.found.get(reference["uid"])
        if owner is None:
            return OwnerState.ABSENT
        return OwnerState.WAITING if is_waiting(owner) else OwnerState.PRESENT

    def take(self, step: Step) -> None:
        """Take one step."""
        match step:
            case Delete(kind, obj, _, _, propagation):
                latest = with_policy(kind, self.found[objects.uid(obj)], {"propagationPolicy": propagation})
                self._keep({**latest, "metadata": {**latest["metadata"], "deletionTimestamp": ago(0)}})
            case Patch(_, obj, body):
                self._keep(merge_patch(self.found[objects.uid(obj)], body))
            case _:
                pytest.fail(f"{step} is none of the collector's")

    def _keep(self, obj: dict[str, Any]) -> None:
        if objects.is_deleting(obj) and not objects.finalizers(obj):
            del self.found[objects.uid(obj)]
        else:
            self.found[objects.uid(obj)] = obj

    def run_deciders(self) -> list[str]:
        """Take all steps of all until there are none; return what is left."""
        for _ in range(20):
            before = dict(self.found)
            for uid in [*self.found]:
                for step in self.steps(uid) if uid in self.found else []:
                    self.take(step)
            if before == self.found:
                return sorted(map(summary, self.found.values()))
        pytest.fail("it never ends")


def summary(obj: dict[str, Any]) -> str:
    owners = " ".join(each["name"] for each in objects.owner_references(obj))
    return f"{objects.name(obj)} owned by {owners}" if owners else objects.name(obj)


def words(step: Step) -> str:
    match step:
        case Delete(_, obj, _, _, propagation):
            return f"delete {objects.name(obj)} {propagation}"
        case Patch(_, obj, {"metadata": {"ownerReferences": references}}):
            return f"own {objects.name(obj)} by {' '.join(each['name'] for each in references or []) or 'nobody'}"
        case Patch(_, obj, {"metadata": {"finalizers": left}}):
            return f"finalizers {objects.name(obj)} {' '.join(left or []) or 'none'}"
    return str(step)


@EACH
def test_decide_garbage(path: Path):
    case = yaml.safe_load(path.read_text(encoding="utf-8"))
    world = World(case)
    for name, steps in case.get("steps", {}).items():
        assert [words(step) for step in world.steps(f"uid-{name}")] == steps, name
    assert world.run_deciders() == case["left"]


@EACH
def test_cut_off_after_any_step_it_comes_to_the_same(path: Path):
    case = yaml.safe_load(path.read_text(encoding="utf-8"))
    for uid in World(case).found:
        for cut in range(len(World(case).steps(uid)) + 1):
            world = World(case)
            for step in world.steps(uid)[:cut]:
                world.take(step)
            assert world.run_deciders() == case["left"], f"{uid} cut off after {cut}"


def test_the_graph_says_whom_a_change_concerns():
    graph = Graph()
    owner, child = made({"name": "owner"}), made({"name": "child", "owners": ["owner"], "block": True})
    assert graph.changed(CONFIG_MAP, None, child) == {"uid-child"}
    assert graph.changed(CONFIG_MAP, None, owner) == set()
    assert graph.changed(CONFIG_MAP, owner, {**owner, "data": {"a": "b"}}) == set()
    going = made({"name": "owner", "deleting": True, "finalizers": ["foregroundDeletion"]})
    assert graph.changed(CONFIG_MAP, owner, going) == {"uid-owner", "uid-child"}
    freed = made({"name": "child", "owners": ["owner"]})
    freed["metadata"]["ownerReferences"][0]["blockOwnerDeletion"] = False
    assert graph.changed(CONFIG_MAP, child, freed) == {"uid-child", "uid-owner"}
    assert graph.changed(CONFIG_MAP, freed, None) == {"uid-owner"}
    assert graph.dependents("uid-owner") == []


def test_an_object_of_the_same_name_is_another_one():
    graph = Graph()
    owner, child = made({"name": "owner"}), made({"name": "child", "owners": ["owner"]})
    graph.changed(CONFIG_MAP, None, owner)
    graph.changed(CONFIG_MAP, None, child)
    again = made({"name": "owner"})
    again["metadata"]["uid"] = "uid-again"
    assert graph.changed(CONFIG_MAP, owner, again) == {"uid-child"}
    assert graph.get("uid-owner") is None


def test_there_are_cases():
    assert len(CASES) >= 16
