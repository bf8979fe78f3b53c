"""What a node may read follows its pods at once, through a full ring and a store that went back, too."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from minik8s_modules.api.kinds import POD
from minik8s_modules.api.pods.pod_references import Reference
from minik8s_modules.apiserver.access.node_index import NodeIndex
from minik8s_modules.store.cache import WatchCache
from minik8s_modules.store.memory import MemoryStore

SECRET = Reference("secrets", "s")


class World:
    """A store with a cache that keeps four events, and the index over it."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.cache = WatchCache(self.store, ring_events=4)
        self.cache.start()
        self.index = NodeIndex(self.cache)

    def put(self, name: str, node: str, secret: str, space: str = "a") -> None:
        """Create or replace a pod."""
        key = POD.key(space, name)
        spec = {"nodeName": node, "volumes": [{"name": "v", "secret": {"secretName": secret}}]}
        value = json.dumps({"metadata": {"name": name, "namespace": space}, "spec": spec}).encode()
        known = self.store.get(key)
        revision = self.store.update(key, value, known.revision) if known else self.store.create(key, value)
        assert self.cache.wait_for(revision, 60)

    def remove(self, name: str) -> None:
        """Delete a pod."""
        known = self.store.get(POD.key("a", name))
        assert known is not None
        assert self.cache.wait_for(self.store.delete(known.key, known.revision), 60)

    def may(self, node: str = "n1", space: str = "a") -> bool:
        """Return whether the node may read the secret."""
        return self.index.names(node, space, SECRET)


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    assert world.cache.wait_ready(20) or world.store.revision() == 0
    yield world
    world.cache.stop()
    world.store.close()


def test_a_node_may_read_what_its_pods_name_and_nothing_else(world: World):
    world.put("mine", "n1", "s")
    world.put("other", "n2", "t")
    assert world.may()
    assert not world.may("n2")
    assert not world.may(space="b")


def test_the_right_ends_with_the_last_pod_that_names_it(world: World):
    world.put("one", "n1", "s")
    world.put("two", "n1", "s")
    world.remove("one")
    assert world.may()
    world.put("two", "n1", "t")
    assert not world.may()
    world.put("two", "n1", "s")
    assert world.may()
    world.remove("two")
    assert not world.may()


def test_more_events_than_the_ring_holds_are_caught_up_with(world: World):
    world.put("one", "n1", "s")
    assert world.may()
    for number in range(10):
        world.put(f"p{number}", "n2", "s")
    world.remove("one")
    for number in range(10):
        world.put(f"p{number}", "n2", "t")
    assert not world.may()
    assert not world.may("n2")
