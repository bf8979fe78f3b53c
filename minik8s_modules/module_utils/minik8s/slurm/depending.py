"""Jobs that wait for others: what ``--dependency`` says of a job. Pure.

Slurm forgets jobs some minutes after their end, and takes a dependency on one that it does not know as it likes. So of
a job that has ended it is decided here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..core.faults import KeyFault

KINDS = ("after", "afterany", "afterok", "afternotok")
NEVER = "DependencyNeverSatisfied"
"""Slurm's own word, which squeue shows where it decides so."""


class Known(NamedTuple):
    """What is known of a job: its id while it is in the queue and has not ended, and how it ended."""

    live: int | None = None
    ended: Mapping[str, Any] | None = None


def check(key: str, after: Mapping[str, str] | None) -> None:
    """Raise KeyFault for what is no dependency."""
    for uid, kind in (after or {}).items():
        if kind not in KINDS or uid == key:
            raise KeyFault("InvalidEntry", f"{key}.after[{uid!r:.80}] {kind!r:.80} must be one of {', '.join(KINDS)}")


def option(after: Mapping[str, str] | None, known: Mapping[str, Known]) -> str:
    """Return sbatch's ``--dependency``.

    Raises:
        KeyFault: AwaitsDependency, one of them is not submitted yet; DependencyNeverSatisfied, one has ended otherwise.
    """
    # should an answer have been lost, the second job of a name waits, and is cancelled
    parts = ["singleton"]
    for uid, kind in sorted((after or {}).items()):
        job = known.get(uid, Known())
        if job.live is not None:
            parts.append(f"{kind}:{job.live}")
        elif job.ended is None:
            raise KeyFault("AwaitsDependency", f"the job of {uid}, which it waits for, is not submitted yet")
        elif not _holds(kind, job.ended):
            raise KeyFault(
                NEVER, f"it waits for {kind} of a job that was {job.ended['state']} ({job.ended.get('code')})"
            )
    return "--dependency=" + ",".join(parts)


def _holds(kind: str, ended: Mapping[str, Any]) -> bool:
    good = ended["state"] == "COMPLETED" and str(ended.get("code") or "0:0") == "0:0"
    return {"afterok": good, "afternotok": not good}.get(kind, True)
