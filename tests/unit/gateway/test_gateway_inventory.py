"""Which nodes an inventory tells, how to reach them, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.base.inventory import hosts_of
from minik8s_modules.gateway.inventory import nodes_of
from minik8s_modules.gateway.main import InventoryFile

INVENTORY = """
all:
  vars: {ansible_connection: warm_ssh, ansible_user: outer}
  children:
    control_plane: {hosts: {boss: {ansible_connection: local}}}
    nodes:
      vars: {ansible_user: minik8s-node, minik8s_known_hosts: /k}
      hosts:
        b: {ansible_host: 10.0.0.2, ansible_port: 2222, ansible_ssh_private_key_file: /key}
        a: {ansible_connection: warm_local, minik8s_docker_socket: /d.sock}
      children: {edge: {hosts: {c: {minik8s_shard: edge}}}}
"""


def test_nodes_come_by_name_with_the_inner_variables():
    a, b = nodes_of(hosts_of(yaml.safe_load(INVENTORY), "x"), "x", run_dir="/run/x")
    assert (a.name, a.connection, a.docker_socket, a.run_dir) == ("a", "warm_local", "/d.sock", "/run/x")
    assert (b.name, b.connection, b.host, b.port, b.user) == ("b", "warm_ssh", "10.0.0.2", 2222, "minik8s-node")
    assert (b.key_file, b.known_hosts, b.docker_socket) == ("/key", "/k", "/var/run/docker.sock")


@pytest.mark.parametrize(
    ("host", "message"),
    [
        ({}, "ansible_connection of h must be warm_local or warm_ssh, not absent"),
        ({"ansible_connection": "docker"}, "not docker"),
        ({"ansible_connection": "warm_ssh", "ansible_host": "{{ lookup('pipe', 'id') }}"}, "ansible_host of h is a"),
        ({"ansible_connection": "warm_ssh", "ansible_port": "x"}, "ansible_port of h must be a port"),
        ({"ansible_connection": "warm_ssh", "ansible_port": 70000}, "must be a port"),
    ],
)
def test_what_cannot_be_used_is_named(host, message):
    with pytest.raises(ConfigurationError, match=message.replace("(", r"\(")):
        nodes_of({"h": host}, "hosts.yml")


def test_a_file_is_read_again_only_when_it_has_changed_and_a_broken_one_is_told_once(tmp_path: Path):
    path = tmp_path / "hosts.yml"
    path.write_text(INVENTORY)
    file = InventoryFile(path, "default", Path("/run/x"))
    assert [node.name for node in file.changed_nodes() or ()] == ["a", "b"]
    assert file.changed_nodes() is None
    path.write_text("- broken, and longer than before")
    with pytest.raises(ConfigurationError, match="must hold a mapping"):
        file.changed_nodes()
    assert file.changed_nodes() is None
    path.write_text("all: {hosts: {z: {ansible_connection: warm_local}}}")
    assert [(node.name, node.run_dir) for node in file.changed_nodes() or ()] == [("z", "/run/x")]
    path.unlink()
    with pytest.raises(ConfigurationError, match="cannot read inventory"):
        file.changed_nodes()
    assert file.changed_nodes() is None
