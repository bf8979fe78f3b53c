"""Pods of different machines: the overlay vxlan and services (S-07) on the folder's cluster.

Two workers, each with a pod behind the service of the original's manifests (port 800, node port 30080) and a client.
The machine of the control plane is no node: what it sees of pods is what the outside sees.
"""

from __future__ import annotations

import json
import re
import shlex
import uuid
from collections.abc import Iterator

import pytest

from minik8s_modules.api.objects import JsonObject
from tests.lab.errors import LabError
from tests.support.clusters import standing
from tests.support.clusters.labcluster import CommandFailed, LabCluster

PORT, SERVICE_PORT, NODE_PORT = 1024, 800, 30080
MTU, HEADERS = 1450, 28
BIG = 4 << 20
ENOUGH = 12
"""Requests of which all going to one of two pods is a chance of 1 in 2048."""
SERVER = (
    'trap "exit 0" TERM; mkdir -p /tmp/w; hostname >/tmp/w/index.html; '
    f"dd if=/dev/zero of=/tmp/w/big bs=1M count={BIG >> 20}; httpd -f -p {PORT} -h /tmp/w & wait"
)
IDLE = 'trap "exit 0" TERM; sleep 100000 & wait'
LISTEN = """
import socket
with socket.create_server(("", {port})) as server:
    server.settimeout(60)
    print(server.accept()[1][0])
"""
WORKERS = ("worker1", "worker2")
BOTH = {"web1", "web2"}
PODS = (*sorted(BOTH), "client1", "client2")
NETWORK_POLICY = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy"}
ATTENDING = ["minik8s-gateway", "minik8s-reconciler", "minik8s-apiserver"]
UNATTENDED_S = 300.0  # a node whose API answers waits for two minutes, and looks once a minute
OVERLAY, BRIDGE = "mk8s-vx0", "mk8s-br0"


class Overlaid:
    """The cluster, with short words for what is asked here."""

    def __init__(self, cluster: LabCluster) -> None:
        self.cluster = cluster
        for number, worker in enumerate(WORKERS, 1):
            cluster.apply(
                pod(f"web{number}", worker, SERVER, app="nginx"),
                pod(f"client{number}", worker, IDLE, app=f"client{number}"),
            )
        cluster.apply(SERVICE)
        cluster.until(lambda: all(cluster.ready(name) for name in PODS), 300, "the pods are not ready")
        found = {one["metadata"]["name"]: one for one in cluster.get("pods")["items"]}
        self.ips = {name: str(found[name]["status"]["podIP"]) for name in PODS}
        self.service = str(cluster.get("service", "nginx-service")["spec"]["clusterIP"])
        cluster.until(lambda: self.spread(f"{self.service}:{SERVICE_PORT}", "worker1"), 120, "the service is not there")

    def fetch(self, place: str, at: str, path: str = "", times: int = 1) -> str:
        """Return what a URL answers a machine or a pod, as often as it is asked, all by one command."""
        url = shlex.quote(f"http://{at}/{path}")
        get = f"timeout 20 wget -q -O - {url}" if place in self.ips else f"curl -sS --fail --max-time 20 {url}"
        script = ["sh", "-ec", f"for _ in $(seq {times}); do {get}; done"]
        return (self.cluster.inside(place, *script) if place in self.ips else self.cluster.on(place, script)).strip()

    def reached(self, place: str, at: str) -> bool:
        """Return whether a server answers a machine or a pod."""
        try:
            return bool(self.fetch(place, at))
        except (CommandFailed, LabError):
            return False

    def spread(self, at: str, place: str) -> bool:
        """Return whether both pods answer a machine or a pod, and each request is answered."""
        answers = self.fetch(place, at, times=ENOUGH).split()
        return len(answers) == ENOUGH and set(answers) == BOTH

    def within(self, name: str, *argv: str) -> str:
        """Run a command of a pod's machine in the pod's network."""
        worker = f"worker{name[-1]}"
        found = ["docker", "ps", "--quiet", "--filter", f"label=minik8s.io/pod-name={name}"]
        container = self.cluster.on(worker, [*found, "--filter", "label=minik8s.io/type=sandbox"]).strip()
        pid = self.cluster.on(worker, ["docker", "inspect", "--format", "{{.State.Pid}}", container]).strip()
        return self.cluster.on(worker, ["nsenter", f"--net=/proc/{pid}/ns/net", *argv], timeout_s=120)

    def reach_each_other(self) -> bool:
        """Return whether pods of both machines reach each other's, with packets of the whole mtu."""
        size = str(MTU - HEADERS)
        for name, target in (("client1", "web2"), ("client2", "web1")):
            self.within(name, "ping", "-M", "do", "-c", "1", "-W", "5", "-s", size, self.ips[target])
        return True

    def observe(self, worker: str) -> None:
        """Have the reconciler look at a whole node, as ``minik8s drift --heal`` does."""
        self.cluster.kubectl("annotate", "--overwrite", "node", worker, f"minik8s.io/observe={uuid.uuid4().hex}")

    def ways(self, worker: str) -> str:
        """Return a worker's forwarding table and routes of the overlay."""
        fdb = self.cluster.on(worker, ["bridge", "fdb", "show", "dev", OVERLAY])
        return fdb + self.cluster.on(worker, ["ip", "route"])


