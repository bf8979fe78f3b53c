"""Rules of a pod's sidecar in its real network: those of the original, kept, healed, and left by others alone."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from minik8s_modules.module_utils.minik8s.core import labels
from minik8s_modules.module_utils.minik8s.core.faults import KeyFault
from minik8s_modules.module_utils.minik8s.network import interception, sidecars
from tests.support.node import TestNode, command

ORIGINAL = """\
-A PREROUTING -p tcp -j MISTIO_INBOUND
-A OUTPUT -p tcp -j MISTIO_OUTPUT
-A MISTIO_INBOUND -p tcp -j MISTIO_IN_REDIRECT
-A MISTIO_IN_REDIRECT -p tcp -j REDIRECT --to-ports 15006
-A MISTIO_OUTPUT ! -d 127.0.0.1/32 -o lo -m owner --uid-owner 1337 -j MISTIO_IN_REDIRECT
-A MISTIO_OUTPUT -o lo -m owner ! --uid-owner 1337 -j RETURN
-A MISTIO_OUTPUT -m owner --uid-owner 1337 -j RETURN
-A MISTIO_OUTPUT ! -d 127.0.0.1/32 -o lo -m owner --gid-owner 1337 -j MISTIO_IN_REDIRECT
-A MISTIO_OUTPUT -o lo -m owner ! --gid-owner 1337 -j RETURN
-A MISTIO_OUTPUT -m owner --gid-owner 1337 -j RETURN
-A MISTIO_OUTPUT -d 127.0.0.1/32 -j RETURN
-A MISTIO_OUTPUT -j MISTIO_REDIRECT
-A MISTIO_REDIRECT -p tcp -j REDIRECT --to-ports 15001
"""
"""What the original writes (spec 1.14), as iptables-save prints it."""
OURS = "-A MISTIO_OUTPUT -s 127.0.0.6/32 -o lo -j RETURN"
LEFT_OUT = {
    "node_addresses": ["10.244.0.1"],
    "exclude_inbound_ports": [22, 8080],
    "exclude_outbound_ports": [5432],
    "exclude_outbound_ranges": ["10.0.0.0/8"],
}


@pytest.fixture(params=[interception.IPTABLES, interception.NFTABLES])
def program(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Have the node write rules with the one program, then with the other."""
    if request.param == interception.NFTABLES:
        monkeypatch.setattr(sidecars, "program", lambda: interception.NFTABLES)
    return str(request.param)


class Pod:
    """A pod whose network can be entered."""

    def __init__(self, node: TestNode, number: int = 7) -> None:
        self.node = node
        self.entry = node.pod(number)
        self.uid = self.entry["pod"]["uid"]
        node.run("network", node.network())
        assert not node.run("sandboxes", {self.uid: self.entry})["errors"]

    @property
    def pid(self) -> str:
        """Return the process of its sandbox."""
        (sandbox,) = self.node.ids(labels.SANDBOX)
        return command("docker", "inspect", "--format", "{{.State.Pid}}", sandbox).strip()

    def inside(self, *argv: str) -> str:
        """Run a program of this machine in the pod's network."""
        return command("nsenter", f"--net=/proc/{self.pid}/ns/net", "--", *argv)

    def rules(self, **more: Any) -> dict[str, Any]:
        """Return the section's entries."""
        return {self.uid: {"attempt": self.entry["attempt"], **more}}


def test_the_chains_are_the_originals_with_one_rule_more(node: TestNode):
    pod = Pod(node)
    result = node.run("sidecars", pod.rules())
    assert result["status"] == {pod.uid: {"by": "iptables"}}
    printed = [line for line in pod.inside("iptables-save", "-t", "nat").splitlines() if line.startswith("-A")]
    theirs = [line for line in printed if "MINIK8S_" not in line and line != OURS]
    assert theirs == ORIGINAL.splitlines()
    assert next(line for line in printed if line.startswith("-A MISTIO_OUTPUT")) == OURS


MUTUAL = {**LEFT_OUT, "node_addresses": ["10.244.0.1", "fd00:10:244::1"], "mutual_tls": True}


@pytest.mark.parametrize("more", [{}, LEFT_OUT, MUTUAL], ids=["plain", "left out", "mutual TLS"])
def test_rules_are_written_once_and_removed_whole(node: TestNode, program: str, more: dict[str, Any]):
    pod = Pod(node)
    before = pod.inside("nft", "list", "ruleset") if program == interception.NFTABLES else ""
    planned = node.run("sidecars", pod.rules(**more), check=True)
    assert [step["action"] for step in planned["steps"]] == ["write"]
    assert node.run("sidecars", pod.rules(**more))["steps"] == planned["steps"]
    again = node.run("sidecars", pod.rules(**more))
    assert (again["changed"], again["status"]) == (False, {pod.uid: {"by": program}})
    assert node.run("sidecars", {})["changed"]
    if program == interception.NFTABLES:
        assert pod.inside("nft", "list", "ruleset") == before
    else:
        assert "-A" not in pod.inside("iptables-save", "-t", "nat") + pod.inside("ip6tables-save", "-t", "nat")


