"""Pods whose network is somebody else's, in whole clusters: S-07 across machines by ``cni`` and by ``weave``.

The same two machines are installed with one driver, reset, and installed with the other. ``cni``: Debian's plugins, a
bridge and a range a machine, routes as an administrator writes them. ``weave``: the stand-in (weave_standin.py) with
Weave's documented words, and a VXLAN in the place of its router.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest

from tests.support.clusters import standing
from tests.support.clusters.labcluster import LabCluster
from tests.support.docker import weave_standin

CONTROL, WORKER = MACHINES = ("control1", "worker1")
PORT, SERVICE_PORT, NODE_PORT = 1024, 800, 30080
ENOUGH = 12
"""Requests of which all going to one of two pods is a chance of 1 in 2048."""
SERVER = (
    'trap "exit 0" TERM; mkdir -p /tmp/w; hostname >/tmp/w/index.html; '
    f"dd if=/dev/zero of=/tmp/w/big bs=64k count=16; httpd -f -p {PORT} -h /tmp/w & wait"
)
BIG = 16 * 64 * 1024
CONFLIST, LEASES = "/etc/cni/net.d/10-lab.conflist", "/var/lib/cni/networks/lab"
WEAVE, STATE = "/usr/local/bin/weave", "/var/lib/weave-standin"
# what is left where pods were taken away without their program: addresses, links, other machines
LEFT = {
    "cni": f"ls {LEASES} 2>/dev/null | sed -n /^10/p; ls /sys/class/net/cni0/brif",
    "weave": f"grep -oE '[0-9a-f]{{64}}' {STATE}/addresses; cat {STATE}/targets; ls /sys/class/net | sed -n /vethw/p",
}
NOTHING_LEFT = {"cni": "", "weave": "{}"}


class Machines:
    """Two machines and, at times, a cluster on them."""

    def __init__(self, cluster: LabCluster) -> None:
        self.cluster, self.driver = cluster, ""
        self.ips: dict[str, str] = {}
        self.service = ""

    def have(self, driver: str) -> None:
        """Have a cluster with pods whose network is the driver's."""
        if self.driver == driver:
            return
        self.reset()
        cidr = getattr(self, f"_{driver}")()
        own = {"minik8s_network_driver": driver, "minik8s_cluster_cidr": cidr, "minik8s_weave_command": WEAVE}
        self.cluster.variables |= own
        self.cluster.write_inventory()
        self.cluster.install()
        self.driver = driver
        self._serve()

    def reset(self) -> None:
        """Take the cluster away."""
        if self.driver:
            self.driver = ""
            self.cluster.play("reset.yml")

    def _cni(self) -> str:
        for number, machine in enumerate(MACHINES, 1):
            bridge = {
                "type": "bridge",
                "bridge": "cni0",
                "isDefaultGateway": True,
                "hairpinMode": True,
                "ipam": {"type": "host-local", "ranges": [[{"subnet": f"10.244.{number}.0/24"}]]},
            }
            ports = {"type": "portmap", "capabilities": {"portMappings": True}, "snat": True}
            network = {"cniVersion": "0.4.0", "name": "lab", "plugins": [bridge, ports]}
            self.cluster.on(machine, ["mkdir", "-p", str(Path(CONFLIST).parent)])
            self.cluster.on(machine, ["tee", CONFLIST], text=json.dumps(network))
            (other,) = {1, 2} - {number}
            far, via = f"10.244.{other}.0/24", self.cluster.address(MACHINES[other - 1])
            self.cluster.on(machine, ["ip", "route", "replace", far, "via", via])
        return "10.244.0.0/16"

    def _weave(self) -> str:
        program = Path(weave_standin.__file__).read_text(encoding="utf-8")
        for number, machine in enumerate(MACHINES, 1):
            own = {"range": f"10.32.{number}.", "address": self.cluster.address(machine)}
            self.cluster.on(machine, ["mkdir", "-p", STATE])
            self.cluster.on(machine, ["tee", f"{STATE}/machine"], text=json.dumps(own))
            self.cluster.on(machine, ["tee", f"{STATE}/weave.py"], text=program)
            words = f'#!/bin/sh\nWEAVE_STATE={STATE} exec python3 {STATE}/weave.py "$@"\n'
            self.cluster.on(machine, ["sh", "-c", f"cat >{WEAVE} && chmod 755 {WEAVE}"], text=words)
        return "10.32.0.0/12"

    def _serve(self) -> None:
        cluster = self.cluster
        names = {f"{machine}-web": machine for machine in MACHINES}
        for name, machine in names.items():
            spec = standing.pod_spec(["sh", "-c", SERVER], machine, automountServiceAccountToken=False)
            metadata = {"name": name, "namespace": "default", "labels": {"app": "web"}}
            cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        ports = [{"port": SERVICE_PORT, "targetPort": PORT, "nodePort": NODE_PORT}]
        service = {"type": "NodePort", "ports": ports, "selector": {"app": "web"}}
        cluster.apply({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": service})
        cluster.until(lambda: all(cluster.ready(name) for name in names), 300, "the pods are not ready")
        found = {one["metadata"]["name"]: one for one in cluster.get("pods")["items"]}
        self.ips = {name: str(found[name]["status"]["podIP"]) for name in names}
        self.service = str(cluster.get("service", "web")["spec"]["clusterIP"])

    @property
    def places(self) -> list[str]:
        """The machines, and the pods."""
        return [*MACHINES, *self.ips]

    def fetch(self, place: str, at: str, path: str = "") -> str:
        """Return what a URL answers a machine or a pod."""
        url = f"http://{at}/{path}"
        if place in self.ips:
            return self.cluster.inside(place, "timeout", "20", "wget", "-q", "-O", "-", url).strip()
        return self.cluster.on(place, ["curl", "-sS", "--fail", "--max-time", "20", url]).strip()

    def spread(self, place: str, at: str) -> bool:
        """Return whether both pods answer, and each request is answered."""
        return {self.fetch(place, at) for _ in range(ENOUGH)} == set(self.ips)


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    kept = os.environ.get("MINIK8S_PLUGINS", "")  # a lab to use again, and to keep
    cluster = LabCluster(kept or f"g{uuid.uuid4().hex[:7]}", control=1, workers=1, control_is_node=True)
    try:
        cluster.up()
        yield Machines(cluster)
    finally:
        if not kept:
            cluster.close()


@pytest.fixture(scope="module", params=["cni", "weave"])
def driver(request: pytest.FixtureRequest) -> str:
    """Which program makes the pods' network; all tests of one come before those of the other."""
    return str(request.param)


@pytest.fixture
def networked(machines: Machines, driver: str) -> Machines:
    machines.have(driver)
    return machines


def test_pods_have_addresses_of_the_program_and_the_nodes_no_overlay(networked: Machines, driver: str) -> None:
    for number, machine in enumerate(MACHINES, 1):
        own = IPv4Network({"cni": f"10.244.{number}.0/24", "weave": f"10.32.{number}.0/24"}[driver])
        assert IPv4Address(networked.ips[f"{machine}-web"]) in own
        assert "mk8s-vx" not in networked.cluster.on(machine, ["ip", "-o", "link"])
    assert networked.cluster.get("podaddresses")["items"] == [], "the addresses are not ours to claim"


def test_pods_and_machines_reach_the_pods_of_both_machines(networked: Machines) -> None:
    for place in networked.places:
        for name, ip in networked.ips.items():
            assert networked.fetch(place, f"{ip}:{PORT}") == name, (place, name)
    for place, name in ((f"{CONTROL}-web", f"{WORKER}-web"), (f"{WORKER}-web", f"{CONTROL}-web")):
        counted = f"timeout 60 wget -q -O - http://{networked.ips[name]}:{PORT}/big | wc -c"
        assert int(networked.cluster.inside(place, "sh", "-c", counted)) == BIG, "large packets get lost"


def test_a_service_is_reached_from_every_place_and_spreads_over_both_machines(networked: Machines) -> None:
    at = f"{networked.service}:{SERVICE_PORT}"
    networked.cluster.until(lambda: networked.spread(WORKER, at), 120, "the service is not there")
    for place in networked.places:
        assert networked.spread(place, at), place
    for machine in MACHINES:
        node_port = f"{networked.cluster.address(machine)}:{NODE_PORT}"
        for place in networked.places:
            assert networked.spread(place, node_port), (place, node_port)


def test_the_programs_own_devices_do_not_keep_a_second_run_out(networked: Machines) -> None:
    networked.cluster.play("site.yml", "--tags", "none")  # what is done always: preflight


def test_a_pod_that_goes_gives_its_address_back(networked: Machines, driver: str) -> None:
    cluster = networked.cluster
    before = cluster.on(WORKER, ["sh", "-c", LEFT[driver]])
    pod = standing.pod("short", standing.pod_spec(["sleep", "3600"], WORKER))
    pod["metadata"]["namespace"] = "default"
    cluster.apply(pod)
    cluster.until(lambda: cluster.ready("short"))
    assert cluster.on(WORKER, ["sh", "-c", LEFT[driver]]) != before
    cluster.kubectl("delete", "pod", "short")
    cluster.until(lambda: cluster.on(WORKER, ["sh", "-c", LEFT[driver]]) == before)


def test_a_reset_gives_everything_back_to_the_program_and_leaves_it_alone(networked: Machines, driver: str) -> None:
    cluster = networked.cluster
    for machine in MACHINES:
        assert cluster.on(machine, ["sh", "-c", LEFT[driver]]).strip() != NOTHING_LEFT[driver]
    networked.reset()
    for machine in MACHINES:
        assert cluster.on(machine, ["sh", "-c", LEFT[driver]]).strip() == NOTHING_LEFT[driver], machine
        assert cluster.on(machine, ["docker", "ps", "-aq", "--filter", "label=minik8s.io/node"]) == ""
        links = cluster.on(machine, ["ip", "-o", "link"])
        assert "mk8s-" not in links
        assert {"cni": "cni0", "weave": "weave"}[driver] in links, "the program's own bridge is gone"
        cluster.on(machine, ["test", "-f", {"cni": CONFLIST, "weave": WEAVE}[driver]])
