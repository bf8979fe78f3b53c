"""Slurm's own commands, each with a time limit: an answer, or a fault that says that nothing is known.

``squeue`` is asked once a pass for all jobs of the user, never once a job. Texts that users choose (comment, name)
stand last in its lines, so that nothing they contain moves another field.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..core.faults import KeyFault, PassFault

ASK_S = 20.0  # squeue tries for minutes where its controller is away
SUBMIT_S = 30.0
UNAVAILABLE = "SlurmUnavailable"
NAME = "minik8s-"
MARK = "minik8s:"
WAITING = frozenset({"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"})
LIVE = WAITING | {
    "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "RESIZING", "STAGE_OUT", "SIGNALING", "STOPPED",
}  # fmt: skip
"""States of squeue(1) in which a job has not ended, and may run again."""
_AWAY = ("Unable to contact slurm controller", "Socket timed out", "Zero Bytes were transmitted", "munge")
_QUEUE = "%T|%e|%S|%i|%N|%V|%r|%j|%k"  # state, ended, started, id, nodes, submitted, reason, name, comment
_FIELDS = 9
_NO_TIME = frozenset({"N/A", "NONE", "Unknown"})
_CODES = "JobID:24|,exit_code:24|"
_COMPLETED = re.compile(
    r"JobId=(?P<id>\d+) UserId=[^ ]*\((?P<user>\d+)\) GroupId=[^ ]* Name=minik8s-(?P<uid>[^ ]+)"
    r" JobState=(?P<state>\w+) .* NodeList=(?P<node>[^ ]*) .*ExitCode=(?P<code>\d+:\d+)"
)
COMPLETED_BYTES = 16 << 20  # of the end of jobcomp.txt; a job that is looked for there ended lately


class Job(NamedTuple):
    """One job of this owner's as squeue tells it; times are ISO 8601 in UTC, "" where there is none yet."""

    id: int
    state: str
    node: str = ""
    submitted: str = ""
    started: str = ""
    ended: str = ""
    reason: str = ""

    @property
    def is_live(self) -> bool:
        """Return whether it has not ended."""
        return self.state in LIVE


