"""What names a machine's address: configurations, URLs and certificates of a cluster of either family."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
# In a process of its own: ansible's loaders are global and change how imports work.
RENDER = """
import json, pathlib, sys
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import init_plugin_loader
from ansible.template import Templar
init_plugin_loader()
repository, loader, (given, wanted) = pathlib.Path(sys.argv[1]), DataLoader(), json.load(sys.stdin)
known = {}
for part in ("defaults", "vars"):
    for path in sorted((repository / "roles").glob(f"*/{part}/main.yml")):
        known |= loader.load_from_file(str(path), trusted_as_template=True) or {}
known |= {"minik8s_repository": str(repository), "etcd_data": {"stat": {"exists": False}}} | given
preflight = loader.load_from_file(str(repository / "roles/preflight/tasks/main.yml"), trusted_as_template=True)
asked = next(task["minik8s_requirements"] for task in preflight if "minik8s_requirements" in task)
# before any role has its defaults
known["asked_dns_address"] = Templar(loader, variables=given).template(asked["dns_address"])
templar = Templar(loader, variables=known)
print(json.dumps({name: templar.template(known[name]) for name in wanted}))
"""
WANTED = (
    "minik8s_network_underlay",
    "control_plane_api_listen_address",
    "control_plane_etcd_endpoints",
    "control_plane_servers",
    "control_plane_inner_host",
    "control_plane_peers",
    "asked_dns_address",
    "minik8s_dns_address",
    "control_plane_additions",
    "etcd_configuration",
    "monitoring_adapter_values",
    "monitoring_others",
    "node_api_servers",
    "nfs_server_nodes",
    "pki_certificates",
    "pki_certificates_of_etcd",
    "pki_service_address",
)
MACHINES = ["one", "two"]


def rendered(addresses: tuple[str, ...], services: str, **more: Any) -> dict[str, Any]:
    """Return the variables on the first of machines whose default routes have these addresses."""
    names = MACHINES[: len(addresses)]
    route = "default_ipv6" if ":" in addresses[0] else "default_ipv4"
    facts = {name: {route: {"address": address}} for name, address in zip(names, addresses, strict=True)}
    given = {
        "inventory_hostname": "one",
        "groups": dict.fromkeys(("control_plane", "nodes"), names),
        "hostvars": {name: {"inventory_hostname": name, "ansible_facts": facts[name]} for name in names},
        "ansible_facts": facts["one"],
        "minik8s_service_cidr": services,
        **more,
    }
    return _rendered(json.dumps([given, WANTED]))


@functools.cache
def _rendered(asked: str) -> dict[str, Any]:
    argv = [sys.executable, "-c", RENDER, str(REPOSITORY)]
    done = subprocess.run(argv, input=asked, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


OLD, NEW = ("192.0.2.1", "192.0.2.2"), ("fd00::21", "fd00::22")
OLD_SERVICES, NEW_SERVICES = "100.0.0.0/24", "fd00:10:96::/112"
SIDES = [(OLD, OLD_SERVICES, "192.0.2.1", "192.0.2.2"), (NEW, NEW_SERVICES, "[fd00::21]", "[fd00::22]")]


@pytest.mark.parametrize(("addresses", "services", "one", "two"), SIDES)
def test_urls_and_listeners_of_two_machines(addresses: tuple[str, ...], services: str, one: str, two: str) -> None:
    found = rendered(addresses, services)
    etcd = found["etcd_configuration"]
    urls = {name: etcd[f"{name}-urls"] for name in ("listen-client", "advertise-client", "listen-peer")}
    assert urls == {
        "listen-client": f"https://127.0.0.1:2379,https://{one}:2379",
        "advertise-client": f"https://{one}:2379",
        "listen-peer": f"https://{one}:2380",
    }
    assert etcd["initial-advertise-peer-urls"] == f"https://{one}:2380"
    assert etcd["initial-cluster"] == f"one=https://{one}:2380"
    assert found["control_plane_etcd_endpoints"] == ["https://127.0.0.1:2379", f"https://{two}:2379"]
    assert found["control_plane_servers"] == ["https://127.0.0.1:6443", f"https://{two}:6443"]
    assert found["control_plane_inner_host"] == one
    assert found["monitoring_others"] == [f"{two}:6443"]
    assert found["monitoring_adapter_values"]["adapter"]["listen"] == f"{one}:10271"
    assert found["node_api_servers"] == [f"{one}:6443", f"{two}:6443"]


@pytest.mark.parametrize(("addresses", "services"), [side[:2] for side in SIDES])
def test_names_and_lists_have_addresses_without_brackets(addresses: tuple[str, ...], services: str) -> None:
    found = rendered(addresses, services)
    assert found["control_plane_peers"] == ["localhost", *addresses]
    assert found["nfs_server_nodes"] == [*addresses]
    names = {one["certificate"].rpartition("/")[2]: one.get("names", []) for one in found["pki_certificates"]}
    for name in ("apiserver.crt", "reconciler.crt", "gateway.crt", "controllers.crt", "scheduler.crt"):
        assert names[name][:3] == ["localhost", "127.0.0.1", addresses[0]]
    assert found["pki_certificates_of_etcd"][0]["names"] == ["localhost", "127.0.0.1", addresses[0], "one"]


def test_what_follows_from_the_family_of_services() -> None:
    old, new = rendered(OLD, OLD_SERVICES), rendered(NEW, NEW_SERVICES)
    assert (old["minik8s_network_underlay"], new["minik8s_network_underlay"]) == ("ipv4", "ipv6")
    assert (old["control_plane_api_listen_address"], new["control_plane_api_listen_address"]) == ("0.0.0.0", "::")
    # minik8s_certificates knows the first address of a range of IPv6
    assert (old["pki_service_address"], new["pki_service_address"]) == ("100.0.0.1", NEW_SERVICES)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, {"dns": {"listen": "169.254.20.10"}}),
        ({"minik8s_dns_address": ""}, {}),
        ({"minik8s_dns_address": "10.0.0.53"}, {"dns": {"listen": "10.0.0.53"}}),
        ({"minik8s_cluster_cidr": "fd00:10:244::/48"}, {"dns": {"listen": "fd00:169:254:20::10"}}),
    ],
)
def test_the_name_servers_address_is_told_to_who_would_give_it_away(
    given: dict[str, Any], told: dict[str, Any]
) -> None:
    found = rendered(OLD[:1], OLD_SERVICES, **given)
    additions = found["control_plane_additions"]
    assert additions["apiserver"] == additions["controllers"] == told
    assert found["asked_dns_address"] == found["minik8s_dns_address"], "what is checked before is what is installed"


def test_a_lone_machine_speaks_with_itself_over_loopback() -> None:
    for addresses, services in ((OLD[:1], OLD_SERVICES), (NEW[:1], NEW_SERVICES)):
        found = rendered(addresses, services)
        assert found["etcd_configuration"]["listen-peer-urls"] == "https://127.0.0.1:2380"
        assert found["control_plane_inner_host"] == "127.0.0.1"
        assert found["control_plane_servers"] == ["https://127.0.0.1:6443"]


def test_the_inventory_may_name_another_address() -> None:
    given = {"inventory_hostname": "one", "ansible_facts": {}, "minik8s_node_address": "2001:db8::7"}
    found = rendered(NEW[:1], NEW_SERVICES, hostvars={"one": given}, minik8s_node_address="2001:db8::7")
    assert found["node_api_servers"] == ["[2001:db8::7]:6443"]
