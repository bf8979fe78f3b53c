"""What the configuration of the provider ``ansible`` says.

inventory: /etc/minik8s/machines.yml   # of Ansible
group: web                # whose hosts the node stands for
roles: /etc/minik8s/roles # folder of the roles that Pods may name
playbooks: /etc/minik8s/plays     # folder of the playbooks that Pods may name; one of the two is needed
become: false             # whether plays of roles become root; playbooks say so themselves
pods: 100                 # runs at a time
cpu: "100"                # capacity, for Pods that ask for something
memory: 100Gi
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from minik8s_modules.base.config import Configuration
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.virtual.provider import InitConfig

INVENTORY_S = 120


class Settings(NamedTuple):
    """See the top of this file; ``hosts`` are those of the group."""

    inventory: Path
    group: str
    hosts: tuple[str, ...]
    roles: Path | None
    playbooks: Path | None
    become: bool
    pods: int
    cpu: str
    memory: str


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
    found = Settings(
        inventory,
        group,
        _hosts(inventory, group),
        roles,
        playbooks,
        said.flag("become", default=False),
        said.number("pods", 100),
        said.text("cpu", "100"),
        said.text("memory", "100Gi"),
    )
    if unknown := said.unread():
        raise ConfigurationError(f"{said.file}: {', '.join(unknown)} is not a setting of the provider ansible")
    if roles is None and playbooks is None:
        raise ConfigurationError(f"{said.file}: say in which folder Pods' roles or playbooks are: roles, playbooks")
    for place in (roles, playbooks):
        if place is not None and not place.is_dir():
            raise ConfigurationError(f"{said.file}: {place} is no folder")
    return found


def program(name: str) -> str:
    """Return Ansible's program beside this Python."""
    return str(Path(sys.executable).with_name(name))


def _hosts(inventory: Path, group: str) -> tuple[str, ...]:
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
    return tuple(sorted(set(found)))
