"""Declares long-running programs once, for systemd or for supervisor, and decides what brings them up to date.

One :class:`Daemon` renders to a systemd unit or to a supervisor program. The definition carries a *restart key*: a
digest of the files the program read at its start. A changed configuration file or certificate thus changes the
definition, and a changed definition is a restart. Nothing is lost when an installation is interrupted between writing
a file and restarting. What a program reads again when it gets SIGHUP has a digest of its own, the *reload key*: a
definition that differs in that alone is a signal, and the program's sockets stay open.

Under supervisor a program is started through ``launch`` (``roles/service_manager``), which drops privileges, gives it a
clean environment and first stops what an earlier, killed supervisor left running: nothing runs twice. What a program is
kept from says ``confinement.py``, for both.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Optional

from .confinement import Confinement, check, directives, launcher_options

LAUNCHER = "/usr/local/lib/minik8s/launch"
LOG_DIR = "/var/log/minik8s"
UNIT_DIRS = {"systemd": "/etc/systemd/system", "supervisor": "/etc/supervisor/conf.d"}
_RELOAD_KEY = "Reload key: "
_NAME = re.compile(r"[a-z][a-z0-9-]{0,62}\Z")


class Daemon(NamedTuple):
    """A program that shall always run. ``command[0]`` is an absolute path."""

    name: str
    description: str
    command: tuple[str, ...]
    user: str = "root"
    after: tuple[str, ...] = ()
    watch: tuple[str, ...] = ()
    reread: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    stop_timeout_s: int = 20
    kill_children: bool = True
    confinement: Confinement = Confinement()
    prepare: tuple[str, ...] = ()
    """What root runs before each start, () for nothing; unless it succeeds, the program is not started."""


class DaemonState(NamedTuple):
    """A daemon's present definition (None when there is none) and whether it runs."""

    definition: Optional[str]  # noqa: UP045 - a runtime annotation on Python 3.9
    running: bool


class DaemonStep(NamedTuple):
    """``define``, ``restart``, ``reload``, ``start`` or ``remove`` of one daemon."""

    action: str
    name: str


def path_of(manager: str, name: str) -> str:
    """Return the file that holds the definition of ``name``."""
    return f"{UNIT_DIRS[manager]}/{name}.{'service' if manager == 'systemd' else 'conf'}"


