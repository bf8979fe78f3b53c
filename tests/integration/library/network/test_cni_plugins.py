"""Driver cni on real pods, with Debian's plugins bridge, host-local and portmap."""

from __future__ import annotations

import json
import shlex
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.module_utils.minik8s.network import pod_plugins
from tests.integration.library.test_kill_at_every_step import survives
from tests.support.docker.cni_plugins import plugins
from tests.support.etcd import free_port
from tests.support.node import TestNode, assert_answers, command

LEAST_EFFECTS = 5


class Conf:
    """A network of its own: bridge, range, folder of configurations, folder of leases."""

    def __init__(self, folder: Path, node: TestNode) -> None:
        self.node, self.dir, self.leases = node, folder / "net.d", folder / "leases"
        self.dir.mkdir()
        self.bridge = f"cnit-{uuid.uuid4().hex[:8]}"
        self.range = node.range
        self.binaries = str(plugins())
        self.write("10-net.conflist", self.network())
        assert not node.run("network", self.declared())["errors"]

    def declared(self) -> dict[str, Any]:
        """Return the entries of section network."""
        where = {"conf_dir": str(self.dir), "bin_dirs": [self.binaries]}
        entry = {"driver": "cni", "bridge": self.node.bridge, "cluster_cidr": f"{self.range}.0/24", "mtu": 1500}
        return {"pod-network": {**entry, "cni": where}}

    def network(self, **changes: Any) -> dict[str, Any]:
        """Return the list."""
        pods = {"type": "host-local", "ranges": [[{"subnet": f"{self.range}.0/24"}]], "dataDir": str(self.leases)}
        bridge = {
            "type": "bridge",
            "bridge": self.bridge,
            "isDefaultGateway": True,
            "ipMasq": True,
            "hairpinMode": True,
            "ipam": pods,
        }
        ports = {"type": "portmap", "capabilities": {"portMappings": True}, "snat": True}
        return {"cniVersion": "0.4.0", "name": f"n{self.bridge}", "plugins": [bridge, ports], **changes}

    def write(self, name: str, network: Any) -> None:
        """Write a file of the configuration folder."""
        (self.dir / name).write_text(network if isinstance(network, str) else json.dumps(network))

    def pod(self, number: int = 7, **changes: Any) -> dict[str, Any]:
        """Return a sandbox entry for the plugin."""
        plugin = {"driver": "cni", "conf_dir": str(self.dir), "bin_dirs": [self.binaries]}
        nothing = {"ip": "", "prefix_length": 0, "gateway": "", "bridge": "", "mtu": 0}
        return self.node.pod(number, **nothing, plugin=plugin, **changes)

    def given(self) -> list[str]:
        """Return the addresses that host-local has given."""
        folder = self.leases / f"n{self.bridge}"
        return sorted(path.name for path in folder.glob("10.*")) if folder.exists() else []

    def records(self) -> list[str]:
        """Return the pods with a record."""
        return pod_plugins.recorded(self.node.state_dir)

    def close(self) -> None:
        """Remove what the plugins leave: a bridge, and rules of pods whose namespace they did not see."""
        subprocess.run(["ip", "link", "del", self.bridge], capture_output=True, check=False)
        for line in command("iptables", "-t", "nat", "-S", "POSTROUTING").splitlines():
            if self.bridge in line:
                rule = shlex.split(line)
                command("iptables", "-w", "5", "-t", "nat", "-D", *rule[1:])
                for action in ("-F", "-X"):
                    command("iptables", "-w", "5", "-t", "nat", action, rule[-1])


@pytest.fixture
def conf(tmp_path: Path, node: TestNode) -> Iterator[Conf]:
    made = Conf(tmp_path, node)
    try:
        yield made
    finally:
        node.run("sandboxes", {})
        made.close()


def start(conf: Conf, *pods: dict[str, Any]) -> dict[str, Any]:
    """Have sandboxes and a sleeping container in each; return the sandboxes' results."""
    result = conf.node.run("sandboxes", {pod["pod"]["uid"]: pod for pod in pods})
    assert not result["errors"], result["errors"]
    containers = {f"{pod['pod']['uid']}/app": conf.node.container(pod) for pod in pods}
    assert not conf.node.run("containers", containers)["errors"]
    return dict(result)