def pod(name: str, node: str, script: str, **labels: str) -> JsonObject:
    """Return a pod of busybox on a node."""
    spec = standing.pod_spec(["sh", "-c", script], node, automountServiceAccountToken=False)
    metadata = {"name": name, "namespace": "default", "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


# the original's service/service1.yaml
SERVICE: JsonObject = {
    "kind": "Service",
    "apiVersion": "v1",
    "metadata": {"name": "nginx-service"},
    "spec": {
        "type": "NodePort",
        "ports": [{"port": SERVICE_PORT, "targetPort": PORT, "nodePort": NODE_PORT}],
        "selector": {"app": "nginx"},
    },
}


@pytest.fixture(scope="module")
def overlaid(installed: LabCluster) -> Iterator[Overlaid]:
    """The folder's cluster with the pods and their service, which go with the module."""
    try:
        yield Overlaid(installed)
    finally:
        made = ["service/nginx-service", *(f"pod/{name}" for name in PODS)]
        installed.kubectl("delete", "--ignore-not-found", *made)


def test_a_service_is_reached_from_every_place_and_spreads_over_both_machines(overlaid: Overlaid) -> None:
    cluster_ip = f"{overlaid.service}:{SERVICE_PORT}"
    for place in (*WORKERS, "client1", "client2", "web1", "web2"):
        assert overlaid.spread(cluster_ip, place), place
    for worker in WORKERS:
        node_port = f"{overlaid.cluster.address(worker)}:{NODE_PORT}"
        for place in ("control1", *WORKERS, "client1", "client2"):
            assert overlaid.spread(node_port, place), (place, node_port)


def test_pods_and_machines_reach_pods_of_the_other_machine(overlaid: Overlaid) -> None:
    for place, name in (("client1", "web2"), ("client2", "web1"), ("worker1", "web2"), ("worker2", "web1")):
        assert overlaid.fetch(place, f"{overlaid.ips[name]}:{PORT}") == name, (place, name)


def test_what_leaves_the_cluster_has_its_nodes_address(overlaid: Overlaid) -> None:
    cluster = overlaid.cluster
    address = cluster.address("control1")
    for number, worker in enumerate(WORKERS, 1):
        port = 20000 + number
        shown = f"/tmp/heard-{port}"
        listen = f"python3 -c {shlex.quote(LISTEN.format(port=port))} >{shown} 2>&1 &"
        cluster.on("control1", ["sh", "-c", listen])
        cluster.until(lambda at=port: cluster.on("control1", ["ss", "-Hltn", f"sport = :{at}"]).strip())  # type: ignore[misc]
        cluster.inside(f"client{number}", "sh", "-c", f"nc -w 10 {address} {port} </dev/null")
        heard = cluster.until(lambda at=shown: cluster.on("control1", ["cat", at]).strip())  # type: ignore[misc]
        assert heard == cluster.address(worker)


def test_large_packets_pass_whole_and_nothing_gets_lost_on_the_way(overlaid: Overlaid) -> None:
    assert overlaid.reach_each_other()
    assert f"mtu {MTU}" in overlaid.within("client1", "ip", "link", "show", "dev", "eth0")
    targets = [f"{overlaid.service}:{SERVICE_PORT}", *(f"{overlaid.ips[name]}:{PORT}" for name in ("web1", "web2"))]
    for name in ("client1", "client2"):
        for target in targets:
            took = overlaid.cluster.inside(name, "sh", "-c", f"timeout 60 wget -q -O - http://{target}/big | wc -c")
            assert int(took) == BIG, (name, target)
    for worker in WORKERS:
        at = f"http://{overlaid.cluster.address(worker)}:{NODE_PORT}/big"
        assert int(overlaid.cluster.on("control1", ["sh", "-c", f"curl -sS --max-time 50 {at} | wc -c"])) == BIG


def test_a_machine_that_comes_or_goes_changes_its_own_ways_only(overlaid: Overlaid) -> None:
    cluster = overlaid.cluster
    ping = f"ping -i 0.2 -q {overlaid.ips['web2']} >/tmp/pinged 2>&1 & echo $! >/tmp/pinging"
    before = overlaid.ways("worker1")
    cidr, address = "10.244.250.0/24", "198.51.100.7"
    overlaid.within("client1", "sh", "-c", ping)
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "far"}}
    cluster.apply({**node, "spec": {"podCIDR": cidr, "podCIDRs": [cidr]}})
    status = json.dumps({"status": {"addresses": [{"type": "InternalIP", "address": address}]}})
    cluster.kubectl("patch", "node", "far", "--subresource=status", "--type=merge", "--patch", status)
    cluster.until(lambda: all(word in overlaid.ways("worker1") for word in (address, cidr)), 180)
    cluster.kubectl("delete", "node", "far")
    cluster.until(lambda: overlaid.ways("worker1") == before, 180, "the ways to the node stay")
    cluster.on("worker1", ["sh", "-c", "kill -INT $(cat /tmp/pinging)"])
    found = cluster.until(
        lambda: "packet loss" in (text := cluster.on("worker1", ["cat", "/tmp/pinged"])) and text, 120
    )
    sent, received = map(int, re.findall(r"(\d+) (?:packets transmitted|received)", found))
    assert sent - received <= 1, found  # the last may be on its way


