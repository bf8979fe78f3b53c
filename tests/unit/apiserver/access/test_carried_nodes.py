"""Whose a virtual node is follows the Nodes, and costs nothing for those that only tell their status."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest

from minik8s_modules.api.errors import Forbidden
from minik8s_modules.api.kinds import CLUSTER_ROLE, CLUSTER_ROLE_BINDING, CONFIG_MAP, NODE
from minik8s_modules.api.nodes.virtual_nodes import CARRIED_BY
from minik8s_modules.apiserver.access.carriers import CarriedNodes, check_results
from minik8s_modules.apiserver.authorization.authorization import Access, Requester
from minik8s_modules.apiserver.authorization.identity import User
from minik8s_modules.apiserver.authorization.policy import Rbac
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.incoming import Options
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.http.write import Write
from minik8s_modules.apiserver.verbs import writing
from minik8s_modules.store.cache import WatchCache
from minik8s_modules.store.memory import MemoryStore


class Counting(CarriedNodes):
    """Counts how many nodes are looked at."""

    looked_at = 0

    def put(self, key: str, obj: Any) -> None:
        """Count one."""
        self.looked_at += 1
        super().put(key, obj)


class World:
    """A store with a cache that keeps few events, and what is known of its nodes."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.cache = WatchCache(self.store, ring_events=4)
        self.cache.start()
        assert self.cache.wait_ready(60)
        self.nodes = Counting(self.cache)

    def put(self, name: str, by: str = "", **status: Any) -> None:
        """Create or replace a node."""
        meta = {"name": name, "annotations": {CARRIED_BY: by} if by else {}}
        key, value = NODE.key("", name), json.dumps({"metadata": meta, "status": status}).encode()
        known = self.store.get(key)
        revision = self.store.update(key, value, known.revision) if known else self.store.create(key, value)
        assert self.cache.wait_for(revision, 60)

    def remove(self, name: str) -> None:
        """Delete a node."""
        known = self.store.get(NODE.key("", name))
        assert known is not None
        assert self.cache.wait_for(self.store.delete(known.key, known.revision), 60)


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.cache.stop()
    made.store.close()


def test_a_node_is_of_who_its_annotation_names_until_it_goes(world: World):
    world.put("machine")
    world.put("far", "one")
    world.put("farther", "one")
    assert world.nodes.any_of("one") == "far"
    assert world.nodes.among("one", ["machine", "farther", "far"]) == "far"
    assert world.nodes.among("one", ["machine", "", "absent"]) == ""
    assert world.nodes.among("", ["machine"]) == ""
    assert world.nodes.any_of("other") == ""
    world.remove("far")
    assert world.nodes.any_of("one") == "farther"
    world.put("farther", "other")
    assert (world.nodes.any_of("one"), world.nodes.among("other", ["farther"])) == ("", "farther")
    world.put("farther")
    assert world.nodes.any_of("other") == ""


def test_of_many_nodes_only_those_that_changed_are_looked_at(world: World):
    for number in range(50):
        world.put(f"n{number}", "one")
    assert world.nodes.any_of("one")
    before = world.nodes.looked_at
    for number in range(20):
        world.put("n7", "one", beat=number)
        assert world.nodes.among("one", ["n7"]) == "n7"
    assert world.nodes.looked_at - before == 20


def test_after_more_changes_than_are_kept_all_are_looked_at_again(world: World):
    for number in range(6):
        world.put(f"n{number}", "one")
    assert world.nodes.among("one", ["n0"]) == "n0"
    world.remove("n0")
    for number in range(6):
        world.put(f"n{number}", "other")
    assert world.nodes.any_of("one") == ""
    assert world.nodes.among("other", ["n5", "n0"]) == "n0"


@pytest.mark.parametrize(("verbs", "may"), [("get create patch", True), ("update", True), ("get create", False)])
def test_who_may_write_a_config_map_by_a_role_may_write_all_of_it(backend: Backend, verbs: str, *, may: bool):
    """Programs that apply manifests often have every verb on nodes, and with it the one that says who carries them."""
    user, options = User("gitops", ()), Options(dry_run=False, validation="Strict", warnings=[])
    rules = [
        {"verbs": verb.split(), "apiGroups": [""], "resources": [plural]}
        for verb, plural in (("*", "nodes"), (verbs, "configmaps"))
    ]
    writing.create(backend, Target(CLUSTER_ROLE), {"metadata": {"name": "all"}, "rules": rules}, options)
    binding = {"roleRef": {"kind": "ClusterRole", "name": "all"}, "subjects": [{"kind": "User", "name": user.name}]}
    writing.create(backend, Target(CLUSTER_ROLE_BINDING), {"metadata": {"name": "all"}, **binding}, options)
    requester = Requester(user, Access(Rbac(backend.cache)), {})
    target = Target(CONFIG_MAP, "default", "settings")
    old = {"metadata": {"name": "settings", "labels": {"a": "b"}}}
    data = Write(backend, "update", target, {**old, "data": {"a": "1"}}, old, options, requester)
    check_results(data)
    with nullcontext() if may else pytest.raises(Forbidden, match="only data and binaryData"):
        check_results(data._replace(obj={"metadata": {"name": "settings"}}))
