"""How the gateway reaches the nodes of its shard, by the variables of the inventory (``base/inventory.py``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.base.inventory import Hosts

DOCKER_SOCKET = "/var/run/docker.sock"
RUN_DIR = "/run/minik8s"
STATE_DIR = "/var/lib/minik8s"
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
    state_dir: str = STATE_DIR


def nodes_of(hosts: Hosts, where: str, run_dir: str = RUN_DIR) -> tuple[NodeAddress, ...]:
    """Return the nodes that ``hosts`` of the inventory ``where`` are.

    Args:
        hosts: variables by name.
        where: names the inventory in errors.
        run_dir: of nodes whose inventory does not tell theirs.

    Raises:
        ConfigurationError: a node cannot be reached as described.
    """
    return tuple(_node(host, {"minik8s_run_dir": run_dir, **variables}, where) for host, variables in hosts.items())


def _node(name: str, values: Mapping[str, Any], where: str) -> NodeAddress:
    def text(key: str, default: str = "") -> str:
        value = str(values.get(key) or default)
        if "{{" in value or "{%" in value:
            raise ConfigurationError(f"inventory {where}: {key} of {name} is a template; write the value itself")
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
        state_dir=text("minik8s_state_dir", STATE_DIR),
        cadvisor_port=_cadvisor_port(text("minik8s_cadvisor_port", "0"), f"{where}: minik8s_cadvisor_port of {name}"),
    )


def _cadvisor_port(value: str, what: str) -> int:
    return 0 if value == "0" else _port(value, what)


def _port(value: str, what: str) -> int:
    if not value.isdecimal() or not 0 < int(value) <= _LARGEST_PORT:
        raise ConfigurationError(f"inventory {what} must be a port, not {value!r}")
    return int(value)
