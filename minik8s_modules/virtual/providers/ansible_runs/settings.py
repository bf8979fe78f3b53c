"""What the configuration of the provider ``ansible`` says.

inventory: /etc/minik8s/machines.yml   # of Ansible
group: web                # whose hosts the node stands for
roles: /etc/minik8s/roles # folder of the roles that Pods may name
playbooks: /etc/minik8s/plays     # folder of the playbooks that Pods may name
users: [app]              # as whom Pods may run units of systemd; one of the three is needed
period_s: 5               # seconds until a change of a unit is seen
become: false             # whether plays of roles become root; playbooks say so themselves
pods: 100                 # runs at a time
cpu: "100"                # capacity, for Pods that ask for something
memory: 100Gi
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from minik8s_modules.base.config import Configuration
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.virtual.provider import InitConfig

INVENTORY_S = 120
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}\Z")


class Settings(NamedTuple):
    """See the top of this file; ``hosts`` are those of the group, ``variables`` theirs in the inventory."""

    inventory: Path
    group: str
    hosts: tuple[str, ...]
    roles: Path | None
    playbooks: Path | None
    become: bool
    pods: int
    cpu: str
    memory: str
    users: tuple[str, ...] = ()
    period_s: int = 5
    variables: Mapping[str, Mapping[str, Any]] = {}


def read(config: InitConfig) -> Settings:
    """Return the settings.

    Raises:
        ConfigurationError: a key is missing, unknown or wrong, or the inventory has no such group.
    """
    said = Configuration(dict(config.config), config.config_path or "the provider's configuration")
    folder = Path(config.config_path).parent if config.config_path else Path()
    inventory, group = (folder / said.text("inventory")).absolute(), said.text("group")
    places = {name: said.text(name, "") for name in ("roles", "playbooks")}
    roles, playbooks = ((folder / place).absolute() if place else None for place in places.values())
    hosts = hosts_of(inventory, group)
    found = Settings(
        inventory,
        group,
        tuple(sorted(hosts)),
        roles,
        playbooks,
        said.flag("become", default=False),
        said.number("pods", 100),
        said.text("cpu", "100"),
        said.text("memory", "100Gi"),
        tuple(said.texts("users", [])),
        said.number("period_s", 5),
        hosts,
    )
    if unknown := said.unread():
        raise ConfigurationError(f"{said.file}: {', '.join(unknown)} is not a setting of the provider ansible")
    if roles is None and playbooks is None and not found.users:
        raise ConfigurationError(f"{said.file}: say what Pods may be: roles, playbooks (folders), users (of units)")
    if found.period_s < 1:
        raise ConfigurationError(f"{said.file}: period_s must be at least 1")
    if wrong := [user for user in found.users if not _USER.match(user)]:
        raise ConfigurationError(f"{said.file}: users: {wrong[0]!r:.80} must match {_USER.pattern}")
    for place in (roles, playbooks):
        if place is not None and not place.is_dir():
            raise ConfigurationError(f"{said.file}: {place} is no folder")
    return found


def program(name: str) -> str:
    """Return Ansible's program beside this Python."""
    return str(Path(sys.executable).with_name(name))


def hosts_of(inventory: Path, group: str) -> dict[str, Mapping[str, Any]]:
    """Return the variables of each host of a group, or of a group in it.

    Raises:
        ConfigurationError: the inventory cannot be read, or the group has no host.
    """
    argv = [program("ansible-inventory"), "--inventory", str(inventory), "--list"]
    done = subprocess.run(
        argv, capture_output=True, text=True, check=False, timeout=INVENTORY_S, env={**os.environ, "LC_ALL": "C.UTF-8"}
    )
    if done.returncode or not inventory.exists():
        raise ConfigurationError(f"inventory {inventory} cannot be read: {done.stderr.strip()[-500:]}")
    groups = json.loads(done.stdout)
    found: list[str] = []
    waiting = [group]
    while waiting:
        told = groups.get(waiting.pop()) or {}
        found += told.get("hosts") or []
        waiting += told.get("children") or []
    if not found:
        raise ConfigurationError(f"inventory {inventory}: no host is in the group {group}")
    variables = (groups.get("_meta") or {}).get("hostvars") or {}
    return {host: variables.get(host) or {} for host in found}
