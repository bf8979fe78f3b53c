"""Random plans over all kinds that are stored: what a plan tells of objects is what applying the same then does.

A kind to come is in it by its sample (tests/unit/api/samples.py). ``MINIK8S_PLAN_SCENARIOS`` says how many scenarios.
"""

from __future__ import annotations

import copy
import os
import random
import re
from collections.abc import Iterator
from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.defaulting.conversion import from_storage
from minik8s_modules.api.errors import StatusError
from minik8s_modules.api.kinds import KINDS, Kind
from minik8s_modules.api.merging.apply import annotated, next_object
from minik8s_modules.api.merging.shown import pair_shown
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.apiserver.authorization.authorization import Access, Requester
from minik8s_modules.apiserver.authorization.identity import MASTERS, User
from minik8s_modules.apiserver.authorization.policy import Rbac
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.incoming import Options
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.nodes import plans
from minik8s_modules.apiserver.verbs import deleting, writing
from tests.unit.api import samples

SCENARIOS = int(os.environ.get("MINIK8S_PLAN_SCENARIOS", "40"))
STORED = [kind for kind in KINDS.all() if kind.stored]
SPACES = ("default", "shop")
# what is made with an object and foretold by nobody
UNKNOWN = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|kube-api-access-\w{5}")
SHOP: JsonObject = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}


class Scenario:
    """Objects that stand, and a plan over them, from one seed."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self.standing = [SHOP] * self._dice.randint(0, 1) + [*self._some(4)]
        self.wanted = [SHOP] * self._dice.randint(0, 1) + [*self._some(6)]
        self.wanted += [self._changed(each) for each in self.standing if self._dice.random() < 0.7]
        self._dice.shuffle(self.wanted)
        self.deleted = [each for each in self.standing if self._dice.random() < 0.3]

    def _some(self, most: int) -> Iterator[JsonObject]:
        for _ in range(self._dice.randint(1, most)):
            kind = self._dice.choice(STORED)
            obj = samples.sample(kind)
            for hook in obj.get("webhooks") or []:
                hook["failurePolicy"] = "Ignore"  # nobody answers for it
            if kind.namespaced:
                obj["metadata"]["namespace"] = self._dice.choice(SPACES)
            yield from samples.services_of(obj) if self._dice.random() < 0.8 else ()
            yield self._changed(obj) if self._dice.random() < 0.4 else obj

    def _changed(self, obj: JsonObject) -> JsonObject:
        """Return the object with one thing changed, for better or worse."""
        changed = copy.deepcopy(obj)
        meta, spec = changed["metadata"], changed.get("spec") or {}
        ways = [
            lambda: meta.setdefault("labels", {}).update(tier=self._dice.choice(["a", "b", "not a label!"])),
            lambda: meta.setdefault("annotations", {}).update(note=self._dice.choice("abc")),
            lambda: meta.update(name=self._dice.choice(["other", "Bad_Name", meta["name"]])),
            lambda: spec.update(replicas=self._dice.choice([-1, 0, 3])) if "replicas" in spec else None,
            lambda: (
                spec.update(selector={"matchLabels": {"app": "other"}})
                if changed["apiVersion"] == "apps/v1" and "selector" in spec
                else None
            ),
            lambda: (
                changed.update(data={"k": self._dice.choice(["YQ==", "Yg=="])})
                if changed["kind"] in {"ConfigMap", "Secret"}
                else None
            ),
            lambda: meta.update(finalizers=["example.com/held"]),
        ]
        self._dice.choice(ways)()
        return changed


def _kind_of(obj: JsonObject) -> Kind:
    found = KINDS.by_api_version(obj["apiVersion"], obj["kind"])
    assert found is not None
    return found


def _target(obj: JsonObject) -> Target:
    kind = _kind_of(obj)
    return Target(kind, (objects.namespace(obj) or "default") if kind.namespaced else "", objects.name(obj))


def _apply(backend: Backend, obj: JsonObject, options: Options) -> str:
    """Write as kubectl's apply writes; return the refusal, "" where it is done."""
    target, obj = _target(obj), copy.deepcopy(obj)
    try:
        if backend.cache.get(target.kind.key(target.namespace, target.name)) is None:
            writing.create(backend, target._replace(name=""), annotated(obj), options)
        else:
            writing.change(backend, target, lambda old: next_object(target.kind, old, obj), options)
    except StatusError as refused:
        return refused.message
    return ""


