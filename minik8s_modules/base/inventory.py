"""The hosts of one shard in an Ansible inventory in YAML, with their variables; a node's name is its inventory name.

Variables of groups apply from the outermost group inwards, then the host's own, as Ansible merges them. Read are the
hosts of group ``nodes`` (all hosts where there is no such group); ``minik8s_shard`` (a host's or a group's variable)
puts a host into a shard. Templates are not resolved: this is no Ansible process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from minik8s_modules.base.config import read_mapping
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.base.files import Stamp, stamp_if_there

NODES_GROUP = "nodes"
DEFAULT_SHARD = "default"
Hosts = Mapping[str, Mapping[str, Any]]
"""The variables of each host, hosts by name in order."""


class Inventory:
    """An inventory file (or the ``hosts.yml`` of a directory) that is read again when it has changed."""

    def __init__(self, path: Path, shard: str = DEFAULT_SHARD) -> None:
        self.path = path / "hosts.yml" if path.is_dir() else path
        self._shard = shard
        self._stamp: Stamp | None = None

    def changed_hosts(self) -> Hosts | None:
        """Return the hosts of the shard when the file is not what it was at the last call, else None.

        Raises:
            ConfigurationError: it cannot be used; it is not read again before it changes.
        """
        stamp = stamp_if_there(self.path)  # where there is none, reading says why, once
        if stamp == self._stamp:
            return None
        self._stamp = stamp
        return hosts_of(read_mapping(self.path, "inventory"), str(self.path), self._shard)


def hosts_of(data: Mapping[str, Any], where: str, shard: str = DEFAULT_SHARD) -> Hosts:
    """Return the hosts of ``shard`` in the parsed inventory ``data``; ``where`` names it in errors."""
    variables: dict[str, dict[str, Any]] = {}
    own: dict[str, dict[str, Any]] = {}
    members: dict[str, set[str]] = {}
    for group, host, inherited, given in _walk(data, (), {}, where):
        members.setdefault(group, set()).add(host)
        variables.setdefault(host, {}).update(inherited)
        own.setdefault(host, {}).update(given)
    merged = {host: {**variables[host], **own[host]} for host in sorted(members.get(NODES_GROUP, set(own)))}
    return {
        host: settings
        for host, settings in merged.items()
        if str(settings.get("minik8s_shard", DEFAULT_SHARD)) == shard
    }


def _walk(
    groups: Mapping[str, Any], above: tuple[str, ...], inherited: Mapping[str, Any], where: str
) -> Iterator[tuple[str, str, dict[str, Any], dict[str, Any]]]:
    """Yield (group, host, variables of the groups around it, its own variables) for every group a host is in."""
    for name, declared in groups.items():
        body = _mapping(declared, f"{where}: group {name}")
        variables = {**inherited, **_mapping(body.get("vars"), f"{where}: vars of group {name}")}
        for host, given in _mapping(body.get("hosts"), f"{where}: hosts of group {name}").items():
            for group in (*above, str(name)):
                yield group, str(host), variables, _mapping(given, f"{where}: host {host}")
        children = _mapping(body.get("children"), f"{where}: children of group {name}")
        yield from _walk(children, (*above, str(name)), variables, where)


def _mapping(value: Any, what: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ConfigurationError(f"inventory {what} must be a mapping, not {type(value).__name__}")
    return dict(value)