FORGET = f"bridge fdb show dev {OVERLAY} | while read -r mac _; do bridge fdb del $mac dev {OVERLAY}; done"
HARMS = {
    "the overlay's device": ["ip", "link", "del", OVERLAY],
    "the overlay's device is down": ["ip", "link", "set", OVERLAY, "down"],
    "where the other machine is": ["sh", "-c", FORGET],
    "the route": ["ip", "route", "flush", "dev", OVERLAY],
    "the bridge": ["ip", "link", "del", BRIDGE],
    "the bridge's address": ["ip", "addr", "flush", "dev", BRIDGE],
}


@pytest.mark.parametrize("what", HARMS)
def test_what_somebody_breaks_is_seen_and_healed(overlaid: Overlaid, what: str) -> None:
    overlaid.cluster.on("worker1", HARMS[what])
    overlaid.observe("worker1")
    overlaid.cluster.until(lambda: harmless(overlaid), 180, f"{what} is not healed")


def harmless(overlaid: Overlaid) -> bool:
    """Return whether pods reach each other; a ping that fails is a command that does."""
    try:
        return overlaid.reach_each_other()
    except LabError:
        return False


def test_entries_of_others_go_from_our_device_and_stay_elsewhere(overlaid: Overlaid) -> None:
    cluster = overlaid.cluster
    foreign = ["02:00:00:00:00:99", "dev", OVERLAY, "dst", "203.0.113.9", "self"]
    cluster.on("worker1", ["bridge", "fdb", "append", *foreign])
    via = cluster.address("worker2")
    cluster.on("worker1", ["ip", "route", "add", "203.0.113.0/24", "via", via])
    overlaid.observe("worker1")
    cluster.until(lambda: "203.0.113.9" not in overlaid.ways("worker1"), 180)
    assert f"203.0.113.0/24 via {via}" in overlaid.ways("worker1")
    cluster.on("worker1", ["ip", "route", "del", "203.0.113.0/24"])
    assert overlaid.reach_each_other()


