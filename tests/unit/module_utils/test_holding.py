"""What somebody else changed is left so where it is asked; what is declared, failed or lost with a boot is realized."""

# ruff: noqa: ARG002 - what sections have in common

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.module_utils.minik8s.core import documents
from minik8s_modules.module_utils.minik8s.core.faults import KeyFault
from minik8s_modules.module_utils.minik8s.core.section import Context, Plan, Request, Scope, Step, context_for, run_pass

OLD, NEW, OTHER = {"is": "old"}, {"is": "new"}, {"is": "other"}


class Memory:
    """A section whose node is a dictionary; ``broken`` keys cannot be realized."""

    name = "volumes"

    def __init__(self) -> None:
        self.node: dict[str, Any] = {}
        self.broken: set[str] = set()

    def check_entry(self, key: str, entry: Any) -> None:
        """Take everything."""

    def observe(self, context: Context, entries: Any, scope: Scope) -> dict[str, Any]:
        """Return what the node has."""
        return dict(self.node)

    def plan(self, context: Context, entries: Any, observed: Any, scope: Scope) -> Plan:
        """Return a step for each key that differs."""
        plan = Plan()
        for key in sorted({*entries, *observed}):
            if scope.covers(key) and entries.get(key) != observed.get(key):
                plan.steps.append(Step("make" if key in entries else "remove", key, "it", entries.get(key)))
                plan.differs(key, observed.get(key), entries.get(key))
        return plan

    def apply(self, context: Context, step: Step) -> None:
        """Do it."""
        if step.key in self.broken:
            raise KeyFault("NodeError", "no")
        if step.action == "remove":
            del self.node[step.key]
        else:
            self.node[step.key] = step.data

    def status(self, context: Context, entries: Any, observed: Any, touched: frozenset[str]) -> dict[str, Any]:
        """Return whether each is as declared."""
        return {key: {"state": "present"} if self.node.get(key) == entry else None for key, entry in entries.items()}


class Node:
    """The section, and where its document is."""

    def __init__(self, folder: Path) -> None:
        self.section, self._folder = Memory(), folder

    def full(self, entries: dict[str, Any], *hold: str, check: bool = False) -> dict[str, Any]:
        """Run a pass over everything."""
        return self._run(check=check, entries=entries, hold=[*hold])

    def delta(self, base: str, upsert: dict[str, Any], *hold: str) -> dict[str, Any]:
        """Run a pass over ``upsert``."""
        return self._run(check=False, mode="delta", base=base, upsert=upsert, hold=[*hold])

    def _run(self, *, check: bool, **options: Any) -> dict[str, Any]:
        request = Request("n1", state_dir=str(self._folder / "s"), run_dir=str(self._folder / "r"), **options)
        return run_pass(self.section, request, context_for(request), check=check)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def keys(steps: list[dict[str, str]]) -> list[str]:
    return [step["key"] for step in steps]


def test_what_the_node_had_is_left_as_somebody_made_it_and_told(node: Node):
    node.full({"a": OLD, "b": OLD})
    node.section.node = {"a": OTHER, "b": OTHER}
    for changes in (True, False):
        result = node.full({"a": OLD, "b": OLD}, "a")
        assert (keys(result["held"]), node.section.node) == (["a"], {"a": OTHER, "b": OLD})
        assert result["status"] == {"a": None, "b": {"state": "present"}}
        assert result["changed"] is changes
    result = node.full({"a": OLD, "b": OLD}, "a", check=True)
    assert (result["steps"], result["differences"]["after"], keys(result["held"])) == ([], {}, ["a"])
    assert keys(node.full({"a": OLD, "b": OLD})["steps"]) == ["a"]
    assert node.section.node == {"a": OLD, "b": OLD}


def test_what_is_declared_anew_is_realized_whatever_is_held(node: Node):
    node.full({"a": OLD})
    node.section.node = {"a": OTHER, "stranger": OTHER}
    result = node.full({"a": NEW, "c": NEW}, "a", "c")
    assert (result["held"], node.section.node) == ([], {"a": NEW, "c": NEW})


def test_a_delta_for_another_key_heals_nothing_by_the_way(node: Node):
    base = node.full({"a": OLD, "b": OLD})["digest"]
    node.section.node["a"] = OTHER
    result = node.delta(base, {"a": OLD, "b": NEW}, "a")
    assert (keys(result["steps"]), keys(result["held"])) == (["b"], ["a"])
    assert node.section.node == {"a": OTHER, "b": NEW}


def test_what_could_not_be_realized_is_no_drift_and_is_done_when_it_can_be(node: Node):
    node.section.broken = {"a"}
    base = node.full({"a": OLD, "b": OLD}, "a")["digest"]
    base = node.delta(base, {"b": NEW}, "a")["digest"]
    assert node.delta(base, {"a": OLD}, "a")["errors"].keys() == {"a"}
    node.section.broken = set()
    result = node.full({"a": OLD, "b": NEW}, "a")
    assert (result["held"], node.section.node) == ([], {"a": OLD, "b": NEW})
    node.section.node["a"] = OTHER
    assert keys(node.full({"a": OLD, "b": NEW}, "a")["held"]) == ["a"]


def test_what_a_boot_took_away_is_made_again(node: Node, tmp_path: Path):
    node.full({"a": OLD})
    path = tmp_path / "s" / "documents" / "volumes.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "boot": "an earlier one"}))
    node.section.node = {}
    assert node.full({"a": OLD}, "a")["held"] == []
    assert node.section.node == {"a": OLD}
    assert documents.load_document(str(tmp_path / "s"), "volumes").pending == frozenset()
