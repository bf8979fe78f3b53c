"""A lab machine that reconciles itself: prepared by a playbook, joined with a token, reached over the overlay, left."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from functools import partial

import pytest

from tests.machines.membership.members import HOME, Members
from tests.support.clusters import standing
from tests.support.clusters.labcluster import REPOSITORY

NAME, UNIT = "spare1", "minik8s-alone"
FILE = (REPOSITORY / "examples" / "node.yml").read_text(encoding="utf-8")
# as molecule's scenario reset has them: what the machine's administrator had before us, and a container of others
OWN = r"""
printf '%s' '{"log-opts": {"max-size": "7m"}}' >/etc/docker/daemon.json
printf "# the machine's own\nnameserver 192.0.2.53\nsearch lab.example\n" >/etc/resolv.own
ln -sfn resolv.own /etc/resolv.conf
"""
FOREIGN = """
tar -cC / bin/busybox | docker import - foreign:1
docker run --detach --name foreign foreign:1 /bin/busybox sleep 100000
"""
AFTER_RESET = REPOSITORY / "tests" / "molecule" / "reset" / "verify.yml"


class Alone:
    """The machine and its reconciler, a unit of systemd that is not started at boot."""

    def __init__(self, members: Members) -> None:
        self.members, self.cluster = members, members.cluster

    @contextlib.contextmanager
    def grouped(self) -> Iterator[None]:
        """Have the machine in the group reconcilers of the inventory, for a while."""
        inventory = self.cluster.inventory / "reconcilers.yml"
        hosts = {NAME: {"ansible_host": self.cluster.address(NAME)}}
        inventory.write_text(json.dumps({"reconcilers": {"hosts": hosts}}), encoding="utf-8")
        try:
            yield
        finally:
            inventory.unlink()

    def prepare(self) -> None:
        """Run the playbook on a machine with settings of its own; write the node's file, and run what is not ours."""
        self.cluster.on(NAME, ["sh", "-euc", OWN])
        with self.grouped():
            self.cluster.play("reconciler.yml")
        self.cluster.on(NAME, ["bash", "-euo", "pipefail", "-c", FOREIGN])
        self.cluster.on(NAME, ["tee", "/root/node.yml"], text=FILE)

    def reset(self) -> None:
        """Remove every trace of ours, if there is one."""
        if self.members.remains(NAME):
            with self.grouped():
                self.cluster.play("reset.yml", "--limit", NAME)

    def join_command(self) -> list[str]:
        """Return a new command of the control plane, for this machine."""
        words = self.cluster.on(self.cluster.control[0], ["minik8s", "token", "create", "--print-join-command"]).split()
        words[words.index("NAME")] = NAME
        words[words.index("node.yml")] = "/root/node.yml"
        return words

    def start(self, words: list[str]) -> None:
        """Start it, as a unit, so that it outlives our ssh."""
        self.cluster.on(NAME, ["systemctl", "reset-failed"])
        self.cluster.on(NAME, ["systemd-run", f"--unit={UNIT}", "--property=KillMode=mixed",
                               "--property=TimeoutStopSec=180", *words])  # fmt: skip

    def log(self) -> str:
        """Return what it has said."""
        return self.cluster.on(NAME, ["journalctl", "--no-pager", "--lines=60", f"--unit={UNIT}"])

    def is_ready(self) -> bool:
        """Return whether its Node is Ready."""
        return NAME in self.cluster.ready_nodes()

    def until_ready(self) -> None:
        """Wait for it; on failure show its log."""
        try:
            self.cluster.until(self.is_ready, 300)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log()}") from error


@pytest.fixture(scope="module")
def alone(members: Members) -> Iterator[Alone]:
    made = Alone(members)
    members.leave(NAME)
    made.prepare()
    made.start(made.join_command())
    try:
        made.until_ready()
        yield made
    finally:
        members.clear()
        made.cluster.on(NAME, ["sh", "-c", f"systemctl stop {UNIT}; true"], timeout_s=240)
        made.reset()


def test_its_pods_reach_others_over_the_overlay_and_are_reached(alone: Alone):
    cluster = alone.cluster
    node = cluster.get("node", NAME)
    assert node["metadata"]["labels"]["disk"] == "ssd"
    assert {"type": "InternalIP", "address": cluster.address(NAME)} in node["status"]["addresses"]
    places = {"there": NAME, "here": HOME}
    pods = [standing.pod(name, standing.pod_spec(["sleep", "3600"], node)) for name, node in places.items()]
    cluster.apply(standing.namespace(), *pods)
    for name in places:
        cluster.until(partial(cluster.ready, name, standing.NAMESPACE), 240)
    address = cluster.get("pod", "there", "-n", standing.NAMESPACE)["status"]["podIP"]
    assert "1 packets received" in cluster.inside("here", "ping", "-c1", "-W5", address, namespace=standing.NAMESPACE)
    assert cluster.inside("there", "hostname", namespace=standing.NAMESPACE).strip() == "there"


def test_plans_and_drift_look_at_it(alone: Alone):
    cluster, control = alone.cluster, alone.cluster.control[0]
    pod = standing.pod("planned", standing.pod_spec(["sleep", "3600"], NAME))
    cluster.apply(standing.namespace())
    done = cluster.on(control, ["minik8s", "plan", "--full", "-f", "-"], text=json.dumps(pod))
    assert f"node {NAME}\n" in done, done
    assert "+ containers: create" in done
    assert f"node {HOME}\n" not in done
    cluster.until(lambda: "no changes" in cluster.on(control, ["minik8s", "drift", NAME]))
    assert "planned" not in cluster.kubectl("get", "pods", "-n", standing.NAMESPACE, "-o", "name")


def test_a_clean_stop_leaves_no_node_and_nothing_on_the_machine(alone: Alone):
    cluster = alone.cluster
    cluster.on(NAME, ["systemctl", "stop", UNIT], timeout_s=240)
    assert alone.members.node(NAME) is None, alone.log()
    assert alone.members.ranges(NAME) == {}
    left = cluster.on(NAME, ["sh", "-c", "docker ps -aq --filter label=minik8s.io/node; ip -o link | grep mk8s; true"])
    assert left == ""
    cluster.until(lambda: "there" not in cluster.kubectl("get", "pods", "-n", standing.NAMESPACE, "-o", "name"))


def test_a_reset_leaves_nothing_of_ours_and_all_that_is_others(alone: Alone):
    """Docker with the administrator's settings, a container that never stopped, and the machine's resolver."""
    alone.reset()
    alone.members.list(NAME, listed=True)  # the playbook looks at nodes
    try:
        alone.cluster.play(str(AFTER_RESET), "--limit", NAME)
    finally:
        alone.members.list(NAME, listed=False)
    alone.cluster.on(NAME, ["docker", "rm", "--force", "foreign"])
