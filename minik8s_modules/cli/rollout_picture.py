"""What a rollout looks like: a progress bar, a line a revision, what holds it up; and kubectl's words for it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import DAEMON_SET, DEPLOYMENT, STATEFUL_SET, Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.cli.output import BOLD, GREEN, RED, YELLOW, Paint

REVISION = "deployment.kubernetes.io/revision"
BAR = 30
_SHOWN_TROUBLES = 3


class Verdict(NamedTuple):
    """How far a rollout has come: what to tell, whether it is over, and whether it failed."""

    text: str
    done: bool = False
    failed: bool = False


def _count(obj: JsonObject, field: str) -> int:
    return int(objects.status(obj).get(field) or 0)


def _wanted(obj: JsonObject) -> int:
    replicas = objects.spec(obj).get("replicas")
    return 1 if replicas is None else int(replicas)


def verdict(kind: Kind, obj: JsonObject) -> Verdict:
    """Return how far the rollout of ``obj`` has come, in kubectl's words (``polymorphichelpers/rollout_status.go``)."""
    if _count(obj, "observedGeneration") < objects.generation(obj):
        return Verdict(f"Waiting for {kind.singular_name} spec update to be observed...")
    return _VERDICTS[kind](obj)


def _deployment(obj: JsonObject) -> Verdict:
    name, wanted, updated = objects.name(obj), _wanted(obj), _count(obj, "updatedReplicas")
    progress = objects.condition(obj, "Progressing") or {}
    waiting = f'Waiting for deployment "{name}" rollout to finish:'
    if progress.get("reason") == "ProgressDeadlineExceeded":
        return Verdict(f'deployment "{name}" exceeded its progress deadline', done=True, failed=True)
    if updated < wanted:
        return Verdict(f"{waiting} {updated} out of {wanted} new replicas have been updated...")
    if (old := _count(obj, "replicas") - updated) > 0:
        return Verdict(f"{waiting} {old} old replicas are pending termination...")
    if (able := _count(obj, "availableReplicas")) < updated:
        return Verdict(f"{waiting} {able} of {updated} updated replicas are available...")
    return Verdict(f'deployment "{name}" successfully rolled out', done=True)


def _daemon_set(obj: JsonObject) -> Verdict:
    name, wanted = objects.name(obj), _count(obj, "desiredNumberScheduled")
    updated, able = _count(obj, "updatedNumberScheduled"), _count(obj, "numberAvailable")
    waiting = f'Waiting for daemon set "{name}" rollout to finish:'
    if (objects.spec(obj).get("updateStrategy") or {}).get("type") != "RollingUpdate":
        return Verdict("rollout status is only available for RollingUpdate strategy type", done=True, failed=True)
    if updated < wanted:
        return Verdict(f"{waiting} {updated} out of {wanted} new pods have been updated...")
    if able < wanted:
        return Verdict(f"{waiting} {able} of {wanted} updated pods are available...")
    return Verdict(f'daemon set "{name}" successfully rolled out', done=True)


def _stateful_set(obj: JsonObject) -> Verdict:
    wanted, ready, updated = _wanted(obj), _count(obj, "readyReplicas"), _count(obj, "updatedReplicas")
    strategy = objects.spec(obj).get("updateStrategy") or {}
    if strategy.get("type") != "RollingUpdate":
        return Verdict("rollout status is only available for RollingUpdate strategy type", done=True, failed=True)
    if ready < wanted:
        return Verdict(f"Waiting for {wanted - ready} pods to be ready...")
    partition = int((strategy.get("rollingUpdate") or {}).get("partition") or 0)
    if partition:
        if updated < wanted - partition:
            told = f"Waiting for partitioned roll out to finish: {updated} out of {wanted - partition} new pods"
            return Verdict(f"{told} have been updated...")
        return Verdict(f"partitioned roll out complete: {updated} new pods have been updated...", done=True)
    now, then = (str(objects.status(obj).get(field) or "") for field in ("updateRevision", "currentRevision"))
    if now != then:
        return Verdict(f"waiting for statefulset rolling update to complete {updated} pods at revision {now}...")
    current = _count(obj, "currentReplicas")
    return Verdict(f"statefulset rolling update complete {current} pods at revision {then}...", done=True)


_VERDICTS: dict[Kind, Callable[[JsonObject], Verdict]] = {
    DEPLOYMENT: _deployment,
    DAEMON_SET: _daemon_set,
    STATEFUL_SET: _stateful_set,
}


def bar(done: int, begun: int, total: int, paint: Paint, width: int = BAR) -> str:
    """Return ``[███▒▒···]``: available, made but not yet available, missing."""
    if total <= 0:
        return f"[{paint('█' * width, GREEN)}]"
    filled = min(done * width // total, width)
    light = min(max(begun, done) * width // total, width) - filled
    return f"[{paint('█' * filled, GREEN)}{paint('▒' * light, YELLOW)}{'·' * (width - filled - light)}]"


def picture(
    kind: Kind, obj: JsonObject, sets: Sequence[JsonObject], troubles: Sequence[str], paint: Paint, width: int = 200
) -> list[str]:
    """Return the lines to show: the bar, the revisions with copies, what keeps pods from being ready.

    Args:
        kind: of ``obj``.
        obj: the workload.
        sets: a deployment's replica sets; empty for other kinds.
        troubles: causes, one a pod.
        paint: colours.
        width: of the terminal; longer lines are cut, since what wraps cannot be drawn over.
    """
    total = _wanted(obj) if kind != DAEMON_SET else _count(obj, "desiredNumberScheduled")
    updated = _count(obj, "updatedNumberScheduled" if kind == DAEMON_SET else "updatedReplicas")
    new, old = _newest(sets)
    able = min(updated, _count(new, "availableReplicas") if new else _available(obj))
    name = paint(f"{kind.singular_name}/{objects.name(obj)}", BOLD)
    lines = [f"{name}  {bar(able, updated, total, paint)} {able}/{total} new pods available"]
    if new is not None:
        told = [_set_line("new", new), *(_set_line("old", each) for each in old if _count(each, "replicas"))]
        lines += [line[:width] for line in told]
    lines += [paint(f"  ! {trouble}"[:width], RED) for trouble in troubles[:_SHOWN_TROUBLES]]
    if len(troubles) > _SHOWN_TROUBLES:
        lines.append(paint(f"  ! and {len(troubles) - _SHOWN_TROUBLES} pods more", RED))
    return lines


def _available(obj: JsonObject) -> int:
    return max(_count(obj, "availableReplicas"), _count(obj, "numberAvailable"))


def _newest(sets: Sequence[JsonObject]) -> tuple[JsonObject | None, list[JsonObject]]:
    ordered = sorted(sets, key=revision_of, reverse=True)
    return (ordered[0], ordered[1:]) if ordered else (None, [])


def _set_line(which: str, replica_set: JsonObject) -> str:
    able, there = _count(replica_set, "availableReplicas"), _count(replica_set, "replicas")
    return f"  {which}  revision {revision_of(replica_set):<3} {objects.name(replica_set)}  {able} of {there} available"


def revision_of(obj: JsonObject) -> int:
    """Return the revision that an annotation says; 0 without one."""
    text = objects.annotations(obj).get(REVISION, "")
    return int(text) if text.isdigit() else 0