def restart_key(paths: Sequence[str]) -> str:
    """Return a digest of the contents of ``paths``; a missing file counts as such."""
    digest = hashlib.sha256()
    for path in paths:
        try:
            data = Path(path).read_bytes()
        except FileNotFoundError:
            data = b"missing"
        digest.update(f"{path}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()[:16]


def plan_daemons(
    wanted: Mapping[str, str], absent: Sequence[str], found: Mapping[str, DaemonState], manager: str
) -> list[DaemonStep]:
    """Return the steps that make ``found`` as declared, in the order of declaration.

    Args:
        wanted: name to definition.
        absent: names that shall be gone; they go last to first.
        found: what stands on the machine, for every name of both.
        manager: ``systemd`` restarts as a step of its own; ``supervisor`` restarts by taking over a definition.
    """
    steps: list[DaemonStep] = []
    for name, definition in wanted.items():
        present = found[name]
        if present.definition != definition:
            steps.append(DaemonStep("define", name))
            if present.running and _can_reload(present.definition or "", definition):
                steps.append(DaemonStep("reload", name))
            elif manager == "systemd":
                steps.append(DaemonStep("restart", name))
        elif not present.running:
            steps.append(DaemonStep("start", name))
    steps.extend(
        DaemonStep("remove", name) for name in reversed(absent) if found[name] != DaemonState(None, running=False)
    )
    return steps


def _can_reload(old: str, new: str) -> bool:
    """Return whether two definitions differ in nothing but their reload keys, which both have."""
    lines = [[line for line in text.splitlines() if _RELOAD_KEY not in line] for text in (old, new)]
    return _RELOAD_KEY in old and _RELOAD_KEY in new and lines[0] == lines[1]


def render(manager: str, daemon: Daemon, key: str, reload_key: str = "") -> str:
    """Return the definition of ``daemon`` for ``manager``, with the restart key and, if any, the reload key in it.

    Raises:
        ValueError: a name or an argument cannot be written down for a service manager.
    """
    if not _NAME.match(daemon.name):
        raise ValueError(f"daemon name {daemon.name!r} must be lower-case letters, digits and '-'")
    confinement = daemon.confinement
    texts = [
        daemon.description,
        *daemon.prepare,
        *daemon.command,
        *(text for pair in daemon.environment for text in pair),
    ]
    if any(ord(char) < 32 for text in [*texts, *confinement.exceptions.values()] for char in text):  # noqa: PLR2004 - ASCII
        raise ValueError(f"daemon {daemon.name}: arguments, environment and reasons must hold no control characters")
    check(daemon.name, confinement)
    definition = _systemd(daemon, key) if manager == "systemd" else _supervisor(daemon, key)
    mark = "#" if manager == "systemd" else ";"
    return f"{mark} {_RELOAD_KEY}{reload_key}\n{definition}" if reload_key else definition


def _systemd(daemon: Daemon, key: str) -> str:
    lines = [
        f"# Written by minik8s. Restart key: {key}",
        "[Unit]",
        f"Description={daemon.description.replace('%', '%%')}",
        f"After={' '.join(['network-online.target', *(f'{name}.service' for name in daemon.after)])}",
        "Wants=network-online.target",
        "StartLimitIntervalSec=0",
        "",
        "[Service]",
        f"User={daemon.user}",
        *([f"ExecStartPre=+{_systemd_words(daemon.prepare)}"] if daemon.prepare else []),
        f"ExecStart={_systemd_words(daemon.command)}",
        *(f"Environment={_systemd_quoted(f'{name}={value}')}" for name, value in daemon.environment),
        "Restart=always",
        "RestartSec=1",
        f"TimeoutStopSec={daemon.stop_timeout_s}",
        f"KillMode={'control-group' if daemon.kill_children else 'process'}",
        "LimitNOFILE=65536",
        *(f"# {name}: {why}" for name, why in sorted(daemon.confinement.exceptions.items())),
        *directives(daemon.user, daemon.confinement),
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    ]
    return "\n".join(lines) + "\n"


def _systemd_words(command: Sequence[str]) -> str:
    return " ".join(_systemd_quoted(text) for text in command)


def _systemd_quoted(text: str) -> str:
    """Return ``text`` as one word of a unit file (systemd.service(5), "Command lines" and "Specifiers")."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"'


def _supervisor(daemon: Daemon, key: str) -> str:
    environment = [f"{name}={value}" for name, value in daemon.environment]
    scope = "group" if daemon.kill_children else "process"
    prepare = [f"--prepare={shlex.join(daemon.prepare)}"] if daemon.prepare else []
    options = [daemon.name, daemon.user, str(daemon.stop_timeout_s), scope, *prepare]
    argv = [LAUNCHER, *options, *launcher_options(daemon.confinement), *environment, *daemon.command]
    lines = [
        f"; Written by minik8s. Restart key: {key}",
        f"[program:{daemon.name}]",
        f"command={' '.join(shlex.quote(text) for text in argv).replace('%', '%%')}",
        f'environment=MINIK8S_RESTART_KEY="{key}"',
        "autostart=true",
        "autorestart=true",
        "startsecs=0",
        f"stopwaitsecs={daemon.stop_timeout_s}",
        f"killasgroup={'true' if daemon.kill_children else 'false'}",
        "redirect_stderr=true",
        f"stdout_logfile={LOG_DIR}/{daemon.name}.log",
        "stdout_logfile_maxbytes=10MB",
        "stdout_logfile_backups=2",
    ]
    return "\n".join(lines) + "\n"