def ip_of(result: dict[str, Any], pod: dict[str, Any]) -> str:
    return str(result["status"][pod["pod"]["uid"]]["ip"])


def app(conf: Conf, pod: dict[str, Any]) -> str:
    return f"mk8s_app_{pod['pod']['name']}_default_{pod['pod']['uid']}_0"


def test_pods_get_the_plugins_addresses_reach_each_other_and_leave_nothing(conf: Conf) -> None:
    node, one, two = conf.node, conf.pod(1), conf.pod(2)
    planned = node.run("sandboxes", {each["pod"]["uid"]: each for each in (one, two)}, check=True)
    assert "given by the plugin" in planned["diff"]["after"]
    assert conf.given() == []
    result = start(conf, one, two)
    first, second = ip_of(result, one), ip_of(result, two)
    assert conf.given() == sorted([first, second])
    assert first in node.execute(app(conf, one), "cat", "/etc/hosts")
    assert_answers(second, *node.inside(app(conf, one)))
    assert_answers(first)
    again = node.run("sandboxes", {each["pod"]["uid"]: each for each in (one, two)})
    assert (again["changed"], ip_of(again, one)) == (False, first)
    gone = node.run("sandboxes", {})
    assert (gone["errors"], conf.given(), conf.records()) == ({}, [], [])
    assert second not in command("iptables", "-t", "nat", "-S")


def test_ports_of_the_node_are_led_by_portmap(conf: Conf) -> None:
    port = free_port()
    mapping = {"ip": "", "protocol": "TCP", "host_port": port, "port": 8080}
    pod = conf.pod(3, host_ports=[mapping])
    result = start(conf, pod)
    conf.node.execute(app(conf, pod), "sh", "-c", "echo yes | nc -l -p 8080 >/dev/null 2>&1 &")
    assert f"--dport {port}" in command("iptables", "-t", "nat", "-S")
    assert ip_of(result, pod) in command("iptables", "-t", "nat", "-S")
    assert conf.node.run("sandboxes", {pod["pod"]["uid"]: pod})["steps"] == []
    conf.node.run("sandboxes", {})
    assert f"--dport {port}" not in command("iptables", "-t", "nat", "-S")


def test_ports_of_the_node_are_ours_where_no_plugin_does_them(conf: Conf) -> None:
    conf.write("10-net.conflist", conf.network(plugins=conf.network()["plugins"][:1]))
    port = free_port()
    pod = conf.pod(3, host_ports=[{"ip": "", "protocol": "TCP", "host_port": port, "port": 8080}])
    result = start(conf, pod)
    assert f"{ip_of(result, pod)} . 8080" in command("nft", "list", "ruleset")
    assert not conf.node.run("sandboxes", {pod["pod"]["uid"]: pod})["changed"]


def test_what_somebody_takes_away_is_attached_anew_with_the_same_address(conf: Conf) -> None:
    node, pod = conf.node, conf.pod(4)
    uid = pod["pod"]["uid"]
    before = ip_of(start(conf, pod), pod)
    pid = node.docker.inspect(node.ids("sandbox")[0])["State"]["Pid"]  # type: ignore[index]
    inside = ("nsenter", f"--net=/proc/{pid}/ns/net", "ip")
    for harm in (("link", "del", "eth0"), ("addr", "flush", "dev", "eth0"), ("route", "del", "default")):
        command(*inside, *harm)
        healed = node.run("sandboxes", {uid: pod})
        assert [step["action"] for step in healed["steps"]] == ["plug"], harm
        assert (healed["errors"], ip_of(healed, pod), conf.given()) == ({}, before, [before]), harm
    assert not node.run("sandboxes", {uid: pod})["changed"]


def test_a_pause_container_that_is_gone_gives_its_address_back(conf: Conf) -> None:
    node, pod = conf.node, conf.pod(5)
    uid = pod["pod"]["uid"]
    start(conf, pod)
    for container in node.ids():
        node.docker.remove(container)
    assert (len(conf.given()), conf.records()) == (1, [uid])
    planned = node.run("sandboxes", {}, check=True)
    assert [step["action"] for step in planned["steps"]] == ["unplug"]
    assert node.run("sandboxes", {})["errors"] == {}
    assert (conf.given(), conf.records()) == ([], [])


