"""What a rollout looks like: a progress bar, a line a revision, and what holds it up. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import DAEMON_SET, Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.cli.output import BOLD, GREEN, RED, YELLOW, Paint

REVISION = "deployment.kubernetes.io/revision"
BAR = 30
_SHOWN_TROUBLES = 3


def _count(obj: JsonObject, field: str) -> int:
    return int(objects.status(obj).get(field) or 0)


def _wanted(obj: JsonObject) -> int:
    replicas = objects.spec(obj).get("replicas")
    return 1 if replicas is None else int(replicas)


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
        rows = [_set_line("new", new), *(_set_line("old", each) for each in old if _count(each, "replicas"))]
        lines += [line[:width] for line in rows]
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
