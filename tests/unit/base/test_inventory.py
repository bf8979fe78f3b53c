"""Which hosts an inventory tells, and with which variables."""

from __future__ import annotations

from pathlib import Path

import pytest

from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.base.inventory import Inventory, hosts_of

INVENTORY = {
    "all": {
        "children": {
            "nodes": {
                "hosts": {"b": None, "a": {"minik8s_shard": "two"}},
                "vars": {"minik8s_shard": "one", "port": 1},
                "children": {"edge": {"hosts": {"d": {}}, "vars": {"port": 2}}},
            },
            "others": {"hosts": {"c": {}}},
        }
    }
}


def test_hosts_are_those_of_the_shard_in_group_nodes():
    assert list(hosts_of(INVENTORY, "here", "one")) == ["b", "d"]
    assert list(hosts_of(INVENTORY, "here", "two")) == ["a"]
    assert hosts_of(INVENTORY, "here", "none") == {}


def test_inner_variables_win():
    found = hosts_of(INVENTORY, "here", "one")
    assert (found["b"]["port"], found["d"]["port"]) == (1, 2)


def test_without_a_group_nodes_every_host_is_meant():
    assert list(hosts_of({"all": {"hosts": {"x": {}, "w": None}}}, "here")) == ["w", "x"]


def test_empty_groups_are_no_error():
    assert hosts_of({"all": None, "nodes": {"hosts": None, "children": None}}, "here") == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a", "must hold a mapping"),
        ("all: [", "not valid YAML"),
        ("all: {hosts: [a]}", "hosts of group all must be a mapping"),
        ("all: {hosts: {a: [b]}}", "host a must be a mapping"),
    ],
)
def test_a_file_that_is_no_inventory_is_refused_once(tmp_path: Path, text: str, message: str):
    (tmp_path / "hosts.yml").write_text(text)
    inventory = Inventory(tmp_path)
    with pytest.raises(ConfigurationError, match=f"inventory .*{message}"):
        inventory.changed_hosts()
    assert inventory.changed_hosts() is None


def test_a_missing_file_is_told_until_it_comes(tmp_path: Path):
    inventory = Inventory(tmp_path / "hosts.yml")
    with pytest.raises(ConfigurationError, match="cannot read inventory"):
        inventory.changed_hosts()
    assert inventory.changed_hosts() is None
    (tmp_path / "hosts.yml").write_text("all: {hosts: {a: {}}}")
    assert list(inventory.changed_hosts() or ()) == ["a"]
    assert inventory.changed_hosts() is None
