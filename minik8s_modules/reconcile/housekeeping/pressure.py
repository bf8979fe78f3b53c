"""Pressure on a node: thresholds, conditions, taints, and what is left for pods. Pure.

A condition holds while its threshold is met and for a time after (kubelet's evictionPressureTransitionPeriod), so that
a node does not swing. Source: pkg/kubelet/eviction/helpers.go, pkg/kubelet/nodestatus/setters.go.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.pods import huge_pages
from minik8s_modules.api.quantities import parse
from minik8s_modules.base.errors import ConfigurationError

MEMORY, DISK, INODES, PIDS = "memory.available", "nodefs.available", "nodefs.inodesFree", "pid.available"
SIGNALS = (MEMORY, DISK, INODES, PIDS)
KUBELETS = {MEMORY: "100Mi", DISK: "10%", INODES: "5%"}
"""kubelet's default evictionHard."""
TRANSITION_S = 300.0
_PERCENT = re.compile(r"([0-9]{1,2}|100)%")


class Available(NamedTuple):
    """How much of something is left, out of how much."""

    left: int
    capacity: int


class Threshold(NamedTuple):
    """Met when less than ``amount``, or less than ``percent`` of the capacity, is left; ``text`` as configured."""

    signal: str
    amount: int
    percent: int
    text: str

    def of(self, capacity: int) -> int:
        """Return the amount below which it is met."""
        return capacity * self.percent // 100 if self.percent else self.amount

    def met(self, found: Available) -> bool:
        """Return whether too little is left."""
        return found.left < self.of(found.capacity)


def thresholds(configured: Mapping[str, Any]) -> tuple[Threshold, ...]:
    """Return the thresholds of ``{signal: quantity or percentage}``.

    Raises:
        ConfigurationError: a signal is not known, or a value cannot be read.
    """
    return tuple(
        _threshold(signal, str(value)) for signal, value in configured.items() if value not in (None, "", "0%")
    )


def _threshold(signal: str, text: str) -> Threshold:
    if signal not in SIGNALS:
        raise ConfigurationError(f"eviction_hard: {signal} is not a signal; known are {', '.join(SIGNALS)}")
    match = _PERCENT.fullmatch(text)
    if match:
        return Threshold(signal, 0, int(match[1]), text)
    try:
        return Threshold(signal, int(parse(text)), 0, text)
    except ValueError as error:
        raise ConfigurationError(f"eviction_hard: {signal}: {text!r} is neither a quantity nor a percentage") from error


def signals(machine: Mapping[str, Any] | None) -> dict[str, Available]:
    """Return what the gateway's reading of a machine says about each signal; what it lacks is left out."""
    if machine is None:
        return {}
    found = {
        MEMORY: Available(int(machine["memory_available_bytes"]), int(machine["memory_bytes"])),
        PIDS: Available(int(machine["most_processes"]) - int(machine["processes"]), int(machine["most_processes"])),
    }
    disk = machine.get("disk")
    if disk:
        found[DISK] = Available(int(disk["available_bytes"]), int(disk["capacity_bytes"]))
        if disk["inodes"]:  # some file systems count none
            found[INODES] = Available(int(disk["inodes_free"]), int(disk["inodes"]))
    return found


class _Kind(NamedTuple):
    signals: tuple[str, ...]
    taint: str
    bad: tuple[str, str]
    good: tuple[str, str]


CONDITIONS: Mapping[str, _Kind] = {
    "MemoryPressure": _Kind(
        (MEMORY,), "node.kubernetes.io/memory-pressure",
        ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available"),
        ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ),
    "DiskPressure": _Kind(
        (DISK, INODES), "node.kubernetes.io/disk-pressure",
        ("KubeletHasDiskPressure", "kubelet has disk pressure"),
        ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ),
    "PIDPressure": _Kind(
        (PIDS,), "node.kubernetes.io/pid-pressure",
        ("KubeletHasInsufficientPID", "kubelet has insufficient PID available"),
        ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ),
}  # fmt: skip
TAINTS = frozenset(kind.taint for kind in CONDITIONS.values())


def met(limits: tuple[Threshold, ...], found: Mapping[str, Available]) -> list[Threshold]:
    """Return the thresholds that are met now."""
    return [one for one in limits if one.signal in found and one.met(found[one.signal])]


def under_pressure(last_met_s: Mapping[str, float], now_s: float, transition_s: float = TRANSITION_S) -> frozenset[str]:
    """Return the conditions that hold, given when (monotonic seconds) each signal's threshold was last met."""
    recent = {signal for signal, at_s in last_met_s.items() if now_s - at_s < transition_s or at_s >= now_s}
    return frozenset(name for name, kind in CONDITIONS.items() if recent & set(kind.signals))


def conditions(node: JsonObject, pressure: frozenset[str], now: str) -> list[JsonObject]:
    """Return the three conditions; the times of one that keeps its state are kept."""
    return [_condition(objects.condition(node, name), name, name in pressure, now) for name in CONDITIONS]


def _condition(before: JsonObject | None, name: str, holds: bool, now: str) -> JsonObject:  # noqa: FBT001 - a state
    kind, state = CONDITIONS[name], "True" if holds else "False"
    reason, message = kind.bad if holds else kind.good
    kept = before is not None and before.get("status") == state
    return {
        "type": name,
        "status": state,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": (before or {}).get("lastHeartbeatTime") or now if kept else now,
        "lastTransitionTime": (before or {}).get("lastTransitionTime") or now if kept else now,
    }


def taints(node: JsonObject, pressure: frozenset[str]) -> list[JsonObject] | None:
    """Return the taints the node must have, None when it has them; taints of others stay."""
    before = objects.spec(node).get("taints") or []
    wanted = {kind.taint for name, kind in CONDITIONS.items() if name in pressure}
    kept = [one for one in before if one.get("key") not in TAINTS or one.get("key") in wanted]
    there = {one.get("key") for one in kept}
    after = kept + [{"key": key, "effect": "NoSchedule"} for key in sorted(wanted - there)]
    return None if after == before else after


def reserved(configured: Mapping[str, str], limits: tuple[Threshold, ...]) -> dict[str, str]:
    """Return what of a node's capacity pods do not get, by resource: what is reserved, and what eviction keeps free."""
    kept = {"memory": MEMORY, "ephemeral-storage": DISK}
    found = dict(configured)
    for resource, signal in kept.items():
        for one in limits:
            if one.signal == signal:
                found[f"{resource}%" if one.percent else f"{resource}+"] = str(one.percent or one.amount)
    return found


def allocatable(capacity: Mapping[str, str], kept: Mapping[str, str]) -> dict[str, str]:
    """Return ``capacity`` less what ``reserved`` says; huge pages are no memory for anything else."""
    found = dict(capacity)
    huge = sum(int(parse(amount)) for name, amount in capacity.items() if huge_pages.is_resource(name))
    if "cpu" in kept and "cpu" in capacity:
        found["cpu"] = f"{int((parse(capacity['cpu']) - parse(kept['cpu'])) * 1000)}m"
    for resource in ("memory", "ephemeral-storage"):
        if resource not in capacity:
            continue
        whole = int(parse(capacity[resource]))
        less = int(parse(kept.get(resource, "0"))) + int(kept.get(f"{resource}+", "0"))
        less += whole * int(kept.get(f"{resource}%", "0")) // 100 + (huge if resource == "memory" else 0)
        if less:
            found[resource] = f"{max(0, whole - less) // 1024}Ki"
    return found