def test_only_a_pod_that_takes_mutual_tls_has_rules_of_ipv6(node: TestNode, program: str):
    pod = Pod(node)
    for more, wanted in (({}, False), (MUTUAL, True)):
        node.run("sidecars", pod.rules(**more))
        found = pod.inside("nft", "list", "ruleset")
        assert ("table ip6" in found) is wanted, found


HARM = {
    interception.IPTABLES: [
        ["iptables", "-t", "nat", "-F", "MISTIO_OUTPUT"],
        ["iptables", "-t", "nat", "-F"],
        ["iptables", "-t", "nat", "-D", "OUTPUT", "-p", "tcp", "-j", "MISTIO_OUTPUT"],
        ["iptables", "-t", "nat", "-I", "MISTIO_INBOUND", "-j", "RETURN"],
    ],
    interception.NFTABLES: [
        ["nft", "flush", "chain", "ip", interception.TABLE, "MISTIO_OUTPUT"],
        ["nft", "delete", "table", "ip", interception.TABLE],
        ["nft", "insert", "rule", "ip", interception.TABLE, "MISTIO_INBOUND", "return"],
    ],
}


def test_what_somebody_changed_is_seen_and_put_right(node: TestNode, program: str):
    pod = Pod(node)
    node.run("sidecars", pod.rules(**LEFT_OUT))
    for harm in HARM[program]:
        pod.inside(*harm)
        assert node.run("sidecars", pod.rules(**LEFT_OUT), check=True)["changed"], harm
        held = node.run("sidecars", pod.rules(**LEFT_OUT), hold=[pod.uid])
        assert ([step["action"] for step in held["held"]], held["changed"]) == (["write"], False), harm
        node.run("sidecars", pod.rules(**LEFT_OUT))
        assert not node.run("sidecars", pod.rules(**LEFT_OUT))["changed"], harm


def test_rules_of_others_in_the_pods_network_stay(node: TestNode):
    pod = Pod(node)
    pod.inside("iptables", "-t", "nat", "-A", "OUTPUT", "-p", "tcp", "--dport", "1", "-j", "RETURN")
    node.run("sidecars", pod.rules())
    pod.inside("iptables", "-t", "nat", "-A", "PREROUTING", "-p", "tcp", "--dport", "2", "-j", "RETURN")
    assert not node.run("sidecars", pod.rules())["changed"]
    node.run("sidecars", {})
    left = [line for line in pod.inside("iptables-save", "-t", "nat").splitlines() if line.startswith("-A")]
    assert [line.split()[1] for line in left] == ["PREROUTING", "OUTPUT"]


def test_a_new_sandbox_gets_its_rules_before_its_containers_start(node: TestNode, monkeypatch: pytest.MonkeyPatch):
    pod = Pod(node)
    app = node.container(pod.entry)
    containers = {f"{pod.uid}/app": app}
    with monkeypatch.context() as broken:
        broken.setattr(sidecars, "program", lambda: KeyFault("NetworkNotReady", "no program"))
        assert node.run("sidecars", pod.rules())["errors"][pod.uid]["message"] == "no program"
        refused = node.run("containers", containers)
        assert refused["errors"][f"{pod.uid}/app"]["reason"] == "RulesMissing"
        assert not node.ids("app")
    assert not node.run("sidecars", pod.rules())["errors"]
    assert not node.run("containers", containers)["errors"]
    assert node.ids("app")


def test_a_pod_on_its_nodes_network_never_gets_rules(node: TestNode):
    host = {"host_network": True, "ip": "", "prefix_length": 0, "gateway": "", "bridge": "", "mtu": 0}
    node.run("network", node.network())
    entry = node.pod(8, **host)
    uid = entry["pod"]["uid"]
    assert not node.run("sandboxes", {uid: entry})["errors"]
    before = command("iptables-save", "-t", "nat")
    refused = node.run("sidecars", {uid: {"attempt": 0}})
    assert refused["errors"][uid]["reason"] == "InvalidEntry"
    assert "MISTIO" not in before
    assert "MISTIO" not in command("iptables-save", "-t", "nat")


@pytest.mark.parametrize(
    "more",
    [
        {"node_addresses": ["x"]},
        {"exclude_inbound_ports": [0]},
        {"exclude_outbound_ports": [65536]},
        {"exclude_outbound_ports": ["22 -j ACCEPT"]},
        {"exclude_outbound_ranges": ["10.0.0.1/8"]},
        {"exclude_outbound_ranges": ["10.0.0.0/8\n-A OUTPUT -j DROP"]},
        {"unknown": 1},
    ],
)
def test_an_entry_that_cannot_be_used_is_refused(node: TestNode, more: dict[str, Any]):
    refused = node.run("sidecars", {"u": {"attempt": 0, **more}})
    assert refused["errors"]["u"]["reason"] == "InvalidEntry"


def test_a_node_without_a_program_says_so(node: TestNode, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    refused = node.run("sidecars", {"u": {"attempt": 0}})
    assert "neither iptables nor nft" in refused["errors"]["u"]["message"]
