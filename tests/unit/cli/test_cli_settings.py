"""``--set``: names that roles know, values that they take, and ranges that a cluster can have."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from minik8s_modules.cli import main
from minik8s_modules.cli.errors import UsageError
from minik8s_modules.cli.settings import SHARD, check_ranges, parse_variables

ROLES = Path(__file__).parents[3] / "roles"


def test_values_have_the_types_that_roles_declare() -> None:
    given = ["minik8s_mesh=yes", "minik8s_api_port=7443", "minik8s_load_balancer_addresses=10.0.0.5,10.0.0.7-10.0.0.9"]
    assert parse_variables(given) == {
        "minik8s_mesh": True,
        "minik8s_api_port": 7443,
        "minik8s_load_balancer_addresses": ["10.0.0.5", "10.0.0.7-10.0.0.9"],
    }


def test_variables_are_data() -> None:
    assert parse_variables(["ansible_user=b=c"]) == {"ansible_user": "b=c"}
    for wrong in ("x", "A=1", "=1", "a-b=1"):
        with pytest.raises(UsageError, match="VARIABLE=VALUE"):
            parse_variables([wrong])
    with pytest.raises(UsageError, match="template"):
        parse_variables(["minik8s_shard={{ lookup('pipe', 'id') }}"])


def test_a_path_and_the_variables_of_connections_stay_as_they_are_written() -> None:
    assert parse_variables(["minik8s_cache_dir=~/cache", "ansible_ssh_common_args=-o A=b"]) == {
        "minik8s_cache_dir": "~/cache",
        "ansible_ssh_common_args": "-o A=b",
    }


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("minik8s_mehs=true", "no role has such a variable; is it minik8s_mesh?"),
        ("nothing_like_it=1", r"no role has such a variable \(`ansible-doc"),
        ("minik8s_mesh=perhaps", "minik8s_mesh=perhaps: .*unable to convert to bool"),
        ("minik8s_api_port=https", "unable to convert to int"),
        ("minik8s_network_driver=vlan", "must be one of: bridge, vxlan, cni, weave, got: vlan"),
        ("minik8s_shard=Hall_2", "up to 32 lower-case letters"),
    ],
)
def test_what_no_role_knows_or_takes_is_refused(given: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse_variables([given])


def test_the_names_of_shards_are_those_of_the_preflight_check() -> None:
    tasks = yaml.safe_load((ROLES / "preflight/tasks/main.yml").read_text())
    assert any(f"match('{SHARD}')" in str(task.get("ansible.builtin.assert", {}).get("that")) for task in tasks)


@pytest.mark.parametrize(
    ("given", "nodes", "words"),
    [
        (["minik8s_cluster_cidr=10.244.0.0"], 1, "minik8s_cluster_cidr: 10.244.0.0 is not an IPv4 network"),
        (["minik8s_cluster_cidr=10.244.0.0/23"], 3, "is too small: each of 3 nodes gets a /24"),
        (["minik8s_service_cidr=10.244.1.0/24"], 1, "overlap"),
        (["minik8s_network_underlay=ipv6"], 1, "the network driver bridge makes no tunnels of ours"),
        (["minik8s_dns_address=10.244.0.10"], 1, "minik8s_dns_address: 10.244.0.10"),
        (["minik8s_cluster_cidr=fd00:10:244::/48"], 1, "minik8s_service_cidr"),
        (["minik8s_cluster_cidr=fd00:10:244::/48", "minik8s_service_cidr=fd00:10:96::/112", "minik8s_mesh=true"], 1,
         "minik8s_mesh is not for a cluster with IPv6 alone"),
        (["minik8s_service_cidr="], 1, "minik8s_service_cidr is empty"),
        (["minik8s_cluster_cidr="], 1, "minik8s_cluster_cidr is empty"),
    ],
)  # fmt: skip
def test_ranges_that_no_cluster_can_have_are_refused(given: list[str], nodes: int, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        check_ranges(parse_variables(given), nodes)


@pytest.mark.parametrize(
    "given",
    [
        [],
        ["minik8s_network_driver=vxlan", "minik8s_network_underlay=ipv6", "minik8s_dns_address="],
        ["minik8s_cluster_cidr=fd00:10:244::/48", "minik8s_service_cidr=fd00:10:96::/112"],
        ["minik8s_cluster_cidr_ipv6=fd00:10:244::/48", "minik8s_service_cidr_ipv6=fd00:10:96::/112"],
    ],
)
def test_ranges_that_a_cluster_can_have_are_taken(given: list[str]) -> None:
    check_ranges(parse_variables(given), 3)


def test_what_init_refuses_leaves_no_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "cluster"
    assert main.main(["init", str(folder), "--set", "minik8s_service_cird=10.0.0.0/24"]) == 1
    assert "is it minik8s_service_cidr?" in capsys.readouterr().err
    assert main.main(["init", str(folder), "--set", "minik8s_service_cidr=10.0.0.0"]) == 1
    assert "is not an IPv4 network" in capsys.readouterr().err
    assert not folder.exists()


def test_init_writes_values_as_their_types(tmp_path: Path) -> None:
    assert main.main(["init", str(tmp_path), "--set", "minik8s_mesh=true"]) == 0
    assert yaml.safe_load((tmp_path / "inventory/local/hosts.yml").read_text())["all"]["vars"] == {"minik8s_mesh": True}