def test_the_configuration_it_was_made_with_takes_it_away(conf: Conf) -> None:
    pod = conf.pod(6)
    start(conf, pod)
    (conf.dir / "10-net.conflist").unlink()
    assert not conf.node.run("sandboxes", {pod["pod"]["uid"]: pod})["changed"]
    assert conf.node.run("sandboxes", {})["errors"] == {}
    assert conf.given() == []


def test_the_first_valid_file_is_the_network(conf: Conf) -> None:
    conf.write("00-broken.conflist", "{")
    conf.write("01-empty.conf", {"name": "x"})
    conf.write("02-notes.txt", "not looked at")
    conf.write("99-late.conf", {"name": "late", "type": "none-such"})
    pod = conf.pod(7)
    assert ip_of(start(conf, pod), pod) in conf.given()


BAD: dict[str, tuple[Any, str]] = {
    "no file": (None, "No valid networks found in"),
    "no JSON": ("{", "10-net.conflist: Expecting property name"),
    "no type": ({"name": "x", "plugins": [{"bridge": "y"}]}, "plugin 0 has no type"),
    "a version of tomorrow": ({"name": "x", "cniVersion": "9.0.0", "plugins": [{"type": "bridge"}]}, "cniVersion is"),
    "a program that is a path": ({"name": "x", "plugins": [{"type": "../bridge"}]}, "plugin 0 has no type"),
    "no such program": ({"name": "x", "plugins": [{"type": "nonesuch"}]}, "failed to find plugin 'nonesuch'"),
    "a plugin that refuses": (
        {"name": "x", "cniVersion": "0.4.0", "plugins": [{"type": "bridge", "ipam": {"type": "host-local"}}]},
        "plugin bridge of network 'x': ADD failed",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_that_pods_own_error(conf: Conf, name: str) -> None:
    node, bad, host = conf.node, conf.pod(8), conf.node.pod(9, host_network=True, ip="", gateway="")
    content, words = BAD[name]
    if content is None:
        (conf.dir / "10-net.conflist").unlink()
    else:
        conf.write("10-net.conflist", content)
    entries = {each["pod"]["uid"]: each for each in (bad, host)}
    result = node.run("sandboxes", entries)
    assert list(result["errors"]) == [bad["pod"]["uid"]]
    error = result["errors"][bad["pod"]["uid"]]
    assert (error["reason"], words in error["message"]) == ("NetworkNotReady", True), error
    assert conf.given() == []
    conf.write("10-net.conflist", conf.network())
    healed = node.run("sandboxes", entries)
    assert (healed["errors"], len(conf.given())) == ({}, 1)


@pytest.mark.parametrize("change", ["made", "removed", "changed"])
def test_a_module_killed_at_any_step_leaves_no_attachment_behind(conf: Conf, change: str) -> None:
    node, pod = conf.node, conf.pod(7)
    uid = pod["pod"]["uid"]
    full: dict[str, Any] = {uid: pod}
    before, after = {
        "made": ({}, full), "removed": (full, {}), "changed": (full, {uid: {**pod, "attempt": 1}})
    }[change]  # fmt: skip
    for at in range(40):
        assert not node.run("sandboxes", before)["errors"]
        through = survives(node, at, "sandboxes", {"token": [1, at + 2], "entries": after})
        repaired = node.run("sandboxes", after)
        assert not repaired["errors"], (at, repaired["errors"])
        assert not node.run("sandboxes", after)["changed"], at
        given = [ip_of(repaired, pod)] if after else []
        assert (conf.given(), conf.records(), len(node.ids())) == (given, list(after), len(after)), at
        if through:
            assert at >= LEAST_EFFECTS
            return
    pytest.fail("too many effects")


def test_after_a_boot_the_pod_has_its_address_again(conf: Conf) -> None:
    node, pod = conf.node, conf.pod(7)
    uid = pod["pod"]["uid"]
    before = ip_of(start(conf, pod), pod)
    for container in node.ids():
        node.docker.call("POST", f"/containers/{container}/kill")
    result = node.run("sandboxes", {uid: pod}, context={"unattended": True})
    assert (result["errors"], ip_of(result, pod), conf.given()) == ({}, before, [before])
