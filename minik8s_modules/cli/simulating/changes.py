"""Changes of a command line: ``workers=-10`` and ``shop/*=x2``, and what they do to a simulation."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import DEPLOYMENT, NODE, REPLICA_SET, REPLICATION_CONTROLLER, STATEFUL_SET
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.cli.errors import UsageError
from minik8s_modules.cli.simulating.cluster import Simulation
from minik8s_modules.cli.simulating.description import group_of, new_nodes

SCALED = (DEPLOYMENT, STATEFUL_SET, REPLICA_SET, REPLICATION_CONTROLLER)
_AMOUNT = re.compile(r"([-+x]?)(\d{1,6}(?:\.\d{1,3})?)")
_MOST = 200_000
_NUMBER = re.compile(r"(\d+)")


class Change(NamedTuple):
    """How a number changes: ``sign`` is ``+``, ``-``, ``x`` or "" (to exactly that)."""

    target: str
    sign: str
    amount: float

    def of(self, before: int) -> int:
        """Return the number after the change, rounded up, and never below zero."""
        after = {"+": before + self.amount, "-": before - self.amount, "x": before * self.amount}
        return max(0, math.ceil(after.get(self.sign, self.amount)))


def parse(option: str, text: str) -> Change:
    """Return the change that ``TARGET=AMOUNT`` says. Raises UsageError."""
    target, _, amount = text.rpartition("=")
    found = _AMOUNT.fullmatch(amount)
    if not target or found is None or ("." in found[2] and found[1] != "x"):
        raise UsageError(f"{option} {text}: write TARGET=AMOUNT, with an AMOUNT such as 12, +3, -3 or x1.5")
    return Change(target, found[1], float(found[2]))


def change_nodes(simulation: Simulation, change: Change) -> None:
    """Add nodes to a group, or take its last ones out. Raises UsageError: there is no such group."""
    every = simulation.world.all(NODE)
    groups: dict[str, list[JsonObject]] = {}
    for node in every:
        groups.setdefault(group_of(node), []).append(node)
    if change.target not in groups:
        raise UsageError(f"--nodes: no group {change.target}; there is {', '.join(sorted(groups)) or 'no node'}")
    mine = sorted(groups[change.target], key=lambda node: _natural(objects.name(node)))
    wanted = _bounded("--nodes", change.target, change.of(len(mine)))
    for node in mine[wanted:]:
        simulation.remove_node(node)
    for node in new_nodes(mine[-1], wanted - len(mine), map(objects.name, every)):
        simulation.put(node)


def change_replicas(simulation: Simulation, change: Change) -> None:
    """Scale the workloads whose name, or namespace/name, fits the pattern. Raises UsageError: none does."""
    whole = "/" in change.target
    known = [(kind, one) for kind in SCALED for one in simulation.world.all(kind) if objects.controller_of(one) is None]
    fitting = [
        (kind, one) for kind, one in known
        if fnmatchcase(str(objects.key(one)) if whole else objects.name(one), change.target)
    ]  # fmt: skip
    if not fitting:
        names = _some(sorted(str(objects.key(one)) for _, one in known))
        raise UsageError(f"--replicas: no workload with replicas matches {change.target}; there is {names}")
    for kind, one in fitting:
        before = objects.spec(one).get("replicas")
        after = _bounded("--replicas", str(objects.key(one)), change.of(1 if before is None else int(before)))
        simulation.world.put(kind, {**one, "spec": {**objects.spec(one), "replicas": after}})


def _bounded(option: str, target: str, count: int) -> int:
    if count > _MOST:
        raise UsageError(f"{option} {target}: {count} is more than {_MOST}")
    return count


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 5} more" if names[5:] else ""
    return f"{', '.join(names[:5])}{more}" if names else "none"


def _natural(name: str) -> list[tuple[int, str]]:
    """Return what orders names by the numbers in them: node-9 before node-10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in _NUMBER.split(name)]
