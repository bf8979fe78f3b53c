"""Real packets: pod to pod, host to pod, pod to outside, and nothing left behind."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator

import pytest

from minik8s_modules.module_utils.minik8s.network import netfilter
from tests.support.node import TestNode, assert_answers, command


@pytest.fixture
def outside() -> Iterator[str]:
    """A machine beyond the node: a namespace behind a link of its own, with no route back to the pods."""
    name = f"mk8t-{uuid.uuid4().hex[:6]}"
    net = f"10.199.{uuid.uuid4().int % 250}"
    command("ip", "netns", "add", name)
    try:
        command("ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
        command("ip", "addr", "add", f"{net}.1/24", "dev", name)
        command("ip", "link", "set", name, "up")
        command("ip", "netns", "exec", name, "ip", "addr", "add", f"{net}.2/24", "dev", "eth0")
        command("ip", "netns", "exec", name, "ip", "link", "set", "eth0", "up")
        yield f"{net}.2"
    finally:
        subprocess.run(["ip", "link", "del", name], check=False)
        command("ip", "netns", "del", name)


def test_pods_reach_each_other_the_host_and_the_outside(node: TestNode, outside: str) -> None:
    pods = {number: node.pod(number) for number in (7, 8)}
    assert not node.run("network", node.network())["errors"]
    node.run("sandboxes", {pod["pod"]["uid"]: pod for pod in pods.values()})
    key = f"{pods[7]['pod']['uid']}/app"
    result = node.run("containers", {key: node.container(pods[7])})
    assert not result["errors"]
    for target in (pods[8]["ip"], pods[7]["gateway"], outside):
        assert_answers(target, *node.inside(result["status"][key]["id"]))
    assert_answers(pods[7]["ip"])


def test_a_second_run_finds_nothing_and_an_empty_set_leaves_nothing(node: TestNode) -> None:
    before = node.traces()
    first = node.run("network", node.network())
    assert first["changed"]
    assert first["status"] == {"pod-network": {"state": "present"}}
    again = node.run("network", node.network())
    assert not again["changed"], again["steps"]
    assert node.run("network", {})["changed"]
    assert node.traces() == before
    assert not node.run("network", {})["changed"]


@pytest.mark.parametrize(
    ("harm", "aspect"),
    [
        (["ip", "link", "set", "BRIDGE", "down"], "bridge"),
        (["ip", "link", "set", "BRIDGE", "mtu", "1400"], "bridge"),
        (["ip", "link", "del", "BRIDGE"], "bridge"),
        (["ip", "addr", "flush", "dev", "BRIDGE"], "address"),
        (["ip", "addr", "add", "10.198.0.1/24", "dev", "BRIDGE"], "address"),
        (["nft", "flush", "chain", "ip", netfilter.TABLE, "BRIDGE"], "masquerade"),
        (["nft", "delete", "chain", "ip", netfilter.TABLE, "BRIDGE"], "masquerade"),
        (
            [
                "iptables",
                "-D",
                "FORWARD",
                "-i",
                "BRIDGE",
                "-m",
                "comment",
                "--comment",
                "minik8s/NODE/BRIDGE",
                "-j",
                "ACCEPT",
            ],
            "forward",
        ),
    ],
)
def test_drift_of_the_network_is_seen_and_healed(node: TestNode, harm: list[str], aspect: str) -> None:
    node.run("network", node.network())
    command(*[word.replace("BRIDGE", node.bridge).replace("NODE", node.name) for word in harm])
    planned = node.run("network", node.network(), check=True)
    assert aspect in planned["steps"][0]["detail"]
    assert planned["diff"]["before"] != planned["diff"]["after"]
    healed = node.run("network", node.network())
    assert healed["steps"] == planned["steps"]
    assert not healed["errors"]
    assert not node.run("network", node.network())["changed"]


def test_rules_whose_bridge_is_gone_go_with_an_empty_set(node: TestNode) -> None:
    before = node.traces()
    node.run("network", node.network())
    command("ip", "link", "del", node.bridge)
    assert node.traces() != before
    node.run("network", {})
    assert node.traces() == before


def test_another_cidr_moves_the_rules(node: TestNode) -> None:
    node.run("network", node.network())
    entries = node.network()
    entries["pod-network"].update(cidr=f"{node.range}.0/25", cluster_cidr="10.0.0.0/8")
    node.run("network", entries)
    assert not node.run("network", entries)["changed"]
    assert f"{node.range}.0/25" in command("nft", "list", "table", "ip", netfilter.TABLE)


def test_a_foreign_device_of_the_bridges_name_is_an_error_and_stays(node: TestNode) -> None:
    command("ip", "link", "add", node.bridge, "type", "veth")
    try:
        result = node.run("network", node.network())
        assert "is not a bridge" in result["errors"]["pod-network"]["message"]
        assert node.bridge in command("ip", "-br", "link")
    finally:
        command("ip", "link", "del", node.bridge)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"driver": "flannel"}, "known are"),
        ({"bridge": "br; rm -rf /"}, "not a device name"),
        ({"gateway": "10.1.1.1"}, "is not in"),
        ({"cidr": "nonsense"}, "nonsense"),
        ({"mtu": 100}, "at least"),
        ({"colour": "red"}, "unknown fields"),
    ],
)
def test_a_wrong_network_is_refused(node: TestNode, change: dict[str, str], word: str) -> None:
    entries = node.network()
    entries["pod-network"].update(change)
    assert word in node.run("network", entries)["errors"]["pod-network"]["message"]