def _live(backend: Backend, target: Target) -> JsonObject | None:
    item = backend.cache.get(target.kind.key(target.namespace, target.name))
    if item is None or objects.is_deleting(item.object):
        return None
    return from_storage(target.kind, item.object)


def _plain(value: Any) -> Any:
    """Return the value without what nobody can foretell."""
    if isinstance(value, dict):
        return {_plain(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return UNKNOWN.sub("unknown", value) if isinstance(value, str) else value


class Applied:
    """A plan's rows, one after the other, against what happens."""

    def __init__(self, backend: Backend, options: Options, rows: list[JsonObject]) -> None:
        self._backend, self._options = backend, options
        self._rows = [row for row in rows if not row.get("because")]

    def _next(self, target: Target, *actions: str) -> JsonObject | None:
        """Return the next row if it is about the object."""
        if not self._rows or self._rows[0]["action"] not in actions:
            return None
        row = self._rows[0]
        same = (row["apiVersion"], row["kind"]) == (target.kind.api_version, target.kind.kind)
        if not same or (row["namespace"], row["name"]) != (target.namespace, target.name):
            return None
        return self._rows.pop(0)

    def apply(self, obj: JsonObject) -> None:
        """Apply, and compare with the row."""
        target = _target(obj)
        live = _live(self._backend, target)
        refusal = _apply(self._backend, obj, self._options)
        now = _live(self._backend, target)
        before, after = pair_shown(target.kind, live, now) if now is not None else (None, None)
        if refusal:
            row = self._next(target, "refuse")
            assert row is not None, f"{target} was planned to be written, but: {refusal}"
            assert _plain(refusal) == _plain(row["message"])
        elif before != after:
            row = self._next(target, "create" if before is None else "update")
            assert row is not None, f"{target} was not planned to be written"
            assert (_plain(before), _plain(after)) == (_plain(row.get("before")), _plain(row["after"]))

    def delete(self, obj: JsonObject) -> None:
        """Delete, and compare with the row."""
        target = _target(obj)
        there = self._backend.cache.get(target.kind.key(target.namespace, target.name)) is not None
        row = self._next(target, "delete")
        assert (row is not None) == there
        if row is not None:
            deleting.delete(self._backend, target, {}, self._options)
            assert _live(self._backend, target) is None
            left = self._backend.cache.get(target.kind.key(target.namespace, target.name))
            assert bool(row.get("message")) == (left is not None and bool(objects.finalizers(left.object)))

    def end(self) -> None:
        """Nothing was told that did not happen."""
        assert self._rows == []


@pytest.mark.parametrize("seed", range(SCENARIOS))
def test_what_a_plan_tells_of_objects_is_what_applying_does(backend: Backend, options: Options, seed: int):
    scenario = Scenario(seed)
    options = options._replace(requester=Requester(User("root", (MASTERS,)), Access(Rbac(backend.cache)), {}))
    for obj in scenario.standing:
        _apply(backend, obj, options)
    revision = backend.cache.revision
    asked = {"objects": copy.deepcopy(scenario.wanted), "deleted": copy.deepcopy(scenario.deleted)}
    rows = plans.answer(backend, None, {"spec": asked}, options)["status"].get("objects") or []
    assert backend.cache.revision == revision, "a plan stores nothing"
    applied = Applied(backend, options, rows)
    for obj in scenario.wanted:
        applied.apply(obj)
    for obj in scenario.deleted:
        applied.delete(obj)
    applied.end()
