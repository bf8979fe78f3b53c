"""The login machine: passes of the module by Ansible over one live run, and files that are read over plain ssh."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.errors import ConfigurationError, TemporaryError
from minik8s_modules.virtual.errors import NotFound, Unsupported
from minik8s_modules.virtual.provider import ContainerLogOptions
from minik8s_modules.virtual.providers.reaching import Passes, Play
from minik8s_modules.virtual.providers.slurm.settings import GROUP, PLAYBOOK, Settings

INVENTORY_S = 120
# ends with its standard input: ssh's own end would leave a tail behind that waits for a line that never comes
_FOLLOW = "tail -n {lines} -F -- {path} 2>/dev/null & tail=$!; cat >/dev/null; kill $tail"


class LoginFault(TemporaryError):
    """The login machine was not reached, or Slurm gave it no answer: nothing is known."""


# of a pass at most: its commands' own limits are a tenth of that together; a connection that hangs has none
PLAY = Play(PLAYBOOK, "slurm_jobs", forks=1, pass_s=600.0, cancelled_s=60.0, fault=LoginFault)


def refuse_options(options: ContainerLogOptions, where: str) -> None:
    """Refuse what no file of a job can tell. Raises NotFound, Unsupported."""
    if options.previous:
        raise NotFound(f"{where}: a job has no previous container")
    if options.timestamps or options.since_seconds or options.since_time is not None:
        raise Unsupported("Slurm notes no time of what a job prints: leave out --timestamps, --since, --since-time")


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
        self._passes = Passes(PLAY, settings.inventory, state_dir)
        self._lock = threading.Lock()

    def call(self, options: JsonObject) -> JsonObject:
        """See ``Login``."""
        with self._lock:
            return self._passes.call(self._name, options)

    def read(self, path: str, lines: int, follow: Callable[[], bool] | None) -> Iterator[bytes]:
        """See ``Login``."""
        wanted = "+1" if lines < 0 else str(lines)
        if follow is None:
            script = f"tail -n {wanted} -- {shlex.quote(path)} 2>/dev/null || true"
        else:
            script = _FOLLOW.format(lines=wanted, path=shlex.quote(path))
        return self._passes.printed(self._name, self._variables, script, follow)

    def close(self) -> None:
        """See ``Login``."""
        self._passes.close()


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
