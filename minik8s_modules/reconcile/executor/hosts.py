"""The hosts of this shard, from an Ansible inventory in YAML: a node's name is its inventory name.

Hosts of the group ``nodes``, or all where there is no such group; ``minik8s_shard`` (host or group variable)
puts a host into a shard. How Ansible connects to them is Ansible's business.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from minik8s_modules.base.errors import ConfigurationError

NODES_GROUP = "nodes"
DEFAULT_SHARD = "default"


def load_hosts(path: Path, shard: str = DEFAULT_SHARD) -> tuple[str, ...]:
    """Return the hosts' names of ``shard`` in the inventory ``path`` (a file, or a directory with ``hosts.yml``).

    Raises:
        ConfigurationError: it cannot be read, or is no inventory.
    """
    path = path / "hosts.yml" if path.is_dir() else path
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"cannot read inventory {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"inventory {path} is no valid YAML: {error}") from error
    return hosts_of(data, shard, str(path))


def hosts_of(data: Any, shard: str, where: str) -> tuple[str, ...]:
    """Return the hosts' names of ``shard`` in the parsed inventory ``data``; inner groups' variables win."""
    variables: dict[str, dict[str, Any]] = {}
    members: set[str] = set()
    own: dict[str, dict[str, Any]] = {}
    groups = list(_walk(_mapping(data, where), (), {}, where))
    named = any(NODES_GROUP in around for around, _, _, _ in groups)
    for around, host, inherited, given in groups:
        variables.setdefault(host, {}).update(inherited)
        own.setdefault(host, {}).update(given)
        if not named or NODES_GROUP in around:
            members.add(host)
    return tuple(
        host
        for host in sorted(members)
        if str({**variables[host], **own[host]}.get("minik8s_shard", DEFAULT_SHARD)) == shard
    )


def _walk(
    groups: Mapping[str, Any], above: tuple[str, ...], inherited: Mapping[str, Any], where: str
) -> Iterator[tuple[tuple[str, ...], str, dict[str, Any], dict[str, Any]]]:
    for name, raw in groups.items():
        body = _mapping(raw, f"{where}: group {name}")
        around = (*above, str(name))
        variables = {**inherited, **_mapping(body.get("vars"), f"{where}: vars of group {name}")}
        for host, given in _mapping(body.get("hosts"), f"{where}: hosts of group {name}").items():
            yield around, str(host), variables, _mapping(given, f"{where}: host {host}")
        yield from _walk(_mapping(body.get("children"), f"{where}: children of {name}"), around, variables, where)


def _mapping(value: Any, what: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ConfigurationError(f"inventory {what} must be a mapping, not {type(value).__name__}")
    return dict(value)