def test_neighbours_need_no_tunnel_where_direct_ways_are_asked_for(overlaid: Overlaid) -> None:
    cluster = overlaid.cluster
    direct = {f"via {cluster.address(other)} dev" for other in WORKERS}

    def ways() -> bool:
        return all(any(way in overlaid.ways(worker) for way in direct) for worker in WORKERS)

    def choose(value: str) -> None:
        words = f's/("direct": )(true|false)/\\1{value}/'
        cluster.on("control1", ["sed", "-i", "-E", words, "/etc/minik8s/reconciler.yml"])
        cluster.on("control1", ["systemctl", "restart", "minik8s-reconciler"])

    try:
        choose("true")
        cluster.until(ways, 300, "the ways do not become direct")
        cluster.until(lambda: harmless(overlaid), 180, "pods do not reach each other")
    finally:
        choose("false")
    cluster.until(lambda: not ways(), 300, "the ways do not become tunnels")
    cluster.until(lambda: harmless(overlaid), 180, "pods do not reach each other")
    assert overlaid.spread(f"{overlaid.service}:{SERVICE_PORT}", "client1")


def wall(*peers: JsonObject) -> JsonObject:
    """Return a policy for the servers: who is among ``peers`` reaches them, and nobody else."""
    rules = [{"from": [*peers]}] if peers else []
    spec = {"podSelector": {"matchLabels": {"app": "nginx"}}, "policyTypes": ["Ingress"], "ingress": rules}
    return {**NETWORK_POLICY, "metadata": {"name": "wall", "namespace": "default"}, "spec": spec}


def test_policies_hold_between_nodes_and_after_a_boot_that_nobody_attends(overlaid: Overlaid) -> None:
    """A Pod of another machine is held back by its own address, directly and through a Service, whatever boots."""
    cluster, target = overlaid.cluster, f"{overlaid.ips['web1']}:{PORT}"
    elements = ["sh", "-c", "nft list map ip minik8s_policies ingress_of 2>/dev/null | grep -c goto || true"]
    try:
        cluster.apply(wall())
        cluster.until(lambda: not overlaid.reached("client2", target), 120, "a Pod of another machine gets in")
        assert not overlaid.reached("client1", target), "nor does one of the same"
        assert not overlaid.reached("client2", f"{overlaid.service}:{SERVICE_PORT}")
        assert overlaid.reached("worker1", target), "a node reaches its Pods"
        cluster.apply(wall({"podSelector": {"matchLabels": {"app": "client2"}}}))
        cluster.until(lambda: overlaid.reached("client2", target), 120, "who is allowed does not get in")
        assert not overlaid.reached("client1", target)
        cluster.on("control1", ["systemctl", "stop", *ATTENDING])
        try:
            cluster.lab.reboot("worker1")
            cluster.until(lambda: cluster.on("worker1", elements).strip() == "1", UNATTENDED_S, "no rules after a boot")
        finally:
            cluster.on("control1", ["systemctl", "start", *ATTENDING])
        cluster.until(lambda: all(cluster.ready(name) for name in PODS), 300, "the pods are not ready")
        assert overlaid.reached("client2", target)
        assert not overlaid.reached("client1", target)
    finally:
        cluster.kubectl("delete", "networkpolicy", "wall", "--ignore-not-found")
    cluster.until(lambda: overlaid.reached("client1", target), 120, "a policy that is gone still holds")


def test_policies_hold_while_docker_is_restarted(overlaid: Overlaid) -> None:
    """It writes its chains anew; a Pod that may not get in does not meanwhile, and who may then does."""
    cluster, address = overlaid.cluster, overlaid.ips["web1"]
    since = ["systemctl", "show", "--property=ActiveEnterTimestampMonotonic", "docker"]
    knock = (
        f"for _ in $(seq 30); do timeout 1 bash -c '</dev/tcp/{address}/{PORT}' 2>/dev/null && echo open; done; true"
    )
    try:
        cluster.apply(wall())
        cluster.until(lambda: not overlaid.reached("client2", f"{address}:{PORT}"), 120, "a Pod gets in")
        before = cluster.on("worker1", since)
        cluster.on("worker1", ["systemctl", "restart", "--no-block", "docker"])
        assert overlaid.within("client2", "bash", "-c", knock) == ""
        cluster.until(lambda: cluster.on("worker1", since) not in {before, "ActiveEnterTimestampMonotonic=0\n"}, 180)
        assert overlaid.within("client2", "bash", "-c", knock) == ""
        cluster.apply(wall({"podSelector": {"matchLabels": {"app": "client2"}}}))
        cluster.until(lambda: overlaid.reached("client2", f"{address}:{PORT}"), 180, "who is allowed does not get in")
        assert not overlaid.reached("client1", f"{address}:{PORT}")
    finally:
        cluster.kubectl("delete", "networkpolicy", "wall", "--ignore-not-found")
