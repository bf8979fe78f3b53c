"""A namespace that changes at random, object by object: decided with a memory, it is as decided on whole."""

from __future__ import annotations

import random
from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.mesh.mapping import Declared, Memory, decide_mapping
from tests.unit.mesh.namespaces import IPS, endpoint_slice, rolling_update, service, subset, virtual_service

SERVICES, SUBSETS, STEPS, HISTORIES = ("reviews", "ratings", "details"), ("v1", "v2", "v3"), 120, 8


class History:
    """The objects of a namespace, and one change of them after the other."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._found: dict[tuple[int, str], JsonObject] = {}
        self._led: dict[tuple[str, int], str] = {}

    def change(self) -> Declared:
        """Make, change, or take away one object; return all of them, the others the very same."""
        group = self._random.randrange(6)
        if group == 5:  # an HTTPRoute comes or goes
            place = (self._random.choice(SERVICES), 80)
            self._led = {} if self._led else {place: "route"}
        else:
            made = (self._service, self._slice, self._virtual, self._subset, self._update)[group]()
            key = (group, objects.name(made))
            if self._random.random() < 0.2 or (self._found.get(key) == made):
                self._found.pop(key, None)
            else:
                self._found[key] = made
        services, slices, virtual, subsets, updates = (
            [each for (kind, _name), each in self._found.items() if kind == group] for group in range(5)
        )
        return Declared(services, slices, virtual, subsets, updates, dict(self._led))

    def _pods(self) -> list[str]:
        return [each for each in IPS if self._random.random() < 0.6]

    def _service(self) -> JsonObject:
        name = self._random.choice(SERVICES)
        spec: dict[str, Any] = self._random.choice([{}, {}, {"sessionAffinity": "ClientIP"}, {"type": "ExternalName"}])
        ports = self._random.choice([[80], [80, 81], []])
        return service(SERVICES.index(name) + 1, name, ports, self._random.choice(["TCP", "TCP", "UDP"]), **spec)

    def _slice(self) -> JsonObject:
        return endpoint_slice(self._random.choice(SERVICES), self._pods(), ready=self._random.random() < 0.7)

    def _virtual(self) -> JsonObject:
        kinds: list[dict[str, Any]] = [{"weight": self._random.randrange(3)}, {"url": "/a"}, {"headers": {"a": "b"}}]
        shares = [{"name": each, **self._random.choice(kinds)} for each in SUBSETS if self._random.random() < 0.6]
        more: JsonObject = self._random.choice(
            [{}, {"mirror": {"subset": self._random.choice(SUBSETS)}}, {"timeout": "1s"}]
        )
        name = self._random.choice(["x", "y", "z"])
        return virtual_service(
            name, serviceRef=self._random.choice(SERVICES), port=self._random.choice([80, 81]), subsets=shares, **more
        )

    def _subset(self) -> JsonObject:
        return subset(self._random.choice(SUBSETS), self._pods())

    def _update(self) -> JsonObject:
        of, alive = self._random.choice(SERVICES), self._random.randrange(2)
        return rolling_update(self._pods()[:1], self._random.randrange(3), serviceRef=of, port=80, minimumAlive=alive)


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_what_is_remembered_changes_nothing(seed: int) -> None:
    history, memory, changes = History(seed), Memory(), 0
    before = None
    for _ in range(STEPS):
        found = history.change()
        mapped = decide_mapping(found, memory)
        assert mapped == decide_mapping(found)
        changes += mapped != before
        before = mapped
    assert changes > STEPS // 4, "a history in which something happens"


def test_only_the_service_that_changed_is_decided_on_again() -> None:
    services = [service(number, name, [80]) for number, name in enumerate(SERVICES, 1)]
    slices = [endpoint_slice(name, IPS) for name in SERVICES]
    memory = Memory()
    first = decide_mapping(Declared(services, slices), memory)
    then = decide_mapping(Declared(services, [endpoint_slice("reviews", ["a"]), *slices[1:]]), memory)
    same = {place for place, port in then.ports.items() if port is first.ports[place]}
    assert same == then.ports.keys() - {"100.0.0.1:80"}
