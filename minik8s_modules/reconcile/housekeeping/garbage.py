"""Which dead containers of a node go: kubelet's container garbage collection. Pure; ``housekeeping.py`` carries it out.

Source: pkg/kubelet/kuberuntime/kuberuntime_gc.go, of v1.2 pkg/kubelet/dockertools/container_gc.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta
from typing import NamedTuple

from minik8s_modules.reconcile.pods.observed import ObservedContainer


class ContainerPolicy(NamedTuple):
    """When dead containers go; a negative number switches that limit off. Defaults are kubelet's (v1.2)."""

    min_age_s: float = 60.0
    max_per_container: int = 2
    max_containers: int = 100


Unit = tuple[str, str]
"""UID of a pod and name of one of its containers."""


def plan_containers(
    containers: Iterable[ObservedContainer],
    living: AbstractSet[str],
    policy: ContainerPolicy,
    now: datetime,
    *,
    sources_ready: bool = True,
) -> list[str]:
    """Return the ids of the containers to remove, in order.

    Args:
        containers: ours on the node, all of them; nobody else's.
        living: UIDs of the pods that exist.
        policy: the limits.
        now: the present.
        sources_ready: whether all sources of pods have told theirs; else no pod counts as gone.
    """
    everything = list(containers)
    dead = [one for one in everything if not one.alive and _age(one, now) >= timedelta(seconds=policy.min_age_s)]
    dead.sort(key=lambda one: (one.created_at is not None, one.created_at, one.id))
    units: dict[Unit, list[ObservedContainer]] = {}
    doomed: list[ObservedContainer] = []
    for one in dead:
        if one.type == "sandbox":
            continue
        if not one.pod_uid or not one.container or (sources_ready and one.pod_uid not in living):
            doomed.append(one)
        else:
            units.setdefault((one.pod_uid, one.container), []).append(one)
    for rows in units.values():
        doomed += _trim(rows, policy.max_per_container)
    doomed += _over_all(units, policy.max_containers)
    return [one.id for one in (*doomed, *_sandboxes(everything, dead, living, sources_ready=sources_ready))]


def _age(one: ObservedContainer, now: datetime) -> timedelta:
    return now - one.created_at if one.created_at is not None else timedelta.max


def _trim(rows: list[ObservedContainer], most: int) -> list[ObservedContainer]:
    """Take the oldest out of ``rows``, in place, until ``most`` are left; a negative number takes none."""
    if most < 0:
        return []
    gone = rows[: max(0, len(rows) - most)]
    del rows[: len(gone)]
    return gone


def _over_all(units: dict[Unit, list[ObservedContainer]], most: int) -> list[ObservedContainer]:
    """Take out, in place, what is more than ``most`` over all units: first evenly, then the oldest."""
    left = sum(map(len, units.values()))
    if most < 0 or left <= most:
        return []
    quota = max(1, most // len(units))
    gone = [one for rows in units.values() for one in _trim(rows, quota)]
    if left - len(gone) > most:
        rest = sorted(
            (one for rows in units.values() for one in rows),
            key=lambda one: (one.created_at is not None, one.created_at, one.id),
        )
        gone += rest[: left - len(gone) - most]
    return gone


def _sandboxes(
    everything: Sequence[ObservedContainer],
    dead: Iterable[ObservedContainer],
    living: AbstractSet[str],
    *,
    sources_ready: bool,
) -> list[ObservedContainer]:
    """Return dead sandboxes whose pod has no container left, but for the newest one of a pod that exists."""
    inhabited = {one.pod_uid for one in everything if one.type != "sandbox"}
    newest: dict[str, ObservedContainer] = {}
    for one in everything:
        if one.type == "sandbox" and (one.pod_uid not in newest or one.attempt > newest[one.pod_uid].attempt):
            newest[one.pod_uid] = one
    return [
        one
        for one in dead
        if one.type == "sandbox"
        and one.pod_uid not in inhabited
        and not ((one.pod_uid in living or not sources_ready) and newest[one.pod_uid].id == one.id)
    ]
