"""The login machine: passes of the module by Ansible over one live run, and files that are read over plain ssh."""

from __future__ import annotations

import json
import os
import queue
import select
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.errors import ConfigurationError, TemporaryError
from minik8s_modules.reconcile.executor.runner import AnsibleRunner
from minik8s_modules.reconcile.values.items import Outcome, SectionRequest, WorkItem
from minik8s_modules.virtual.providers.slurm.settings import GROUP, PLAYBOOK, Settings

SECTION = "slurm_jobs"
# bytes of a private folder's path: ssh makes sockets below it, `/ssh/read-` with 40 digits, and 17 more while it does
# (sun_path has 108)
MOST_PRIVATE = 40
INVENTORY_S = 120
QUIET_S = 2.0
PASS_S = 600.0
"""Of a pass at most. Its commands' own limits are a tenth of that together; a connection that hangs has none."""
CANCELLED_S = 60.0
_CHUNK = 1 << 16
# ends with its standard input: ssh's own end would leave a tail behind that waits for a line that never comes
_FOLLOW = "tail -n {lines} -F -- {path} 2>/dev/null & tail=$!; cat >/dev/null; kill $tail"


class LoginFault(TemporaryError):
    """The login machine was not reached, or Slurm gave it no answer: nothing is known."""


class Login(Protocol):
    """What the provider needs of the machine."""

    def call(self, options: JsonObject) -> JsonObject:
        """Return the result of one pass. Raises LoginFault."""

    def read(self, path: str, lines: int, follow: Callable[[], bool] | None) -> Iterator[bytes]:
        """Yield a file, its last ``lines`` or all (-1); goes on while ``follow()``, with b"" once a second."""

    def close(self) -> None:
        """Let go of it."""


class AnsibleLogin:
    """See ``Login``; one pass at a time."""

    def __init__(self, settings: Settings, state_dir: str) -> None:
        self._name, self._variables = _host(settings)
        self._private = private_folder(state_dir)
        self._outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._runner = AnsibleRunner(
            inventory=settings.inventory,
            private_data_dir=self._private,
            project_dir=settings.project_dir,
            on_outcome=self._outcomes.put,
            playbook=PLAYBOOK,
            forks=1,
        )
        self._runner.start()

    def call(self, options: JsonObject) -> JsonObject:
        """See ``Login``."""
        item = WorkItem(uuid.uuid4().hex, self._name, False, (), {SECTION: SectionRequest(options)})  # noqa: FBT003
        with self._lock:
            try:
                self._runner.submit(item)
            except RuntimeError as error:
                raise LoginFault(str(error)) from error
            outcome = self._outcome_of(item.id)
        if outcome.status != "ok":
            raise LoginFault(f"{self._name}: {outcome.message or outcome.status}"[:1000])
        return dict(outcome.sections[SECTION])

    def _outcome_of(self, item_id: str) -> Outcome:
        """Return how the pass ended; one that hangs is cancelled: the next one finds out how far it came."""
        try:
            return self._next(item_id, PASS_S)
        except queue.Empty:
            self._runner.cancel(item_id)
        try:
            return self._next(item_id, CANCELLED_S)
        except queue.Empty:
            raise LoginFault(f"{self._name}: a pass gave no answer in {PASS_S:g} s, and could not be ended") from None

    def _next(self, item_id: str, patience_s: float) -> Outcome:
        """Return the outcome of this item; those of earlier ones that were given up are nothing to anybody."""
        while True:
            outcome = self._outcomes.get(timeout=patience_s)
            if outcome.id == item_id:
                return outcome

    def read(self, path: str, lines: int, follow: Callable[[], bool] | None) -> Iterator[bytes]:
        """See ``Login``."""
        wanted = "+1" if lines < 0 else str(lines)
        if follow is None:
            script = f"tail -n {wanted} -- {shlex.quote(path)} 2>/dev/null || true"
        else:
            script = _FOLLOW.format(lines=wanted, path=shlex.quote(path))
        process = subprocess.Popen(
            self._shell(script), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
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
        """See ``Login``."""
        self._runner.stop()
        shutil.rmtree(self._private, ignore_errors=True)

    def _shell(self, script: str) -> list[str]:
        return shell(self._variables, self._name, script, str(self._private / "ssh"))


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


def _host(settings: Settings) -> tuple[str, dict[str, Any]]:
    """Return the login machine's name and variables.

    Raises:
        ConfigurationError: the inventory has none.
    """
    program = Path(sys.executable).with_name("ansible-inventory")
    argv = [str(program), "--inventory", str(settings.inventory), "--list"]
    env = {**os.environ, "ANSIBLE_CONFIG": str(settings.project_dir / "ansible.cfg")}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=INVENTORY_S, env=env)
    if done.returncode:
        raise ConfigurationError(f"inventory {settings.inventory} cannot be read: {done.stderr.strip()[-500:]}")
    found = json.loads(done.stdout)
    hosts = (found.get(GROUP) or {}).get("hosts") or []
    name = settings.login or (hosts[0] if hosts else "")
    if name not in hosts:
        raise ConfigurationError(
            f"inventory {settings.inventory}: {name or 'no host'} is in the group {GROUP}; put the machine there that "
            "has Slurm's commands"
        )
    return name, dict((found.get("_meta") or {}).get("hostvars", {}).get(name) or {})


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
