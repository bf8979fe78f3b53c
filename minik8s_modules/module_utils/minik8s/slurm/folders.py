"""The folder of a job: ``<state_dir>/jobs/<uid>``, closed to others, seen by login machine and compute nodes alike.

record.json   whose it is, its id once known, and how it ended
job           what Slurm runs: sees to it that the program runs once, and notes how it ended
program       the entry's script
environment   exported variables; the only place where their values stand
work/         where the program runs, with its sources
output        what it prints
started       a link to the id of the job that ran, made before the program starts
ended         the program's exit code
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shlex
import shutil
import stat
from collections.abc import Mapping
from typing import Any

from ..core.digests import canonical
from ..core.files import write_atomically
from ..core.paths import component, relative

MESSAGE_BYTES = 4096
TAIL_BYTES = 2048
RECORD_BYTES = 64 * 1024
"""Of a record at most: the program could write there what it likes."""
_CODE_BYTES, _LARGEST_CODE = 4, 255
JOB = """#!/bin/bash
# Of minik8s: {comment}
cd {folder} || exit 72
# A job that was submitted twice, its first answer lost, runs once; one that Slurm requeued has the same id.
ln -s "$SLURM_JOB_ID" started 2>/dev/null || [ "$(readlink started)" = "$SLURM_JOB_ID" ] || exit 0
rm -f ended
set -a
. ./environment
set +a
export MINIK8S_TERMINATION_LOG={folder}/termination-log
cd work || exit 72
../program
code=$?
printf '%s\\n' "$code" > ../ended.new && mv ../ended.new ../ended
exit "$code"
"""


def home_of(node: str) -> str:
    """Return where one owner's jobs are kept unless somebody says otherwise."""
    return os.path.join(os.path.expanduser("~/.minik8s/slurm"), component(node))


def jobs_dir(state_dir: str) -> str:
    """Return the folder of all jobs' folders."""
    return os.path.join(state_dir, "jobs")


def job_dir(state_dir: str, uid: str) -> str:
    """Return the folder of one job."""
    return os.path.join(jobs_dir(state_dir), component(uid))


def known(state_dir: str) -> set[str]:
    """Return the uids of all jobs that have a folder."""
    with contextlib.suppress(FileNotFoundError):
        return set(os.listdir(jobs_dir(state_dir)))
    return set()


def record(state_dir: str, uid: str) -> dict[str, Any] | None:
    """Return what is noted of a job, None where it was never about to be submitted, or nothing of ours stands there."""
    data = _content(os.path.join(job_dir(state_dir, uid), "record.json"), RECORD_BYTES + 1)
    try:
        found = json.loads(data) if data and len(data) <= RECORD_BYTES else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    return {name: value for name, value in found.items() if _is_of_a_record(name, value)}


def _is_of_a_record(name: str, value: Any) -> bool:
    """Return whether a record may say so: its id decides which job counts, its end what is told of it."""
    if name == "id":
        return isinstance(value, int) and not isinstance(value, bool)
    if name == "ended":
        return isinstance(value, dict) and isinstance(value.get("state"), str) and all(map(_travels, value.values()))
    return name == "owner" and isinstance(value, str)


def _travels(value: Any) -> bool:
    """Return whether a value can be told to the provider, with those of all other jobs."""
    if isinstance(value, str):
        return not any("\ud800" <= one <= "\udfff" for one in value)
    return value is None or (isinstance(value, int) and abs(value) < 1 << 63)


def note(state_dir: str, uid: str, **changes: Any) -> None:
    """Note something of a job, beside what is noted."""
    noted = {**(record(state_dir, uid) or {}), **changes}
    write_atomically(os.path.join(job_dir(state_dir, uid), "record.json"), canonical(noted), sync=True)


def has_started(state_dir: str, uid: str) -> bool:
    """Return whether the program was ever about to run."""
    return os.path.islink(os.path.join(job_dir(state_dir, uid), "started"))


def exit_code(state_dir: str, uid: str) -> int | None:
    """Return the program's exit code where it ended by itself."""
    code = _end_of(os.path.join(job_dir(state_dir, uid), "ended"), _CODE_BYTES).strip()
    return int(code) if code.isascii() and code.isdigit() and int(code) <= _LARGEST_CODE else None


def last_words(state_dir: str, uid: str) -> dict[str, str]:
    """Return what the program left as its message, and the end of its output."""
    folder = job_dir(state_dir, uid)
    return {
        "message": _end_of(os.path.join(folder, "termination-log"), MESSAGE_BYTES),
        "tail": _end_of(os.path.join(folder, "output"), TAIL_BYTES),
    }


def _end_of(path: str, size: int) -> str:
    return _content(path, size, whence=os.SEEK_END).decode("utf-8", "replace").replace("\0", "�")


def _content(path: str, size: int, whence: int = os.SEEK_SET) -> bytes:
    """Return the first, or the last, ``size`` bytes of a plain file, nothing of what is none.

    The program may have put anything there, a link or a pipe too.
    """
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as source:
            told = os.fstat(source.fileno())
            if not stat.S_ISREG(told.st_mode):
                return b""
            source.seek(max(0, told.st_size - size) if whence == os.SEEK_END else 0)
            return source.read(size)
    except OSError:
        return b""


def prepare(state_dir: str, uid: str, entry: Mapping[str, Any], values: Mapping[str, Any], comment: str) -> str:
    """Write what the job needs, and return its folder."""
    folder = job_dir(state_dir, uid)
    work = os.path.join(folder, "work")
    os.makedirs(work, mode=0o700, exist_ok=True)
    files = {path: text.encode() for path, text in (entry["sources"] or {}).items()}
    files.update({path: base64.b64decode(data) for path, data in (values.get("files") or {}).items()})
    for path, data in files.items():
        write_atomically(os.path.join(work, relative(path)), data)
    job = JOB.format(comment=comment, folder=shlex.quote(os.path.abspath(folder)))
    write_atomically(os.path.join(folder, "environment"), exports(values.get("environment") or {}).encode())
    write_atomically(os.path.join(folder, "program"), entry["script"].encode(), 0o700)
    write_atomically(os.path.join(folder, "job"), job.encode(), 0o700)
    return folder


def exports(environment: Mapping[str, str]) -> str:
    """Return assignments that a shell reads back to the same values."""
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in environment.items())


def remove(state_dir: str, uid: str) -> None:
    """Delete a job's folder; no link in it is followed."""
    shutil.rmtree(job_dir(state_dir, uid))