class Slurm:
    """The commands of one cluster; ``commands`` is a folder that is looked into first."""

    def __init__(self, commands: str = "", completed: str = "") -> None:
        self._completed = completed
        self.last_answer = ""
        """What tells the last answer of ``jobs`` or ``glance`` from another one."""
        path = os.environ.get("PATH") or os.defpath
        self._env = {name: os.environ[name] for name in ("HOME", "USER", "LOGNAME") if name in os.environ}
        self._env["PATH"] = f"{commands}:{path}" if commands else path
        self._env["LC_ALL"] = "C"

    def jobs(self, owner: str) -> dict[str, list[Job]]:
        """Return the user's jobs that this owner's comment marks, by uid; for some minutes also those that have ended.

        Raises:
            PassFault: Slurm did not answer; the state of jobs is unknown then.
        """
        return parse_queue(self._asked_for_jobs(owner), owner)

    def glance(self, owner: str) -> str:
        """Return ``last_answer`` of a new answer that nobody parses. Raises as ``jobs`` does."""
        self._asked_for_jobs(owner)
        return self.last_answer

    def _asked_for_jobs(self, owner: str) -> str:
        text = self._ask("squeue", "--me", "--noheader", "--states=all", f"--format={_QUEUE}")
        self.last_answer = told(text, owner)
        return text

    def exit_codes(self) -> dict[int, str]:
        """Return ``code:signal`` of the user's jobs that have ended lately. Raises as ``jobs`` does."""
        lines = self._ask("squeue", "--me", "--noheader", "--states=all", f"--Format={_CODES}").splitlines()
        rows = (line.replace(" ", "").split("|") for line in lines)
        return {int(row[0]): row[1] for row in rows if row[0].isdigit()}

    def partition(self, name: str) -> dict[str, Any]:
        """Return what a partition has; ``nodes`` is 0 where there is none of that name. Raises as ``jobs`` does."""
        lines = self._ask("sinfo", "--noheader", "--Node", f"--partition={name}", "--format=%T|%c|%m|%a|%l|%R|%G")
        return parse_partition(lines, name)

    def completed(self) -> dict[str, dict[str, Any]]:
        """Return what jobcomp.txt tells of this user's jobs of ours, by uid; nothing where it is not to be read."""
        if not self._completed:
            return {}
        try:
            with open(self._completed, "rb") as source:
                source.seek(max(0, source.seek(0, os.SEEK_END) - COMPLETED_BYTES))
                return parse_completed(source.read().decode("utf-8", "replace"), os.getuid())
        except OSError:
            return {}

    def submit(self, argv: Sequence[str], folder: str) -> int:
        """Submit ``folder``'s script and return the job's id.

        Raises:
            KeyFault: Slurm refused it, or did not answer (it may have taken the job all the same).
        """
        try:
            done = self._run(["sbatch", "--parsable", *argv], SUBMIT_S, cwd=folder)
        except subprocess.TimeoutExpired:
            raise KeyFault(UNAVAILABLE, f"sbatch gave no answer in {SUBMIT_S:g} s") from None
        first = done.stdout.strip().partition(";")[0]
        if done.returncode or not first.isdigit():
            raise _refusal("SubmitFailed", done.stderr.strip() or f"sbatch said {done.stdout.strip()!r:.200}")
        return int(first)

    def cancel(self, ids: Iterable[int]) -> None:
        """Cancel jobs; one that has ended meanwhile is no fault. Raises KeyFault."""
        try:
            done = self._run(["scancel", *map(str, ids)], ASK_S)
        except subprocess.TimeoutExpired:
            raise KeyFault(UNAVAILABLE, f"scancel gave no answer in {ASK_S:g} s") from None
        if done.returncode:
            raise _refusal("CancelFailed", done.stderr.strip())

    def _ask(self, *argv: str) -> str:
        try:
            done = self._run(argv, ASK_S)
        except FileNotFoundError:
            raise PassFault(
                f"{argv[0]} does not exist: set the option commands to the folder of Slurm's commands"
            ) from None
        except subprocess.TimeoutExpired:
            raise PassFault(f"Slurm gave {argv[0]} no answer in {ASK_S:g} s; the state of jobs is unknown") from None
        if done.returncode:
            raise PassFault(f"{argv[0]} failed; the state of jobs is unknown: {done.stderr.strip()[-500:]}")
        return done.stdout

    def _run(self, argv: Sequence[str], timeout_s: float, cwd: str = "/") -> subprocess.CompletedProcess[str]:
        zone = {} if argv[0] == "sbatch" else {"TZ": "UTC"}  # a job would inherit it
        return subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False,
            timeout=timeout_s, cwd=cwd, env={**self._env, **zone},
        )  # fmt: skip


def _refusal(reason: str, said: str) -> KeyFault:
    away = any(words in said for words in _AWAY)
    return KeyFault(UNAVAILABLE if away else reason, said[-500:].removeprefix("sbatch: error: "))


def comment(owner: str, uid: str, name: str) -> str:
    """Return what marks a job as this owner's."""
    return f"{MARK}{owner}:{uid}:{name}"


def told(text: str, owner: str) -> str:
    """Return what tells an answer of squeue from one that says something else of this owner's jobs.

    Neither others' lines count nor their order, which is that of priorities, nor guesses: when a job that waits will
    start, or one that runs will end. One that has ended has another state.
    """
    mark = f"|{MARK}{owner}:"
    rows = (line.split("|", 3) for line in text.splitlines() if mark in line)
    lines = sorted(f"{row[0]}|{'' if row[0] in WAITING else row[2]}|{row[3]}" for row in rows if len(row) == 4)  # noqa: PLR2004
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogatepass")).hexdigest()


