"""A cluster whose machines tunnel to each other's IPv6 addresses, installed by playbook: two nodes, a pod on each.

Machines have the addresses by hand, as an administrator gives them. An API server that listens at both families is
reached by IPv6, too.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from minik8s_modules.api.objects import JsonObject
from tests.lab.errors import LabError
from tests.support.clusters import standing
from tests.support.clusters.labcluster import CommandFailed, LabCluster

CONTROL, WORKER = MACHINES = ("control1", "worker1")
ADDRESSES = {CONTROL: "fd00:1ab::1", WORKER: "fd00:1ab::2"}
VARIABLES = {
    "minik8s_network_underlay": "ipv6",
    "control_plane_api_listen_address": "::",
    "pki_api_names": [ADDRESSES[CONTROL]],
}
DEVICE, MTU = "mk8s-vx0", 1430
IDLE = 'trap "exit 0" TERM; sleep 100000 & wait'
HEALS_S = 120


@pytest.fixture(scope="module")
def cluster() -> Iterator[LabCluster]:
    name = f"und{uuid.uuid4().hex[:4]}"
    made = LabCluster(name, workers=1, control_is_node=True, variables=VARIABLES, install=False)
    with made:
        yield made


@pytest.fixture(scope="module")
def underlaid(cluster: LabCluster) -> LabCluster:
    """A cluster whose machines have addresses of both families, and a pod on each."""
    for machine in MACHINES:
        give_address(cluster, machine)
    cluster.install()
    for machine in MACHINES:
        spec = standing.pod_spec(["sh", "-c", IDLE], machine, automountServiceAccountToken=False)
        metadata = {"name": f"on-{machine}", "namespace": "default"}
        cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    cluster.until(lambda: all(cluster.ready(f"on-{machine}") for machine in MACHINES), 300, "the pods are not ready")
    return cluster


def give_address(cluster: LabCluster, machine: str) -> None:
    cluster.on(machine, ["sysctl", "-qw", "net.ipv6.conf.eth0.disable_ipv6=0"])
    cluster.on(machine, ["ip", "addr", "replace", f"{ADDRESSES[machine]}/64", "dev", "eth0", "nodad"])


def found(cluster: LabCluster, machine: str) -> JsonObject:
    """Return the status of a machine's pod."""
    status: JsonObject = cluster.get("pod", f"on-{machine}")["status"]
    return status


def reaches(cluster: LabCluster, machine: str, other: str) -> bool:
    """Return whether the one's pod reaches the other's with packets of the whole MTU."""
    target = found(cluster, other)["podIP"]
    try:
        cluster.inside(f"on-{machine}", "ping", "-c1", "-W5", "-s", str(MTU - 28), target)
    except CommandFailed:
        return False
    return True


def test_a_machine_without_an_ipv6_address_ends_the_installation_before_it_begins(cluster: LabCluster) -> None:
    give_address(cluster, WORKER)
    with pytest.raises(CommandFailed) as caught:
        cluster.install()
    assert "minik8s_network_underlay ipv6: the device with the machine's default route has no" in caught.value.words
    assert "fatal: [control1]" in caught.value.words
    assert "fatal: [worker1]" not in caught.value.words
    with pytest.raises(LabError):
        cluster.on(WORKER, ["ls", "/opt/minik8s"])


def test_pods_reach_each_other_through_tunnels_over_ipv6(underlaid: LabCluster) -> None:
    for machine, other in (MACHINES, MACHINES[::-1]):
        assert reaches(underlaid, machine, other)
        fdb = underlaid.on(machine, ["bridge", "fdb", "show", "dev", DEVICE])
        assert f"dst {ADDRESSES[other]} self permanent" in fdb
        guard = underlaid.on(machine, ["nft", "list", "table", "inet", "minik8s_tunnels"])
        assert ADDRESSES[other] in guard


def test_nodes_and_pods_tell_addresses_of_both_families(underlaid: LabCluster) -> None:
    for machine in MACHINES:
        both = [underlaid.address(machine), ADDRESSES[machine]]
        told: list[dict[str, Any]] = underlaid.get("node", machine)["status"]["addresses"]
        assert [one["address"] for one in told if one["type"] == "InternalIP"] == both
        status = found(underlaid, machine)
        assert (status["hostIP"], status["hostIPs"]) == (both[0], [{"ip": one} for one in both])
    assert underlaid.address(WORKER) in underlaid.kubectl("get", "nodes", "-o", "wide")


@pytest.mark.parametrize("harm", [f"ip link del {DEVICE}", "nft delete table inet minik8s_tunnels"])
def test_what_somebody_breaks_of_tunnels_is_put_right(underlaid: LabCluster, harm: str) -> None:
    guard = ["nft", "list", "table", "inet", "minik8s_tunnels"]
    before = underlaid.on(WORKER, guard)
    underlaid.on(WORKER, harm.split())
    underlaid.until(lambda: reaches(underlaid, CONTROL, WORKER), HEALS_S, harm)
    underlaid.until(lambda: underlaid.on(WORKER, ["sh", "-c", f"{' '.join(guard)} || true"]) == before, HEALS_S, harm)


def test_neighbours_and_forwarding_that_are_gone_are_drift_until_it_is_healed(underlaid: LabCluster) -> None:
    underlaid.on(WORKER, ["ip", "neigh", "flush", "dev", DEVICE, "nud", "permanent"])
    mac = underlaid.on(WORKER, ["bridge", "fdb", "show", "dev", DEVICE]).split()[0]
    underlaid.on(WORKER, ["bridge", "fdb", "del", mac, "dev", DEVICE, "dst", ADDRESSES[CONTROL], "self"])
    seen = underlaid.on(CONTROL, ["sh", "-c", "minik8s drift --full || true"])
    assert "forwarding: " in seen
    assert "neighbours: " in seen
    underlaid.on(CONTROL, ["sh", "-c", "minik8s drift --heal || true"])
    underlaid.until(lambda: reaches(underlaid, CONTROL, WORKER), HEALS_S, "drift --heal")


def test_the_api_server_is_reached_by_ipv6_with_its_certificate(underlaid: LabCluster) -> None:
    ask = "import ssl, sys, urllib.request as r; c = ssl.create_default_context(cadata=sys.stdin.read()); "
    ask += f"print(r.urlopen('https://[{ADDRESSES[CONTROL]}]:6443/version', context=c).status)"
    authority = underlaid.on(CONTROL, ["cat", "/etc/minik8s/pki/ca.crt"])
    assert underlaid.on(WORKER, ["python3", "-c", ask], text=authority).strip() == "200"
