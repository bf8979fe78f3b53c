"""The nodes of one shard, from an Ansible inventory in YAML.

Variables of groups apply from the outermost group inwards, then the host's own, as Ansible merges them.
Read are the hosts of group ``nodes`` (all hosts where there is no such group). Templates are refused: this
is no Ansible process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import yaml

from minik8s_modules.base.errors import ConfigurationError

NODES_GROUP = "nodes"
DEFAULT_SHARD = "default"
DOCKER_SOCKET = "/var/run/docker.sock"
RUN_DIR = "/run/minik8s"
_CONNECTIONS = ("warm_local", "warm_ssh")
_SSH_PORT = 22
_LARGEST_PORT = 65535


class NodeAddress(NamedTuple):
    """How to reach one node; empty texts mean "not given", paths are on the node unless said otherwise.

    ``key_file``, ``known_hosts`` and ``control_path`` are paths on this machine.
    """

    name: str
    connection: Literal["warm_local", "warm_ssh"]
    docker_socket: str = DOCKER_SOCKET
    run_dir: str = RUN_DIR
    host: str = ""
    port: int = _SSH_PORT
    user: str = ""
    key_file: str = ""
    known_hosts: str = ""
    control_path: str = ""
    cadvisor_port: int = 0
    """Where cAdvisor listens on the node's loopback; 0: there is none."""


def inventory_file(path: Path) -> Path:
    """Return the file to read: ``path`` itself, or ``hosts.yml`` in it."""
    return path / "hosts.yml" if path.is_dir() else path


def load_nodes(path: Path, shard: str = DEFAULT_SHARD, run_dir: str = RUN_DIR) -> tuple[NodeAddress, ...]:
    """Return the nodes of ``shard`` in the inventory file ``path``, by name.

    Args:
        path: a file in YAML.
        shard: hosts whose ``minik8s_shard`` is another are left out.
        run_dir: of nodes whose inventory does not tell theirs.

    Raises:
        ConfigurationError: the file cannot be read, or names a node that cannot be reached as described.
    """
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"cannot read inventory {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"inventory {path} is no valid YAML: {error}") from error
    return nodes_of(data, str(path), shard, run_dir)


def nodes_of(data: Any, where: str, shard: str = DEFAULT_SHARD, run_dir: str = RUN_DIR) -> tuple[NodeAddress, ...]:
    """Return the nodes of ``shard`` that the parsed inventory ``data`` tells; ``where`` names it in errors."""
    if not isinstance(data, Mapping):
        raise ConfigurationError(f"inventory {where} must hold a mapping of groups at its top level")
    variables: dict[str, dict[str, Any]] = {}
    own: dict[str, dict[str, Any]] = {}
    members: dict[str, set[str]] = {}
    for group, host, inherited, given in _walk(data, (), {}, where):
        members.setdefault(group, set()).add(host)
        variables.setdefault(host, {}).update(inherited)
        own.setdefault(host, {}).update(given)
    hosts = members.get(NODES_GROUP, set(own))
    merged = {host: {**variables[host], **own[host]} for host in sorted(hosts)}
    return tuple(
        _node(host, {"minik8s_run_dir": run_dir, **values}, where)
        for host, values in merged.items()
        if str(values.get("minik8s_shard", DEFAULT_SHARD)) == shard
    )


def _walk(
    groups: Mapping[str, Any], above: tuple[str, ...], inherited: Mapping[str, Any], where: str
) -> Iterator[tuple[str, str, dict[str, Any], dict[str, Any]]]:
    """Yield (group, host, variables of the groups around it, its own variables) for every group a host is in."""
    for name, declared in groups.items():
        body = _mapping(declared, f"{where}: group {name}")
        variables = {**inherited, **_mapping(body.get("vars"), f"{where}: vars of group {name}")}
        for host, given in _mapping(body.get("hosts"), f"{where}: hosts of group {name}").items():
            for group in (*above, name):
                yield group, str(host), variables, _mapping(given, f"{where}: host {host}")
        children = _mapping(body.get("children"), f"{where}: children of group {name}")
        yield from _walk(children, (*above, str(name)), variables, where)


def _mapping(value: Any, what: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ConfigurationError(f"inventory {what} must be a mapping, not {type(value).__name__}")
    return dict(value)


def _node(name: str, values: Mapping[str, Any], where: str) -> NodeAddress:
    def text(key: str, default: str = "") -> str:
        value = str(values.get(key) or default)
        if "{{" in value or "{%" in value:
            raise ConfigurationError(f"inventory {where}: {key} of {name} is a template; write its value")
        return value

    connection = text("ansible_connection")
    if connection not in _CONNECTIONS:
        raise ConfigurationError(
            f"inventory {where}: ansible_connection of {name} must be warm_local or warm_ssh, "
            f"not {connection or 'absent'}"
        )
    return NodeAddress(
        name=name,
        connection="warm_ssh" if connection == "warm_ssh" else "warm_local",
        docker_socket=text("minik8s_docker_socket", DOCKER_SOCKET),
        run_dir=text("minik8s_run_dir", RUN_DIR),
        host=text("ansible_host", name),
        port=_port(text("ansible_port", str(_SSH_PORT)), f"{where}: ansible_port of {name}"),
        user=text("ansible_user"),
        key_file=text("ansible_ssh_private_key_file"),
        known_hosts=text("minik8s_known_hosts"),
        control_path=text("ansible_control_path"),
        cadvisor_port=_cadvisor_port(text("minik8s_cadvisor_port", "0"), f"{where}: minik8s_cadvisor_port of {name}"),
    )


def _cadvisor_port(value: str, what: str) -> int:
    return 0 if value == "0" else _port(value, what)


def _port(value: str, what: str) -> int:
    if not value.isdecimal() or not 0 < int(value) <= _LARGEST_PORT:
        raise ConfigurationError(f"inventory {what} must be a port, not {value!r}")
    return int(value)