def parse_queue(text: str, owner: str) -> dict[str, list[Job]]:
    """Return this owner's jobs by uid, oldest first; every other line is somebody else's."""
    found: dict[str, list[Job]] = {}
    for line in text.splitlines():
        row = line.split("|", _FIELDS - 1)
        if len(row) < _FIELDS or not row[3].isdigit():
            continue
        mark, name, uid = row[8].split(":", 3), row[7], ""
        if len(mark) > 2 and mark[0] + ":" == MARK and mark[1] == owner and name == NAME + mark[2]:  # noqa: PLR2004
            uid = mark[2]
        if uid:
            started, ended, submitted = ("" if time in _NO_TIME else time + "Z" for time in (row[2], row[1], row[5]))
            state, node = row[0], "" if row[4] == "(null)" else row[4]
            # of a job that waits or runs, Slurm tells when it expects it to start or end, which is news each time
            started, ended = "" if state in WAITING else started, "" if state in LIVE else ended
            found.setdefault(uid, []).append(Job(int(row[3]), state, node, submitted, started, ended, row[6]))
    return {uid: sorted(jobs) for uid, jobs in found.items()}


def parse_completed(text: str, user: int) -> dict[str, dict[str, Any]]:
    """Return the last run of each of the user's jobs in jobcomp.txt, which has a line a run."""
    found = {}
    for line in text.splitlines():
        match = _COMPLETED.match(line)
        if match and int(match["user"]) == user:
            found[match["uid"]] = {**match.groupdict(), "id": int(match["id"])}
    return found


_USABLE = frozenset({"idle", "mixed", "allocated", "completing", "planned", "blocked"})


def parse_partition(text: str, name: str) -> dict[str, Any]:
    """Return nodes, those that take jobs, their CPUs, memory and GPUs, the time limit, and how many have each state."""
    found: dict[str, Any] = {"name": name, "nodes": 0, "usable": 0, "cpus": 0, "memory_mb": 0, "gpus": 0, "up": False}
    states: dict[str, int] = {}
    for line in text.splitlines():
        row = line.split("|", 6)
        if len(row) < 7 or row[5] != name:  # noqa: PLR2004
            continue
        state, cpus, memory, available, limit, _, gres = row
        states[state] = states.get(state, 0) + 1
        found.update(up=available == "up", time_limit="" if limit == "infinite" else limit)
        found["nodes"] += 1
        if state in _USABLE:
            found["usable"] += 1
            found["cpus"] += int(cpus.rstrip("+"))
            found["memory_mb"] += int(memory.rstrip("+"))
            found["gpus"] += gpus_of(gres)
    return {**found, "states": states}


def gpus_of(gres: str) -> int:
    """Return the GPUs in a node's generic resources, such as ``gpu:a100:4(S:0-1),gpu:2,shard:8``."""
    plain = re.sub(r"\([^)]*\)", "", gres)
    parts = (one.split(":") for one in plain.split(","))
    return sum(int(part[-1]) for part in parts if part[0] == "gpu" and part[-1].isdigit())


def options(uid: str, entry: Mapping[str, Any], owner: str, dependency: str) -> list[str]:
    """Return sbatch's options for an entry whose fields are complete. No value of the environment is among them."""
    arguments = [
        f"--job-name={NAME}{uid}",
        f"--comment={comment(owner, uid, entry['name'])}",
        f"--partition={entry['partition']}",
        f"--ntasks={entry['tasks']}",
        f"--cpus-per-task={entry['cpus_per_task']}",
        "--output=output",
        "--open-mode=append",  # what a run that was requeued has said stays
        dependency,
        "--requeue" if entry["requeue"] else "--no-requeue",
    ]
    optional = {
        "tasks_per_node": "--ntasks-per-node={}",
        "memory_mb": "--mem={}M",
        "minutes": "--time={}",
        "gpus": "--gres=gpu:{}",
    }
    return [*arguments, *(form.format(entry[field]) for field, form in optional.items() if entry[field]), "job"]
