"""The text of a unit and of its environment. Pure.

Nothing that a user wrote is on a line that systemd interprets, but what is checked first: the words of the program are
in a script, the values of its variables in a file of their own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

UNIT_DIR = "/etc/systemd/system"
PREFIX = "minik8s-pod-"
RESTART_S = 10
"""Between a program's end and its next start; kubelet begins with that, too."""
_UNIT = """# Of minik8s. It is written again when it is changed by hand.
[Unit]
Description=Pod {name}
After=network.target
StartLimitIntervalSec=0

[Service]
Type=exec
ExecStart={folder}/program
EnvironmentFile={folder}/environment
User={user}
WorkingDirectory={directory}
{restart}
KillMode=mixed
TimeoutStopSec={grace_s}
NoNewPrivileges=yes
CPUAccounting=yes
MemoryAccounting=yes
{limits}
[Install]
WantedBy=multi-user.target
"""
_RESTART = {
    "no": "Restart=no\nRemainAfterExit=yes",
    # systemd takes these ends for clean ones
    "on-failure": f"Restart=on-failure\nRestartForceExitStatus=SIGHUP SIGINT SIGTERM SIGPIPE\nRestartSec={RESTART_S}"
    "\nRemainAfterExit=yes",
    "always": f"Restart=always\nRestartSec={RESTART_S}",
}
_SPECIAL = re.compile(r'(["\\`$])')


def unit_name(uid: str) -> str:
    """Return the name of a Pod's unit."""
    return f"{PREFIX}{uid}.service"


def unit_text(entry: Mapping[str, Any], folder: str) -> str:
    """Return the unit of an entry whose fields are complete and checked; ``folder`` has its files."""
    limits = ""
    if entry["cpu_milli"]:
        limits += f"CPUQuota={-(-entry['cpu_milli'] // 10)}%\n"
    if entry["memory_bytes"]:
        limits += f"MemoryMax={entry['memory_bytes']}\n"
    return _UNIT.format(
        name=entry["name"],
        folder=folder.replace("%", "%%"),
        user=entry["user"],
        directory=entry["directory"].replace("%", "%%"),
        restart=_RESTART[entry["restart"]],
        grace_s=max(1, entry["grace_s"]),  # systemd takes 0 for ever, and would never kill
        limits=limits,
    )


def environment_text(environment: Mapping[str, str]) -> str:
    """Return assignments that systemd reads back to the same values (systemd.exec(5), EnvironmentFile=)."""
    return "".join(f'{name}="{_quoted(text)}"\n' for name, text in environment.items())


def _quoted(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text)
