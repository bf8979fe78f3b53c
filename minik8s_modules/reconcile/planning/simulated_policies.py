"""What NetworkPolicies would allow if objects were applied: each node's section, and who would lose or gain what. Pure.

Connections are compared by what decides about them in ``api/network/network_policies.py``, at the ports that policies
or Pods name and at all others together. Pairs are looked at only where a Pod on one side is selected, or named as a
peer, otherwise than before; of very many pairs only some are looked at, which is said.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import POD
from minik8s_modules.api.network.network_policies import (
    DIRECTIONS,
    Connection,
    Place,
    Pod,
    Policy,
    judge,
    parse_policy,
    pod_of,
)
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.reconcile.feeds.plan_subjects import Note, of
from minik8s_modules.reconcile.network.policies import PolicyBook, filter_entry
from minik8s_modules.reconcile.planning.simulated_services import Cluster
from minik8s_modules.reconcile.planning.simulation import Hypothesis
from minik8s_modules.reconcile.values.values import Entries, Settings

PAIRS_LOOKED_AT = 20_000
PAIRS_TOLD = 20
_OTHERS = 0
"""Stands for all ports that nobody names: no rule with numbers has it."""
_Port = tuple[str, int]


class World(NamedTuple):
    """Policies, and whom they are about."""

    policies: Mapping[str, Policy]
    namespaces: Mapping[str, Mapping[str, str]]
    pods: Mapping[str, Pod]

    def book(self) -> PolicyBook:
        """Return it as nodes are told of it."""
        book = PolicyBook()
        for name, labels in self.namespaces.items():
            book.put_namespace(name, labels)
        for key, policy in self.policies.items():
            book.put_policy(key, policy)
        for key, pod in self.pods.items():
            book.put_pod(key, pod)
        return book


def world_of(cluster: Cluster, found: Hypothesis | None = None, given: Mapping[str, str] | None = None) -> World:
    """Return the world as it is, or as it would be (``found``, with the addresses ``given`` by UID)."""
    policies = {str(objects.key(one)): one for one in cluster.policies}
    spaces = {objects.name(one): one for one in (cluster.scene.namespaces if cluster.scene else ())}
    pods = {objects.uid(pod): pod for pod in cluster.pods}
    if found is not None:
        policies = _over(policies, found.policies)
        spaces = _over(spaces, found.namespaces)
        pods = _over(pods, found.pods)
    known = given or {}
    parsed = [
        pod
        for uid, one in pods.items()
        if objects.spec(one).get("nodeName")
        and (pod := pod_of(one, known.get(uid) or cluster.address_of(uid) or "")) is not None
    ]
    return World(
        {key: parse_policy(one) for key, one in policies.items()},
        {name: objects.labels(one) for name, one in spaces.items()},
        {pod.key: pod for pod in parsed},
    )


def _over(known: Mapping[str, JsonObject], changes: Mapping[str, JsonObject | None]) -> dict[str, JsonObject]:
    return {key: one for key, one in {**known, **changes}.items() if one is not None}


class ImaginedPolicies:
    """Policies before and after what is planned; thread-safe."""

    def __init__(self, before: World, after: World, settings: Settings) -> None:
        self._before, self._after, self._settings = before, after, settings
        self._lock = threading.Lock()

    @cached_property
    def _book(self) -> PolicyBook:
        return self._after.book()

    def entries(self, node: JsonObject) -> Entries:
        """Return the section ``policies`` of a node, as it would be."""
        with self._lock:
            return self._book.entries(objects.name(node), filter_entry(node, self._settings))

    def notes(self) -> list[Note]:
        """Return who would lose or gain a connection; of Pods that are there before and after."""
        if not (self._before.policies or self._after.policies):
            return []
        pairs = itertools.islice(_pairs(self._before, self._after), PAIRS_LOOKED_AT + 1)
        told, more, looked = list[Note](), 0, 0
        for source, target in pairs:
            looked += 1
            if (text := self._difference(source, target)) and len(told) < PAIRS_TOLD:
                about = (of(POD, *source.split("/", 1)), of(POD, *target.split("/", 1)))
                told.append(Note(f"connections from Pod {source} to Pod {target}: {text}", about))
            elif text:
                more += 1
        if more:
            told.append(Note(f"connections of {more} more pairs of Pods would change", (of(POD),)))
        if looked > PAIRS_LOOKED_AT:
            told.append(Note(f"connections were looked at between {PAIRS_LOOKED_AT} pairs of Pods, not between all"))
        return told

    def _difference(self, source: str, target: str) -> str:
        ports = _ports(self._before, target) | _ports(self._after, target)
        was, will = (_open(world, source, target, ports) for world in (self._before, self._after))
        told = {"closed": was - will, "opened": will - was}
        return "; ".join(f"{_words(each)} would be {verb}" for verb, each in told.items() if each)


def imagined(cluster: Cluster, found: Hypothesis, given: Mapping[str, str], settings: Settings) -> ImaginedPolicies:
    """Return what policies would come to."""
    return ImaginedPolicies(world_of(cluster), world_of(cluster, found, given), settings)


def _pairs(before: World, after: World) -> Iterator[tuple[str, str]]:
    """Yield (source, target) of the Pods about which something is said otherwise."""
    both = sorted(before.pods.keys() & after.pods.keys())
    told = [world.book().told() for world in (before, after)]
    changed = {key for key, one in after.policies.items() if before.policies.get(key) != one}
    changed |= before.policies.keys() - after.policies.keys()
    touched = [
        key for key in both if told[0][key] != told[1][key] or any(changed & each[key].policies() for each in told)
    ]
    known = set(touched)
    for one in touched:
        for other in both:
            if other != one:
                yield one, other
                if other not in known:
                    yield other, one


def _ports(world: World, target: str) -> set[_Port]:
    """Return the ports that are told apart at a Pod."""
    rules = [rule for one in world.policies.values() for direction in DIRECTIONS for rule in one.rules(direction) or ()]
    found = {(port.protocol, edge) for rule in rules for port in rule.ports or () for edge in (port.first, port.last)}
    named = {(protocol, number) for protocol, _, number in world.pods[target].ports}
    return {each for each in found if each[1]} | named | {("TCP", _OTHERS), ("UDP", _OTHERS)}


def _open(world: World, source: str, target: str, ports: Iterable[_Port]) -> set[_Port]:
    ends = [Place(pod, pod.address) for pod in (world.pods[source], world.pods[target])]
    found = set()
    for protocol, number in ports:
        connection = Connection(ends[0], ends[1], protocol, number)
        policies = world.policies.values()
        if all(judge(policies, direction, connection, world.namespaces).allowed for direction in DIRECTIONS):
            found.add((protocol, number))
    return found


def _words(ports: Iterable[_Port]) -> str:
    known = sorted(ports, key=lambda port: (port[1] == _OTHERS, port))
    return ", ".join(f"{protocol} {number}" if number else f"other {protocol} ports" for protocol, number in known)
