"""Installation by inventory (S-05): preflight, two nodes by their names, a second run, and what a reset leaves.

The machines are reached as a user does it: over SSH, as somebody with sudo. Each test finds the cluster installed.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
from collections import Counter
from collections.abc import Iterator

import pytest

from minik8s_modules.api.objects import JsonObject
from tests.support.clusters.labcluster import CommandFailed, LabCluster, recap

IMAGE = "minik8s/busybox:1"
# a user with sudo, whom the key of the lab lets in (one that is locked, not even with a key)
ADMIN = """
useradd --create-home --shell /bin/bash --password '*' admin
install -d -m 700 -o admin -g admin /home/admin/.ssh
install -m 600 -o admin -g admin /root/.ssh/authorized_keys /home/admin/.ssh/authorized_keys
echo 'admin ALL=(ALL) NOPASSWD:ALL' >/etc/sudoers.d/admin
su admin -c 'sudo true' # the first time it leaves a file at home
"""
# What an installation might leave: files, users, devices, rules, units, processes, images. Left out is what machines
# write by themselves, Docker's own, which stays (/etc/cni is made by containerd).
SEEN = r"""
find /etc /opt /usr /var/lib /var/log /var/spool /run /root /home -xdev \
    \( -path /var/lib/docker -o -path /var/lib/containerd -o -path /var/log/journal -o -path '/run/systemd' \
       -o -path /run/user -o -path /run/docker -o -path /run/containerd -o -path /run/udev -o -path /run/log \
       -o -path /run/sudo -o -path /var/lib/sudo -o -path /var/lib/systemd -o -path /var/lib/apt \
       -o -path /var/lib/dpkg -o -path /run/lock -o -path '*/.ansible' -o -name __pycache__ -o -name '*-' \
       -o -name docker.pid -o -path /etc/docker -o -path /run/xtables.lock -o -path /run/netns \
       -o -path /etc/cni \) -prune -o -print
getent passwd | cut -d: -f1; getent group | cut -d: -f1
ip -o link | cut -d' ' -f2 | grep -v docker0; ip route | grep -v docker0; nft list tables | grep minik8s
systemctl list-unit-files --no-legend --no-pager 'minik8s*'
pgrep --list-full minik8s; docker ps --all --quiet --filter label=minik8s.io/node; docker images --quiet 'minik8s/*'
true
"""


class Machines:
    """A cluster that may be taken away and installed again, and what its machines had before the first time."""

    def __init__(self, name: str) -> None:
        self.cluster = LabCluster(name, variables={"ansible_user": "admin", "ansible_connection": "ssh"})
        self.before: dict[str, set[str]] = {}
        self.installed = False

    def prepare(self) -> None:
        """Switch the machines on and give them a user with sudo."""
        self.cluster.up()
        for name in self.names:
            self.cluster.on(name, ["sh", "-euc", ADMIN])
        self.before = {name: self.seen(name) for name in self.names}

    @property
    def names(self) -> list[str]:
        """The machines."""
        return [*self.cluster.control, *self.cluster.workers]

    def seen(self, name: str) -> set[str]:
        """Return what a machine has."""
        return set(self.cluster.on(name, ["sh", "-c", SEEN]).splitlines())

    def ensure(self) -> LabCluster:
        """Return the cluster, installed."""
        if not self.installed:
            self.cluster.install()
            self.installed = True
        return self.cluster


@pytest.fixture(scope="module")
def machines(lab_name: str) -> Iterator[Machines]:
    made = Machines(lab_name)
    try:
        made.prepare()
        yield made
    finally:
        if not os.environ.get("MINIK8S_KEEP"):
            made.cluster.close()


@pytest.fixture
def cluster(machines: Machines) -> LabCluster:
    return machines.ensure()


def pod(name: str) -> JsonObject:
    container = {"name": "app", "image": IMAGE, "command": ["sleep", "36000"]}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "turns"}}, "spec": spec}


def place(cluster: LabCluster, name: str) -> str:
    """Return the node of a pod, "" until it has one."""
    return str(cluster.get("pod", name)["spec"].get("nodeName", ""))


def test_nodes_stand_by_their_names_and_pods_take_turns(cluster: LabCluster) -> None:
    nodes = cluster.get("nodes")["items"]
    addresses = {
        node["metadata"]["name"]: {one["type"]: one["address"] for one in node["status"]["addresses"]} for node in nodes
    }
    assert {name: found["InternalIP"] for name, found in addresses.items()} == {
        name: cluster.address(name) for name in cluster.workers
    }
    names = [f"turn-{number}" for number in range(6)]
    try:
        placed = []
        for name in names:
            cluster.apply(pod(name))
            placed.append(cluster.until(functools.partial(place, cluster, name)))
        cluster.until(lambda: all(cluster.ready(name) for name in names))
        assert all(one != after for one, after in itertools.pairwise(placed)), placed
        assert Counter(placed) == dict.fromkeys(cluster.workers, 3)
    finally:
        cluster.kubectl("delete", "pods", "--selector=app=turns", "--grace-period=0", "--force", "--wait=false")


@pytest.mark.parametrize("mode", [[], ["--check", "--diff"]])
def test_another_run_changes_nothing(cluster: LabCluster, mode: list[str]) -> None:
    again = cluster.play("site.yml", *mode)
    assert again.changed == 0, [line for line in again.output.splitlines() if line.startswith(("TASK", "changed"))]


def test_an_inventory_that_cannot_work_is_refused_before_anything_is_touched(cluster: LabCluster) -> None:
    network = f"{cluster.address('control1').rpartition('.')[0]}.0/24"
    wrong = json.dumps({"minik8s_cluster_cidr": network})
    with pytest.raises(CommandFailed) as refused:
        cluster.play("site.yml", "--extra-vars", wrong)
    words = " ".join(refused.value.words.split())
    assert "This machine cannot run minik8s" in words
    assert network in words
    counts = recap(refused.value.words)
    assert set(counts) >= {*cluster.control, *cluster.workers}
    assert all(one["changed"] == 0 for one in counts.values()), counts


def test_a_reset_leaves_nothing_on_any_machine(machines: Machines) -> None:
    cluster = machines.ensure()
    cluster.apply(pod("stays"))
    cluster.until(lambda: cluster.ready("stays"))
    machines.installed = False
    cluster.play("reset.yml")
    left = {name: sorted(machines.seen(name) - machines.before[name]) for name in machines.names}
    gone = {name: sorted(machines.before[name] - machines.seen(name)) for name in machines.names}
    assert left == {name: [] for name in machines.names}
    assert gone == {name: [] for name in machines.names}
