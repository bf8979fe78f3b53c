"""Runs: a folder each, and a process each that outlives whoever began it.

pod.json      the Pod as it was given last
play.yml      the play, where a role is run
variables     what the Pod passes; closed to others
lock          held while the run goes on, by its own process
pid, ended    its process group, and its exit code once it has ended
output        what Ansible prints
deleted       there once it shall end

A folder without a process was begun and killed at once, or lost its machine's power: it is run again by ``resume`` if
nothing says that it ever began.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.module_utils.minik8s.core.files import write_atomically
from minik8s_modules.module_utils.minik8s.core.paths import component
from minik8s_modules.virtual.providers.ansible_runs.requests import RunRequest
from minik8s_modules.virtual.providers.ansible_runs.settings import Settings, program

KILLED = 128 + signal.SIGKILL
_CHUNK = 1 << 16
# notes its process group, runs the command, and notes how that ended, each by a rename
_WRAPPER = 'echo $$ >"$RUN/p" && mv "$RUN/p" "$RUN/pid"; "$@"; echo $? >"$RUN/e" && mv "$RUN/e" "$RUN/ended"'
Command = Callable[[Path, RunRequest], Sequence[str]]
"""Returns what is run for a request whose files are in a folder."""


class Ended(NamedTuple):
    """How a run is: its exit code, None while it goes on; and when it began, and ended, in seconds since 1970."""

    code: int | None
    began_s: float
    ended_s: float


def ansible_command(settings: Settings) -> Command:
    """Return what runs Ansible."""

    def command(folder: Path, request: RunRequest) -> list[str]:
        playbook = request.playbook or folder / "play.yml"
        argv = [program("ansible-playbook"), "--inventory", str(settings.inventory), str(playbook)]
        argv += ["--limit", ",".join(request.hosts), "--extra-vars", f"@{folder / 'variables'}"]
        return [*argv, *(("--check", "--diff") if request.check else ())]

    return command


class Runs:
    """All runs below ``folder``; for one thread at a time."""

    def __init__(self, folder: Path, command: Command, roles: Path | None) -> None:
        self._folder, self._command = folder, command
        self._environment = {**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_RETRY_FILES_ENABLED": "0"}
        if roles is not None:
            self._environment["ANSIBLE_ROLES_PATH"] = str(roles)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def begin(self, pod: JsonObject, request: RunRequest) -> None:
        """Begin the run of a Pod; one that has begun is left alone."""
        folder = self._of(objects.uid(pod))
        folder.mkdir(mode=0o700, exist_ok=True)
        if not (folder / "pod.json").exists():
            write_atomically(str(folder / "variables"), request.variables.encode())
            write_atomically(str(folder / "play.yml"), request.play.encode())
            self.note(pod)
        if not self._has_begun(folder):
            self._start(folder, request)

    def note(self, pod: JsonObject) -> None:
        """Note the Pod as it is now."""
        write_atomically(str(self._of(objects.uid(pod)) / "pod.json"), json.dumps(pod).encode())

    def pods(self) -> list[JsonObject]:
        """Return the Pods of all runs; of those that were deleted and have ended, the folders go."""
        found = []
        for folder in sorted(self._folder.iterdir()):
            if (folder / "deleted").exists() and self.state(folder.name).code is not None:
                shutil.rmtree(folder, ignore_errors=True)
                continue
            with contextlib.suppress(OSError, ValueError):
                pod: JsonObject = json.loads((folder / "pod.json").read_bytes())
                found.append(pod)
        return found

    def state(self, uid: str) -> Ended:
        """Return how a run is; one whose process is gone and left no exit code was killed."""
        folder = self._of(uid)
        began_s = _time_of(folder / "lock") or _time_of(folder / "pod.json") or time.time()
        ended_s = _time_of(folder / "ended")
        if ended_s is not None:
            return Ended(_number(folder / "ended", KILLED), began_s, ended_s)
        if _is_held(folder / "lock"):
            return Ended(None, began_s, 0.0)
        # it may have ended between the two looks
        return Ended(_number(folder / "ended", KILLED), began_s, _time_of(folder / "ended") or time.time())

    def end(self, uid: str, number: signal.Signals) -> None:
        """Signal a run that goes on, and all that it started."""
        folder = self._of(uid)
        with contextlib.suppress(FileNotFoundError):
            (folder / "deleted").touch()
        if self.state(uid).code is None:  # else the number may be another's by now
            with contextlib.suppress(OSError):
                os.killpg(_number(folder / "pid", 0) or _nobody(), number)

    def output(self, uid: str, lines: int, follow: Callable[[], bool] | None) -> Iterator[bytes]:
        """Yield what was printed, its last ``lines`` or all (-1); goes on while ``follow()``, with b"" now and then."""
        with (self._of(uid) / "output").open("rb") as source:
            if lines >= 0:
                told = source.read().splitlines(keepends=True)
                yield b"".join(told[len(told) - min(lines, len(told)) :])
            while True:
                goes_on = follow is not None and follow()
                while data := source.read(_CHUNK):
                    yield data
                if not goes_on:
                    return
                yield b""
                time.sleep(0.5)

    def is_deleted(self, pod: JsonObject) -> bool:
        """Return whether it shall end."""
        return (self._of(objects.uid(pod)) / "deleted").exists()

    def _of(self, uid: str) -> Path:
        return self._folder / component(uid)

    def _has_begun(self, folder: Path) -> bool:
        return any((folder / name).exists() for name in ("pid", "ended", "deleted")) or _is_held(folder / "lock")

    def _start(self, folder: Path, request: RunRequest) -> None:
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # a session of its own, and no child of ours: it is init's to bury
            argv = ["setsid", "--fork", "sh", "-c", _WRAPPER, "sh", *self._command(folder, request)]
            with (folder / "output").open("ab") as output:
                subprocess.run(
                    argv, env={**self._environment, "RUN": str(folder)}, cwd=folder, stdin=subprocess.DEVNULL,
                    stdout=output, stderr=output, pass_fds=(lock,), check=True,
                )  # fmt: skip
        except BlockingIOError:
            return  # it goes on
        finally:
            os.close(lock)


def _nobody() -> int:
    raise ProcessLookupError


def _is_held(path: Path) -> bool:
    try:
        lock = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def _time_of(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except OSError:
        return None


def _number(path: Path, otherwise: int) -> int:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return otherwise


def told(pod: JsonObject, state: Ended, time_of: Callable[[float], str]) -> dict[str, Any]:
    """Return the status of a Pod whose run is as ``state`` says."""
    running, began = state.code is None, time_of(state.began_s)
    phase = "Running" if running else "Failed" if state.code else "Succeeded"
    shown: dict[str, Any] = {"running": {"startedAt": began}}
    if not running:
        reason = "Error" if state.code else "Completed"
        ended = {"exitCode": state.code, "reason": reason, "startedAt": began, "finishedAt": time_of(state.ended_s)}
        shown = {"terminated": ended}
    container = pod["spec"]["containers"][0]
    known = {"name": container["name"], "image": container.get("image", ""), "imageID": "", "restartCount": 0}
    holds = "True" if running else "False"
    conditions = [{"type": "Initialized", "status": "True"}]
    conditions += [{"type": kind, "status": holds} for kind in ("ContainersReady", "Ready")]
    status = {"phase": phase, "startTime": began, "conditions": conditions}
    return {**status, "containerStatuses": [{**known, "ready": running, "started": running, "state": shown}]}
