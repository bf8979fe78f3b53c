"""firewalld and ufw beside ours, each on a node, with the rules that docs/how-to/load-balancers.md gives for them.

Either is installed from Debian's packages, which the lab's machines have not. MINIK8S_FIREWALLED in the environment
names a lab to use again, and to keep.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from minik8s_modules.api.objects import JsonObject
from tests.support.clusters import standing
from tests.support.clusters.labcluster import REPOSITORY, LabCluster

WAIT_S = 300
PAGE = REPOSITORY / "docs" / "how-to" / "load-balancers.md"
FIREWALLED = {"worker1": "firewalld", "worker2": "ufw"}
BEGIN = {
    "firewalld": "systemctl start dbus firewalld && firewall-cmd --state",
    "ufw": "ufw allow 22/tcp && ufw --force enable",
}
RULES = {
    "firewalld": "nft list table inet firewalld",
    "ufw": "iptables -S | grep ufw; iptables -S FORWARD | head -n 1",
}
AGAIN = {"firewalld": "firewall-cmd --reload", "ufw": "ufw reload"}


def documented(cluster: LabCluster, firewall: str) -> str:
    """Return the commands of the page for a firewall, for the machines of the lab."""
    program = {"firewalld": "firewall-cmd", "ufw": "ufw"}[firewall]
    lines = re.findall(rf"^{program} (?:allow|route|--).*$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert lines
    network = cluster.address("worker1").rpartition(".")[0] + ".0/24"
    return "\n".join(lines).replace("NETWORK-OF-THE-NODES", network)


@pytest.fixture(scope="module")
def cluster(lab_name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabCluster]:
    """Two workers with a firewall each, and a server on either that a Service has."""
    kept = os.environ.get("MINIK8S_FIREWALLED", "")
    made = LabCluster(kept or lab_name)
    try:
        made.up()
        if not made.kubeconfig.exists():
            made.install()
            packages(made, tmp_path_factory.mktemp("debs"))
        made.apply(standing.namespace(), standing.service("web"))
        for node in FIREWALLED:
            made.apply(server(node))
        made.until(lambda: standing.all_ready(made, 2), WAIT_S)
        yield made
    finally:
        if not kept:
            made.close()


def server(node: str) -> JsonObject:
    """Return a pod on a node that serves its name."""
    made = standing.pod(f"web-{node}", standing.server_spec(node))
    made["metadata"]["labels"] = {"app": "web"}
    return made


def packages(cluster: LabCluster, folder: Path) -> None:
    """Install the firewalls; the lab's machines reach no mirror."""
    fetch = REPOSITORY / "roles" / "bundle" / "files" / "debs.py"
    subprocess.run([sys.executable, str(fetch), "--suite=bookworm", str(folder), "firewalld,ufw"], check=True)
    shutil.copy(folder / "bookworm.tar", cluster.lab.folder / "share" / "firewalls.tar")
    script = """
        mkdir -p /root/debs; tar -xf /mnt/host/firewalls.tar -C /root/debs
        echo 'deb [trusted=yes] file:/root/debs ./' >/etc/apt/sources.list.d/firewalls.list
        apt-get -qq -o Dir::Etc::SourceList=/etc/apt/sources.list.d/firewalls.list -o Dir::Etc::SourceParts=- update
        DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends "$1" >/dev/null
        systemctl stop "$1"
    """
    for node, firewall in FIREWALLED.items():
        cluster.on(node, ["sh", "-euc", script, "sh", firewall], timeout_s=600)


def reaches(cluster: LabCluster) -> None:
    """Have each pod reach the other one by its address, and both by their Service's name."""
    pods = {one["spec"]["nodeName"]: one for one in standing.pods(cluster, "app=web")}
    for node, other in zip(FIREWALLED, reversed(FIREWALLED), strict=True):
        asked = f"timeout 20 wget -q -O- http://{pods[other]['status']['podIP']}:8080/"
        answered(cluster, f"web-{node}", asked, {f"web-{other}"})
        script = "for i in 1 2 3 4 5 6 7 8; do timeout 20 wget -q -O- http://web/; done"
        answered(cluster, f"web-{node}", script, {f"web-{one}" for one in FIREWALLED})


def answered(cluster: LabCluster, pod: str, script: str, names: set[str]) -> None:
    """Wait until a script in a pod prints these names."""
    cluster.until(
        lambda: {*cluster.inside(pod, "sh", "-c", script, namespace=standing.NAMESPACE).split()} == names,
        WAIT_S,
        f"{pod}: {script}",
    )


def test_pods_and_services_work_beside_firewalls_and_neither_touches_the_others_rules(cluster: LabCluster) -> None:
    reaches(cluster)
    for node, firewall in FIREWALLED.items():
        cluster.on(node, ["sh", "-euc", BEGIN[firewall]], timeout_s=120)
        cluster.on(node, ["sh", "-euc", documented(cluster, firewall)], timeout_s=120)
    reaches(cluster)
    before = {node: cluster.on(node, ["sh", "-c", RULES[firewall]]) for node, firewall in FIREWALLED.items()}
    assert all(before.values())

    # ours come and go beside theirs
    cluster.kubectl("delete", "pods", "-l", "app=web", "-n", standing.NAMESPACE)
    for node in FIREWALLED:
        cluster.apply(server(node))
    cluster.until(lambda: standing.all_ready(cluster, 2), WAIT_S)
    reaches(cluster)
    after = {node: cluster.on(node, ["sh", "-c", RULES[firewall]]) for node, firewall in FIREWALLED.items()}
    assert after == before

    # and theirs are made again beside ours
    for node, firewall in FIREWALLED.items():
        cluster.on(node, ["sh", "-euc", AGAIN[firewall]], timeout_s=120)
    reaches(cluster)
    cluster.until(lambda: set(cluster.ready_nodes()) == {*cluster.nodes}, WAIT_S)
