"""Machines of an inventory, for providers that act there: passes of a module by one live run; output by plain ssh."""

from __future__ import annotations

import os
import queue
import select
import shlex
import shutil
import subprocess
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base import release
from minik8s_modules.base.errors import ConfigurationError, TemporaryError
from minik8s_modules.reconcile.executor.runner import AnsibleRunner
from minik8s_modules.reconcile.values.items import Outcome, SectionRequest, WorkItem

# bytes of a private folder's path: ssh makes sockets below it, `/ssh/read-` with 40 digits, and 17 more while it does
# (sun_path has 108)
MOST_PRIVATE = 40
QUIET_S = 2.0
_CHUNK = 1 << 16


class Play(NamedTuple):
    """What is run: a playbook with one task, named as the section of its module.

    Attributes:
        playbook: below the project's folder.
        section: of the module.
        forks: how many hosts have a pass at once.
        pass_s: how long a pass may take; one that hangs is then cancelled.
        cancelled_s: how long that may take.
        fault: raised where nothing is known of a host.
    """

    playbook: str
    section: str
    forks: int
    pass_s: float
    cancelled_s: float
    fault: type[TemporaryError]


class Passes:
    """Calls of a module on hosts; several at once from several threads."""

    def __init__(self, play: Play, inventory: Path, state_dir: str) -> None:
        self._play = play
        self.private = private_folder(state_dir)
        self._lock = threading.Lock()
        self._waiting: dict[str, queue.SimpleQueue[Outcome]] = {}
        self._runner = AnsibleRunner(
            inventory=inventory,
            private_data_dir=self.private,
            project_dir=project_dir(play.playbook),
            on_outcome=self.take,
            playbook=play.playbook,
            forks=play.forks,
        )
        self._runner.start()

    def call(self, host: str, options: JsonObject) -> JsonObject:
        """Return the result of one pass on ``host``; raises the play's fault."""
        section = self._play.section
        item = WorkItem(uuid.uuid4().hex, host, False, (), {section: SectionRequest(options)})  # noqa: FBT003
        answer: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        with self._lock:
            self._waiting[item.id] = answer
        try:
            self._runner.submit(item)
            outcome = self._outcome(host, item.id, answer)
        except RuntimeError as error:
            raise self._play.fault(str(error)) from error
        finally:
            with self._lock:
                self._waiting.pop(item.id, None)
        if outcome.status != "ok":
            raise self._play.fault(f"{host}: {outcome.message or outcome.status}"[:1000])
        return dict(outcome.sections[section])

    def _outcome(self, host: str, item_id: str, answer: queue.SimpleQueue[Outcome]) -> Outcome:
        """Return how a pass ended; after one that hung, the next one finds out how far it came."""
        play = self._play
        try:
            return answer.get(timeout=play.pass_s)
        except queue.Empty:
            self._runner.cancel(item_id)
        try:
            return answer.get(timeout=play.cancelled_s)
        except queue.Empty:
            text = f"{host}: a pass gave no answer in {play.pass_s:g} s, and could not be ended"
            raise play.fault(text) from None

    def take(self, outcome: Outcome) -> None:
        """Give an outcome to whoever waits for it; one that was given up is nothing to anybody."""
        with self._lock:
            answer = self._waiting.get(outcome.id)
        if answer is not None:
            answer.put(outcome)

    def printed(
        self, host: str, variables: Mapping[str, Any], script: str, follow: Callable[[], bool] | None
    ) -> Iterator[bytes]:
        """Yield what a script prints on ``host``; goes on while ``follow()``, with b"" once a second."""
        argv = shell(variables, host, script, str(self.private / "ssh"))
        process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            yield from chunks(process, follow)
        finally:
            if process.stdin is not None:
                process.stdin.close()
            process.terminate()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def close(self) -> None:
        """Let go of the hosts."""
        self._runner.stop()
        shutil.rmtree(self.private, ignore_errors=True)


def shell(variables: Mapping[str, Any], name: str, script: str, control: str) -> list[str]:
    """Return the command that runs a script on the host of an inventory, by its variables."""
    if variables.get("ansible_connection") in {"local", "warm_local"}:
        return ["sh", "-c", script]
    Path(control).mkdir(mode=0o700, parents=True, exist_ok=True)
    argv = ["ssh", "-T", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o", "ControlMaster=auto"]
    argv += ["-o", f"ControlPath={control}/read-%C", "-o", "ControlPersist=60", "-o", "ServerAliveInterval=5"]
    if known := variables.get("minik8s_known_hosts"):
        argv += ["-o", f"UserKnownHostsFile={known}", "-o", "GlobalKnownHostsFile=/dev/null"]
    for option, names in (
        ("-i", ("ansible_ssh_private_key_file", "ansible_private_key_file")),
        ("-l", ("ansible_user", "ansible_ssh_user")),
        ("-p", ("ansible_port", "ansible_ssh_port")),
    ):
        value = next((variables[one] for one in names if variables.get(one)), None)
        if value is not None:
            argv += [option, str(value)]
    for given in ("ansible_ssh_common_args", "ansible_ssh_extra_args"):
        argv += shlex.split(str(variables.get(given) or ""))
    host = str(variables.get("ansible_host") or variables.get("ansible_ssh_host") or name)
    return [*argv, "--", host, script]


def chunks(process: subprocess.Popen[bytes], follow: Callable[[], bool] | None) -> Iterator[bytes]:
    """Yield what a program prints until it ends, or nobody follows and it was quiet for a while."""
    out = process.stdout
    if out is None:
        return
    quiet = 0.0
    while True:
        ready, _, _ = select.select([out], [], [], 1.0)
        if ready:
            data = os.read(out.fileno(), _CHUNK)
            if not data:
                return
            quiet = 0.0
            yield data
            continue
        quiet += 1.0
        if follow is not None and not follow() and quiet >= QUIET_S:
            return
        yield b""


def private_folder(state_dir: str) -> Path:
    """Return a folder for a run of Ansible: in ``state_dir``, else a new one where that is none, or too long."""
    folder = Path(state_dir).absolute() / "ansible" if state_dir else None
    if folder is not None and len(os.fsencode(folder)) <= MOST_PRIVATE:
        return folder
    return Path(tempfile.mkdtemp(prefix="minik8s-virtual-"))


def limited(chunks: Iterator[bytes], limit: int) -> Iterator[bytes]:
    """Yield the first ``limit`` bytes of what is told; 0 for all."""
    left = limit
    for chunk in chunks:
        if not limit:
            yield chunk
            continue
        yield chunk[:left]
        left -= len(chunk)
        if left <= 0:
            return


def project_dir(playbook: str) -> Path:
    """Return where playbooks and modules are (``release.project``). Raises ConfigurationError."""
    try:
        found = release.project()
    except OSError as error:
        raise ConfigurationError(f"playbooks cannot be laid out for Ansible: {error}") from error
    if found is None or not (found / playbook).is_file():
        raise ConfigurationError(f"no {playbook} beside this program; install minik8s by its wheel or playbooks")
    return found
