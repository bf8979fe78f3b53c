"""A pass in which Slurm says again what it said before, and nothing else is declared: it ends with that.

To check thousands of declared jobs, and to look for each one's folder, is most of what a pass costs. What a pass with
nothing to do had found is noted; only what it had looked at without Slurm, folders and Slurm's file of completed jobs,
is not looked at then, so a caller asks for a whole pass now and then.
"""

from __future__ import annotations

import os
from typing import Any

from ..core.digests import canonical
from ..core.fencing import hold_node
from ..core.files import read_json, write_atomically
from ..core.paths import document_path
from ..core.section import Context, Request, run_pass
from .jobs import LOST, SlurmJobs, digest_of
from .queue import Slurm

_FILE = "quiet.json"


def run(
    slurm: Slurm, request: Request, context: Context, *, seen: str = "", check: bool = False, whole: bool = True
) -> dict[str, Any]:
    """Return the result of a pass, with the digest of its status; where that is ``seen``, the status is left out.

    Raises:
        PassFault: as ``run_pass``.
    """
    is_delta = request.mode == "delta" and not (request.upsert or request.delete or request.token)
    if is_delta and seen and not check and not whole:
        with hold_node(request.state_dir):
            if _is_as_noted(slurm, request, seen):
                return _nothing(request, seen)
    before = _written(request.state_dir)
    result = run_pass(SlurmJobs(slurm), request, context, check=check)
    now = digest_of(result["status"])
    if not check and before == _written(request.state_dir):  # else it is not known what was declared by whom
        _note(request, result, _facts(slurm.last_answer, before, result["digest"], now))
    same = bool(seen) and seen == now
    return {**result, "status": {} if same else result["status"], "seen": now, "unchanged": same}


def _is_as_noted(slurm: Slurm, request: Request, seen: str) -> bool:
    """Return whether nothing differs from what was noted; Slurm is asked only where nothing else does.

    Raises:
        PassFault: Slurm did not answer.
    """
    noted = _noted(request.state_dir)
    answer = noted.get("answer") if isinstance(noted, dict) else None
    if not isinstance(answer, str) or noted != _facts(answer, _written(request.state_dir), str(request.base), seen):
        return False
    return slurm.glance(request.node) == answer


def _facts(answer: str, written: list[int], declared: str, seen: str) -> dict[str, Any]:
    return {"declared": declared, "written": written, "seen": seen, "answer": answer}


def _written(state_dir: str) -> list[int]:
    """Return what tells the file of the declared set from any other that was there."""
    try:
        file = os.stat(document_path(state_dir, SlurmJobs.name))
    except OSError:
        return []
    return [file.st_mtime_ns, file.st_size, file.st_ino]


def _noted(state_dir: str) -> Any:
    return read_json(os.path.join(state_dir, _FILE))


def _note(request: Request, result: dict[str, Any], facts: dict[str, Any]) -> None:
    """Keep what a pass found that had nothing to do, and leaves nothing to be done or to be found out."""
    open_ends = any(result[name] for name in ("steps", "errors", "due", "held", "base_mismatch", "fenced"))
    if open_ends or any(one is None or one["state"] == LOST for one in result["status"].values()):
        return
    with hold_node(request.state_dir):
        if _noted(request.state_dir) != facts:
            write_atomically(os.path.join(request.state_dir, _FILE), canonical(facts))


def _nothing(request: Request, seen: str) -> dict[str, Any]:
    return {
        "changed": False, "diff": {"before": "", "after": ""}, "section": SlurmJobs.name, "digest": request.base,
        "steps": [], "status": {}, "errors": {}, "due": [], "held": [], "base_mismatch": False, "fenced": False,
        "seen": seen, "unchanged": True,
    }  # fmt: skip
