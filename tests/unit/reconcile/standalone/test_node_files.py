"""The node's file: what counts of it, what is refused, and the daemons' files that come of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from minik8s_modules.api.nodes.standalone import served_alone
from minik8s_modules.base.config import Configuration
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.reconcile.nodes import nodes
from minik8s_modules.reconcile.standalone import daemon_configs
from minik8s_modules.reconcile.standalone.agent import address_of
from minik8s_modules.reconcile.standalone.daemon_configs import Machine
from minik8s_modules.reconcile.standalone.shared_settings import shared_of
from minik8s_modules.reconcile.values.node_file import Declared, declared_of, parse_node_file

ORIGINAL = """
apiVersion: v1
kind: Node
metadata:
  name: ignored-by-server
  labels: {tier: front, disk: ssd}
spec: {}
status: {address: 192.0.2.7}
"""
BARE = "{apiVersion: v1, kind: Node}"
MACHINE = Machine(
    "n1", "192.0.2.7", "/state", "/run", "/docker.sock", "/state/agent", "/project", ("https://192.0.2.1:6443",)
)


def test_the_originals_file_declares_labels_and_an_address():
    found = parse_node_file(ORIGINAL, "node.yml")
    assert found.name == "ignored-by-server"
    assert found.declared.labels == {"tier": "front", "disk": "ssd"}
    assert found.declared.internal_ip() == "192.0.2.7"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "must hold a Node"),
        ("a: [", "not valid YAML"),
        ("{kind: Node}", "apiVersion must be v1"),
        ("{apiVersion: v1, kind: Pod}", "kind must be Node"),
        ("{apiVersion: v1, kind: Node, data: {}}", "data would do nothing"),
        ("{apiVersion: v1, kind: Node, metadata: 7}", "metadata must be a mapping"),
        ("{apiVersion: v1, kind: Node, metadata: {labels: {a: 1}}}", "metadata.labels.a must be a text, not 1"),
        ("{apiVersion: v1, kind: Node, spec: {podCIDR: 10.0.0.0/24}}", "spec.podCIDR would do nothing"),
        ("{apiVersion: v1, kind: Node, spec: {unschedulable: maybe}}", "spec.unschedulable must be true or false"),
        ("{apiVersion: v1, kind: Node, spec: {taints: [{key: a, effect: Never}]}}", "effect must be one of"),
        ("{apiVersion: v1, kind: Node, spec: {taints: [{effect: NoSchedule}]}}", r"taints\[0\] must have a key"),
        ("{apiVersion: v1, kind: Node, status: {address: nowhere}}", "status.address must be an IP address"),
        ("{apiVersion: v1, kind: Node, status: {addresses: [{type: Hostname, address: a}]}}", "not 'Hostname'"),
        ("{apiVersion: v1, kind: Node, status: {capacity: {cpu: 1}}}", "status.capacity would do nothing"),
    ],
)
def test_what_cannot_be_used_is_named(text: str, message: str):
    with pytest.raises(ConfigurationError, match=f"node.yml.*{message}"):
        parse_node_file(text, "node.yml")


@pytest.mark.parametrize(
    "status", ["{address: 'FD00:0::31'}", "{addresses: [{type: InternalIP, address: 'fd00::31'}]}"]
)
def test_a_node_may_be_known_by_an_ipv6_address_alone(status: str):
    declared = parse_node_file(f"{{apiVersion: v1, kind: Node, status: {status}}}", "node.yml").declared
    assert declared.addresses == ({"type": "InternalIP", "address": "fd00::31"},)
    assert (declared.internal_ip(), declared.internal_ip(ipv6=True)) == ("", "fd00::31")
    assert declared_of({"n": declared.as_json()}, "f") == {"n": declared}
    # others reach it there where it reaches them by IPv6
    assert address_of(declared, "https://[::1]:6443") == "fd00::31"
    assert address_of(declared, "https://127.0.0.1:6443") == "127.0.0.1"
    assert address_of(Declared(), "https://[::1]:6443") == "::1"


def test_what_is_declared_goes_through_the_reconcilers_file_into_the_node():
    text = "{apiVersion: v1, kind: Node, metadata: {labels: {a: b}, annotations: {c: d}}, spec: {unschedulable: true, "
    text += "taints: [{key: k, effect: NoSchedule}]}, status: {address: 192.0.2.7}}"
    file = parse_node_file(text, "f")
    declared = file.declared
    written = daemon_configs.reconciler(MACHINE, {"cluster_cidr": "10.1.0.0/16"}, {"bridge": "b"}, file)
    assert written["cluster_cidr"] == "10.1.0.0/16"
    assert (written["bridge"], written["shard"]) == ("b", "node.n1")
    assert declared_of(written["nodes"], "f") == {"n1": declared}
    made = nodes.declared(nodes.node_object("n1", {"architecture": "amd64"}, ""), declared)
    assert made["metadata"]["labels"]["a"] == "b"
    assert made["metadata"]["labels"]["kubernetes.io/arch"] == "amd64"
    assert made["metadata"]["annotations"] == {"c": "d"}
    assert made["spec"] == {"taints": [{"key": "k", "effect": "NoSchedule"}], "unschedulable": True}
    listed = [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": "n1"}]
    addresses = nodes.addresses(listed, declared.addresses)
    assert [one["address"] for one in addresses] == ["192.0.2.7", "n1"]


def test_a_folder_of_static_pods_is_looked_at_every_20_seconds_beside_the_clusters_housekeeping():
    file = parse_node_file("{apiVersion: v1, kind: Node, spec: {staticPodPath: /etc/pods}}", "f")
    shared = {"housekeeping": {"image_gc": {"high_percent": 90}}}
    written = daemon_configs.reconciler(MACHINE, shared, {}, file)
    assert written["housekeeping"] == {
        "image_gc": {"high_percent": 90},
        "manifests": "/etc/pods",
        "manifests_every_s": 20,
    }
    assert "housekeeping" not in daemon_configs.reconciler(MACHINE, {}, {}, file._replace(manifests=""))
    assert shared == {"housekeeping": {"image_gc": {"high_percent": 90}}}


@pytest.mark.parametrize("path", ["etc/pods", "5", "[a]", '"/a\\0b"'])
def test_a_folder_of_static_pods_is_an_absolute_path(path: str):
    with pytest.raises(ConfigurationError, match=r"f: spec\.staticPodPath must be an absolute path"):
        parse_node_file(f"{{apiVersion: v1, kind: Node, spec: {{staticPodPath: {path}}}}}", "f")


def test_plans_are_answered_where_api_servers_reach_the_node():
    plan = daemon_configs.reconciler(MACHINE, {}, {"plan_port": 7001}, parse_node_file(BARE, "f"))["plan"]
    assert plan["listen"] == "192.0.2.7:7001"
    assert plan["cert"] == plan["key"] == f"{MACHINE.folder}/serving.pem"
    assert "plan_port" not in daemon_configs.reconciler(MACHINE, {}, {"plan_port": 7001}, parse_node_file(BARE, "f"))


def test_places_at_an_ipv6_address_have_brackets_and_can_be_listened_at():
    machine = MACHINE._replace(address="::1")
    plan = daemon_configs.reconciler(machine, {}, {"plan_port": 7001}, parse_node_file(BARE, "f"))["plan"]
    gateway, streams = daemon_configs.gateway(machine, {}), daemon_configs.streams(machine, {"stream_port": 7002})
    assert (plan["listen"], gateway["streams"]["advertise"]) == ("[::1]:7001", "[::1]:6446")
    assert Configuration(streams, "s").host_and_port("listen") == ("::1", 7002)
    with pytest.raises(ConfigurationError, match="HOST:PORT"):
        Configuration({"listen": "::1:7002"}, "s").host_and_port("listen")


def test_a_node_may_be_said_to_have_an_address_of_ipv6_besides():
    text = "{{apiVersion: v1, kind: Node, status: {{addresses: [{}]}}}}"
    both = [f"{{type: InternalIP, address: '{one}'}}" for one in ("2001:DB8::7", "192.0.2.7")]
    declared = parse_node_file(text.format(", ".join(both)), "f").declared
    assert [one["address"] for one in declared.addresses] == ["2001:db8::7", "192.0.2.7"]
    assert declared.internal_ip() == "192.0.2.7"
    with pytest.raises(ConfigurationError, match="an ExternalIP is of IPv4"):
        parse_node_file(text.format("{type: ExternalIP, address: '2001:db8::7'}"), "f")


def test_nothing_declared_changes_nothing():
    made = nodes.node_object("n1", {}, "")
    assert nodes.declared(made, Declared()) == made
    with pytest.raises(ConfigurationError, match=r"nodes\.n1\.color would do nothing"):
        declared_of({"n1": {"color": "red"}}, "f")


def test_settings_of_this_machine_are_known_ones():
    daemon_configs.check_own({"bridge": "b", "stream_port": 7000}, "own.yml")
    with pytest.raises(ConfigurationError, match=r"own.yml: color would do nothing"):
        daemon_configs.check_own({"color": "red"}, "own.yml")
    with pytest.raises(ConfigurationError, match="stream_port must be an integer"):
        daemon_configs.check_own({"stream_port": "many"}, "own.yml")


def test_the_gateway_serves_under_the_nodes_own_name():
    streams = daemon_configs.gateway(MACHINE, {"stream_port": 7000})["streams"]
    assert (streams["advertise"], streams["server_name"]) == ("192.0.2.7:7000", "n1.node.minik8s.internal")


def test_a_cluster_shares_its_settings_and_no_machines_own():
    data = {
        "cluster_cidr": "10.1.0.0/16",
        "kubeconfig": "/secret",
        "network": {"driver": "vxlan"},
        "housekeeping": {"manifests": "/m", "manifests_every_s": 5, "image_gc": {"high_percent": 90}},
        "plan": {"listen": "x"},
    }
    assert shared_of(Configuration(data, "f")) == {
        "cluster_cidr": "10.1.0.0/16",
        "network": {"driver": "vxlan"},
        "housekeeping": {"image_gc": {"high_percent": 90}},
    }


def test_a_node_is_left_alone_while_somebody_holds_its_lease():
    def lease(name: str, holder: str) -> dict[str, object]:
        return {"metadata": {"name": name}, "spec": {"holderIdentity": holder} if holder else {}}

    held = [lease("minik8s-reconciler-node.n1", "x"), lease("minik8s-reconciler-node.n2", "")]
    assert served_alone([*held, lease("minik8s-reconciler-default", "y")]) == {"n1"}


def test_the_examples_of_the_readme_are_files_of_a_node():
    for path in (Path(__file__).parents[4] / "examples").glob("node*.yml"):
        parse_node_file(path.read_text(), str(path))
