"""What NetworkPolicies would allow if objects were applied: each node's section, and who would lose or gain what. Pure.

Connections are compared by what decides about them in ``api/network/network_policies.py``, at the ports that policies
or Pods name and at all others together. Pairs are looked at only where a Pod on one side is selected, or named as a
peer, otherwise than before; of very many pairs only some are looked at, which is said.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import NETWORK_POLICY, POD
from minik8s_modules.api.network.dual_stack import SINGLE_STACK, DualStack
from minik8s_modules.api.network.network_policies import (
    Connection,
    Direction,
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
from minik8s_modules.reconcile.planning.simulation import PlannedState
from minik8s_modules.reconcile.values.values import Entries, Settings

PAIRS_LOOKED_AT = 20_000
MOST_PAIRS = 20
_OTHERS = 0
"""Stands for all ports that nobody names: no rule with numbers has it."""
_Port = tuple[str, int]


class World(NamedTuple):
    """Policies, and whom they are about."""

    policies: Mapping[str, Policy]
    namespaces: Mapping[str, Mapping[str, str]]
    pods: Mapping[str, Pod]

    def book(self, dual_stack: DualStack = SINGLE_STACK) -> PolicyBook:
        """Return it as nodes are told of it."""
        book = PolicyBook(dual_stack)
        for name, labels in self.namespaces.items():
            book.put_namespace(name, labels)
        for key, policy in self.policies.items():
            book.put_policy(key, policy)
        for key, pod in self.pods.items():
            book.put_pod(key, pod)
        return book


NOTHING = World({}, {}, {})


def world_of(cluster: Cluster, found: PlannedState | None = None, given: Mapping[str, str] | None = None) -> World:
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


class Side:
    """One world, with what is known of each Pod in it."""

    def __init__(self, world: World, dual_stack: DualStack) -> None:
        self.world = world
        self.book = world.book(dual_stack)
        self.members = self.book.members()

    def policies(self, key: str, direction: Direction) -> list[Policy]:
        """Return the policies that isolate a Pod in a direction."""
        member = self.members[key]
        return [self.world.policies[each] for each in (getattr(member, direction) or ())]

    def ports(self, source: str, target: str) -> set[_Port]:
        """Return the ports that are told apart between two Pods."""
        about = (*self.policies(source, "egress"), *self.policies(target, "ingress"))
        rules = [rule for one in about for rule in (*(one.ingress or ()), *(one.egress or ()))]
        found = {
            (each.protocol, edge) for rule in rules for each in rule.ports or () for edge in (each.first, each.last)
        }
        named = {(protocol, number) for protocol, _, number in self.world.pods[target].ports}
        return {each for each in found if each[1]} | named | {("TCP", _OTHERS), ("UDP", _OTHERS)}

    def open(self, source: str, target: str, ports: Iterable[_Port]) -> set[_Port]:
        """Return at which of ``ports`` one Pod reaches another."""
        ends = [Place(pod, pod.address) for pod in (self.world.pods[source], self.world.pods[target])]
        ways: tuple[tuple[Direction, list[Policy]], ...] = (
            ("egress", self.policies(source, "egress")),
            ("ingress", self.policies(target, "ingress")),
        )
        return {
            (protocol, number)
            for protocol, number in ports
            if all(
                judge(about, direction, Connection(ends[0], ends[1], protocol, number), self.world.namespaces).allowed
                for direction, about in ways
            )
        }


class ImaginedPolicies:
    """Policies before and after what is planned; thread-safe."""

    def __init__(self, before: World, after: World, settings: Settings) -> None:
        self._before, self._after = (Side(one, settings.dual_stack) for one in (before, after))
        self._settings = settings
        self._lock = threading.Lock()

    def entries(self, node: JsonObject) -> Entries:
        """Return the section ``policies`` of a node, as it would be."""
        with self._lock:
            return self._after.book.entries(objects.name(node), filter_entry(node, self._settings))

    def notes(self) -> list[Note]:
        """Return who would lose or gain a connection; of Pods that are there before and after."""
        notes, more, looked = list[Note](), 0, 0
        for source, target in itertools.islice(self._pairs(), PAIRS_LOOKED_AT + 1):
            looked += 1
            text = self._difference(source, target)
            if text and len(notes) < MOST_PAIRS:
                # which ports there are tells what policies say
                deciding = (of(NETWORK_POLICY, *each.split("/", 1)) for each in self._deciding(source, target))
                about = (of(POD, *source.split("/", 1)), of(POD, *target.split("/", 1)), *deciding)
                notes.append(Note(f"connections from Pod {source} to Pod {target}: {text}", about))
            elif text:
                more += 1
        if more:
            text = f"connections of {more} more pairs of Pods would change"
            notes.append(Note(text, (of(POD), of(NETWORK_POLICY))))
        if looked > PAIRS_LOOKED_AT:
            notes.append(Note(f"connections were checked between {PAIRS_LOOKED_AT} pairs of Pods, not between all"))
        return notes

    def _pairs(self) -> Iterator[tuple[str, str]]:
        """Yield (source, target) of the Pods about which something is said otherwise."""
        before, after = self._before.world, self._after.world
        both = sorted(before.pods.keys() & after.pods.keys())
        members = (self._before.members, self._after.members)
        changed = {key for key, one in after.policies.items() if before.policies.get(key) != one}
        changed |= before.policies.keys() - after.policies.keys()
        touched = {
            key
            for key in both
            if members[0][key] != members[1][key] or any(changed & each[key].policies() for each in members)
        }
        for one in sorted(touched):
            for other in both:
                if other != one:
                    yield one, other
                    if other not in touched:
                        yield other, one

    def _deciding(self, source: str, target: str) -> list[str]:
        """Return the policies that isolate either end, before or after."""
        ends: tuple[tuple[str, Direction], ...] = ((source, "egress"), (target, "ingress"))
        sides = (self._before, self._after)
        return sorted({one.key for side in sides for key, way in ends for one in side.policies(key, way)})

    def _difference(self, source: str, target: str) -> str:
        ports = self._before.ports(source, target) | self._after.ports(source, target)
        was, will = (side.open(source, target, ports) for side in (self._before, self._after))
        differences = {"closed": was - will, "opened": will - was}
        return "; ".join(f"{_words(each)} would be {verb}" for verb, each in differences.items() if each)


def imagined(cluster: Cluster, found: PlannedState, given: Mapping[str, str], settings: Settings) -> ImaginedPolicies:
    """Return what policies would come to."""
    if not cluster.policies and not any(found.policies.values()):
        return ImaginedPolicies(NOTHING, NOTHING, settings)
    return ImaginedPolicies(world_of(cluster), world_of(cluster, found, given), settings)


def _words(ports: Iterable[_Port]) -> str:
    known = sorted(ports, key=lambda port: (port[1] == _OTHERS, port))
    return ", ".join(f"{protocol} {number}" if number else f"other {protocol} ports" for protocol, number in known)
