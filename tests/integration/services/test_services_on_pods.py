"""Services on real pods: reached from the host, from another pod, from the backing pod itself."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from minik8s_modules.api.kinds import SERVICE
from minik8s_modules.cli.plans import drifting
from tests.integration.services.conftest import SICK, Cluster, answers, fetch
from tests.support.node import command
from tests.support.servers.services_machine import ask_one

# Answers each datagram with the pod's name. The image has no program for UDP: this machine's Python is mounted.
UDP_SERVER = """
import os, socket
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("0.0.0.0", 5353))
while True:
    client = server.recvfrom(100)[1]
    server.sendto(os.environ["POD"].encode(), client)
"""
INTERPRETER = 'cd /host && ln -s usr/lib usr/lib64 . && exec chroot /host $0 -c "$1"'


def pair(cluster: Cluster, app: str) -> set[str]:
    """Create two servers labelled ``app``; return their names."""
    names = {f"{app}-1", f"{app}-2"}
    for name in names:
        cluster.web(name, {"app": app})
    return names


def udp_server(cluster: Cluster, name: str) -> None:
    """Create a pod labelled ``udp`` that answers with its name over UDP."""
    folders = sorted({"/usr", sys.base_prefix})
    mounts = [{"name": f"v{at}", "mountPath": f"/host{path}", "readOnly": True} for at, path in enumerate(folders)]
    command = ["sh", "-c", INTERPRETER, str(Path(sys.executable).resolve()), UDP_SERVER]
    volumes = [{"name": f"v{at}", "hostPath": {"path": path}} for at, path in enumerate(folders)]
    cluster.web(name, {"app": "udp"}, volumes=volumes, container={"command": command, "volumeMounts": mounts})


def answered_by(names: set[str], count: int, address: str, port: int, local_port: int = 0) -> bool:
    """Return whether these and no others answer datagrams; from ``local_port`` a client is the same one each time."""
    return {ask_one("UDP", address, port, local_port) for _ in range(count)} == names


def test_a_service_is_reached_from_host_other_pod_and_itself(cluster: Cluster) -> None:
    names = pair(cluster, "web")
    cluster.create("client")
    address = cluster.service("web", {"app": "web"}, type="NodePort")
    cluster.until(lambda: len(cluster.endpoints("web")) == 2, 60)
    cluster.until(lambda: set(answers(address, 10)) == names, 60)
    assert set(answers(address, 40)) == names
    node_port = cluster.admin.get(SERVICE, "web", "default")["spec"]["ports"][0]["nodePort"]
    assert set(answers("127.0.0.1", 40, node_port)) == names
    assert set(answers(f"{cluster.node.range}.1", 40, node_port)) == names
    cluster.until(lambda: cluster.ready("client"))
    for pod in ("client", *sorted(names)):
        assert {cluster.fetch_inside(pod, address) for _ in range(20)} == names, pod
    # no endpoints, no such port: refused at once
    assert fetch(address, 81) == "refused"
    assert fetch(cluster.service("idle", {"app": "nobody"})) == "refused"


def test_udp_clients_reach_the_pods_and_go_on_when_theirs_is_replaced(cluster: Cluster) -> None:
    names = {"udp-1", "udp-2"}
    for name in names:
        udp_server(cluster, name)
    ports = [{"port": 53, "targetPort": 5353, "protocol": "UDP"}]
    address = cluster.service("udp", {"app": "udp"}, type="NodePort", ports=ports)
    node_port = cluster.admin.get(SERVICE, "udp", "default")["spec"]["ports"][0]["nodePort"]
    places = [(address, 53), (f"{cluster.node.range}.1", node_port), ("127.0.0.1", node_port)]
    for place in places:
        cluster.until(partial(answered_by, names, 20, *place), 60)
    # clients that never pause: the kernel would remember for ever where it has sent them
    clients = [(*place, 25353 + at) for at, place in enumerate(places)]
    assert {ask_one("UDP", *client) for client in clients} <= names
    for gone in names:
        cluster.delete(gone)
    udp_server(cluster, "udp-3")
    for client in clients:
        cluster.until(partial(answered_by, {"udp-3"}, 1, *client), 60)


def test_equal_names_in_two_namespaces_and_quick_recreation(cluster: Cluster) -> None:
    cluster.admin.create(*cluster.namespace("other"))
    cluster.web("mine", {"app": "same"})
    cluster.web("theirs", {"app": "same"}, namespace="other")
    mine = cluster.service("same", {"app": "same"})
    theirs = cluster.service("same", {"app": "same"}, namespace="other")
    cluster.until(lambda: (fetch(mine), fetch(theirs)) == ("mine", "theirs"), 60)
    cluster.admin.delete(SERVICE, "same", "default")
    again = cluster.service("same", {"app": "same"}, clusterIP=mine)
    assert again == mine
    cluster.until(lambda: set(answers(mine, 5)) == {"mine"})
    cluster.admin.delete(SERVICE, "same", "default")
    cluster.until(lambda: fetch(mine) == "refused")
    assert fetch(theirs) == "theirs"


def test_a_pod_that_turns_unready_leaves_and_comes_back(cluster: Cluster) -> None:
    names = set()
    for number in (1, 2):
        names.add(f"probed-{number}")
        cluster.web(f"probed-{number}", {"app": "probed"}, container={"readinessProbe": SICK})
    address = cluster.service("probed", {"app": "probed"})
    cluster.until(lambda: set(answers(address, 10)) == names, 60)
    cluster.inside("probed-1", "touch", "/tmp/sick")
    cluster.until(lambda: set(answers(address, 20)) == {"probed-2"}, 120)
    cluster.inside("probed-1", "rm", "/tmp/sick")
    cluster.until(lambda: set(answers(address, 20)) == names, 120)


def test_a_target_port_that_no_container_has_is_told(cluster: Cluster) -> None:
    cluster.web("named", {"app": "named"})
    address = cluster.service("named", {"app": "named"}, ports=[{"port": 80, "targetPort": "nosuch"}])
    wanted = "TargetPortNotFound: no container of pod named has a port named nosuch"
    cluster.until(lambda: wanted in cluster.events("named"), 60)
    cluster.until(lambda: fetch(address) == "refused", 120)


def test_rules_flushed_by_hand_are_seen_and_come_back(cluster: Cluster) -> None:
    cluster.web("kept", {"app": "kept"})
    address = cluster.service("kept", {"app": "kept"})
    cluster.until(lambda: fetch(address) == "kept", 60)
    table = f"minik8s_{cluster.node.bridge}"
    with drift_seen(cluster, drift_watch=False):
        cluster.until(lambda: cluster.plan()["nodes"].get(cluster.node.name, {}).get("steps") == [], 60)
        command("nft", "delete", "table", "ip", table)
        assert fetch(address, timeout_s=1) != "kept"
        plan = cluster.plan()
        assert any(step["section"] == "services" for step in plan["nodes"][cluster.node.name]["steps"]), plan
        # put right at once when asked for; else at the next observation
        options = argparse.Namespace(words=[], heal=True, history=False, full=False, detailed_exitcode=False)
        assert drifting.drift(cluster.admin, options) == 0
        cluster.until(lambda: fetch(address) == "kept", 120)
    # any change of rules finds damage, too (a service without endpoints has none)
    command("nft", "delete", "table", "ip", table)
    cluster.service("another", {"app": "kept"})
    cluster.until(lambda: fetch(address) == "kept", 120)


def test_a_container_knows_the_services_there_were_when_it_was_made(cluster: Cluster) -> None:
    address = cluster.service("told", {"app": "nobody"}, ports=[{"name": "http", "port": 81}])
    script = "env | sort >/tmp/env; sleep 3600"
    cluster.create("reader", ["sh", "-c", script])
    cluster.until(lambda: cluster.ready("reader"), 60)
    done = dict(line.split("=", 1) for line in cluster.kubectl("exec", "reader", "--", "env").stdout.splitlines())
    assert (done["TOLD_SERVICE_HOST"], done["TOLD_SERVICE_PORT_HTTP"]) == (address, "81")
    assert done["TOLD_PORT_81_TCP"] == f"tcp://{address}:81"
    before = cluster.container("reader")["containerID"]
    # Services come and go, the node is looked at anew: nobody is replaced for it
    cluster.admin.delete(SERVICE, "told", "default")
    cluster.service("later", {"app": "nobody"})
    cluster.daemons["reconcile"].kill()
    cluster.daemons["reconcile"].start()
    cluster.create("unlinked", enableServiceLinks=False)
    cluster.until(lambda: cluster.ready("unlinked"), 60)
    assert "LATER_SERVICE_HOST" not in cluster.kubectl("exec", "unlinked", "--", "env").stdout
    assert cluster.container("reader")["containerID"] == before
    assert cluster.container("reader")["restartCount"] == 0
    for name in ("reader", "unlinked"):
        cluster.delete(name, 0)


@contextmanager
def drift_seen(cluster: Cluster, **how: Any) -> Iterator[None]:
    """Have the reconciler see drift in another way while this lasts."""
    daemon = cluster.daemons["reconcile"]
    usual = daemon.config.read_text()
    daemon.stop()
    daemon.config.write_text(yaml.safe_dump({**yaml.safe_load(usual), **how}))
    daemon.start()
    try:
        yield
    finally:
        daemon.stop()
        daemon.config.write_text(usual)
        daemon.start()


def test_rules_flushed_by_hand_come_back_with_the_next_look_at_the_node(cluster: Cluster) -> None:
    cluster.web("looked", {"app": "looked"})
    address = cluster.service("looked", {"app": "looked"})
    cluster.until(lambda: fetch(address) == "looked", 60)
    with drift_seen(cluster, drift="fast", drift_watch=False):
        # by the first look after its start; then nothing changes, and only looking again can find it
        for _ in range(2):
            command("nft", "delete", "table", "ip", f"minik8s_{cluster.node.bridge}")
            assert fetch(address, timeout_s=1) != "looked"
            cluster.until(lambda: fetch(address) == "looked", 90)
