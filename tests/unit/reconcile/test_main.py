"""What the daemon reads from its configuration file, and how it says what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.base.config import Configuration
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.module_utils.minik8s.services.services_entries import check_entry
from minik8s_modules.reconcile.main import jittered, main
from minik8s_modules.reconcile.network.dataplane import dataplane_entry
from minik8s_modules.reconcile.options import OBSERVE_EVERY_S, read_options


def configuration(folder: Path, **changes: Any) -> Configuration:
    key = folder / "hmac"
    key.write_text("00ff")
    names = ("kubeconfig", "inventory", "private_data_dir", "project_dir")
    data = {name: str(folder / name) for name in names} | {"hmac_key_file": str(key)} | changes
    return Configuration({name: value for name, value in data.items() if value is not None}, "reconciler.yml")


def test_what_is_left_out_has_a_default(tmp_path: Path):
    options = read_options(configuration(tmp_path))
    assert options.settings.cluster_cidr == "10.244.0.0/16"
    assert options.settings.hmac_key == b"00ff"
    assert options.observe_every_s == OBSERVE_EVERY_S["normal"]
    assert (options.shard, options.plan) == ("default", None)


def test_changes_are_watched_unless_one_says_no(tmp_path: Path):
    assert read_options(configuration(tmp_path)).drift_watch
    assert not read_options(configuration(tmp_path, drift_watch=False)).drift_watch


def test_fast_drift_observes_every_30_seconds(tmp_path: Path):
    assert read_options(configuration(tmp_path, drift="fast")).observe_every_s == 30.0


def test_observations_are_jittered_by_a_fifth():
    every_s = jittered(100.0)
    found = [every_s() for _ in range(200)]
    assert 80.0 <= min(found) < 95.0
    assert 105.0 < max(found) <= 120.0


def test_other_names_are_asked_of_servers_of_either_family(tmp_path: Path):
    found = read_options(configuration(tmp_path, dns={"forward": ["192.0.2.53", "FD00::0:53"]})).settings.dns
    assert found.forward == ("192.0.2.53", "fd00::53")


ALONE: dict[str, Any] = {"cluster_cidr": "fd00:10:244::/48", "service_cidr": "fd00:10:96::/112"}


def test_paths_are_served_over_both_families_where_pods_have_both(tmp_path: Path):
    assert not read_options(configuration(tmp_path)).settings.ingress.ipv6
    assert read_options(configuration(tmp_path, cluster_cidr_ipv6="fd00:10:244::/48")).settings.ingress.ipv6


def test_the_address_of_the_clusters_dns_is_nobodys(tmp_path: Path):
    told = {"dns": {"listen": "FD00:169:254:20:0::10"}, "api_address": "[fd00::1]:443", **ALONE}
    found = read_options(configuration(tmp_path, **told)).settings
    assert (found.dns.listen, found.api_address) == ("fd00:169:254:20::10", "[fd00::1]:443")
    assert found.balancing.is_own("fd00:169:254:20::10")
    assert not found.balancing.is_own("fd00:169:254:20::11")


def test_services_of_ipv6_alone_may_be_realized_by_ipvs(tmp_path: Path):
    found = read_options(configuration(tmp_path, proxy_mode="ipvs", **ALONE)).settings
    addresses = [{"type": "InternalIP", "address": "2001:db8::1"}]
    node = {"metadata": {"name": "n1"}, "spec": {"podCIDR": "fd00:10:244:1::/64"}, "status": {"addresses": addresses}}
    entry = dataplane_entry(node, found)
    assert entry is not None
    check_entry("dataplane", entry)
    assert (entry["mode"], entry["service_cidr"], entry["node_ip"]) == ("ipvs", "", "2001:db8::1")
    assert entry["ipv6"]["pod_cidr"] == "fd00:10:244:1::/64"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dns": {"forward": ["ns.example"]}}, "dns.forward must have IP addresses"),
        ({"dns": {"forward": ["fe80::1%eth0"]}}, "dns.forward fe80::1%eth0 names a device"),
        ({"dns": {"listen": "ns"}}, "dns.listen ns is not an IP address"),
        ({"dns": {"listen": "fd00::53"}}, "dns.listen fd00::53 is IPv6, and Pods have no such address"),
        ({"dns": {"listen": "::1"}, **ALONE}, "dns.listen ::1 is not one that Pods reach"),
        ({"dns": {"listen": "fd00:10:244::53"}, **ALONE}, "is in fd00:10:244::/48, a range of Pods or Services"),
        ({"api_address": "fd00::1:443"}, "api_address must be HOST:PORT, an IPv6 address in brackets"),
        ({"drift": "slow"}, "drift must be normal or fast"),
        ({"executor": "shell"}, "executor must be python_api or strategy, not 'shell'"),
        ({"hmac_key_file": "/nowhere"}, "cannot read hmac_key_file /nowhere"),
        ({"hmac_key_file": "/dev/null"}, "is empty"),
        ({"kubeconfig": None}, "kubeconfig is missing"),
        ({"plan": {"listen": "6444"}}, "plan.listen must be HOST:PORT"),
        ({"plan": {"listen": "h:1"}}, "plan.cert is missing"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path: Path, changes: dict[str, Any], message: str):
    with pytest.raises(ConfigurationError, match=message):
        read_options(configuration(tmp_path, **changes))


def test_a_bad_configuration_is_told_and_ends_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "reconciler.yml"
    path.write_text("drift: slow\n")
    assert main(["--config", str(path)]) == 2
    assert "drift must be normal or fast" in capsys.readouterr().err
