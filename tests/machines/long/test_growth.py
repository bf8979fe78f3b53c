"""One machine of the control plane becomes three by the inventory alone, gets new keys, and becomes one again.

Somebody asks the API all the time, and a pod asks a service. One lab does for all of it: growing is most of the time.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from minik8s_modules.api.objects import JsonObject
from tests.support.asking import Told, asking
from tests.support.clusters import standing
from tests.support.clusters.labcluster import CommandFailed, LabCluster, Play, is_true, recap

WORKER, FIRST, SECOND, THIRD = "worker1", "control1", "spare1", "spare2"
CA = "/etc/minik8s/pki/ca.crt"
LOCK = "/run/minik8s-membership.json"
ETCDCTL = ["env", "ETCDCTL_API=3", "etcdctl", "--cacert=/etc/minik8s/pki/etcd/ca.crt"]
ETCDCTL += [f"--{word}=/etc/minik8s/pki/etcd/apiserver-client.{end}" for word, end in (("cert", "crt"), ("key", "key"))]


class Growing:
    """The cluster, and what came of the time in which it grew."""

    def __init__(self, name: str) -> None:
        self.cluster = LabCluster(name, control=1, workers=1, spare=2)
        self.play: Play | None = None
        self.told = Told(0, 0, [])
        self.before: dict[str, tuple[str, str]] = {}
        self.failed_before, self.lost = 0, False

    def begin(self) -> None:
        """Install it with one machine, and have a pod ask a service; a cluster that stands already has three."""
        self.cluster.up()
        if self.cluster.kubeconfig.exists():
            self.list(FIRST, SECOND, THIRD)
            self.cluster.fetch_kubeconfig()
            self.play = Play("", {}, 0)
        else:
            self.cluster.install()
        self.cluster.load_image(standing.IMAGE)
        self.cluster.apply(standing.namespace())
        self.cluster.apply(standing.deployment("web", 1, standing.server_spec()), standing.service("web"))
        url = f"http://web.{standing.NAMESPACE}.svc.cluster.local/"
        self.cluster.apply(standing.client("asking", WORKER, url))
        self.cluster.until(lambda: standing.all_ready(self.cluster, 2))
        self.cluster.until(lambda: self.tally().good > 0)
        self.before, self.failed_before = self.running(), self.tally().bad

    def grow(self) -> LabCluster:
        """Have three machines, and return the cluster."""
        if self.lost:  # its data are those of a member that is none any more
            self.cluster.lab.start(THIRD)
            self.list(FIRST, SECOND, THIRD)
            self.cluster.play("reset.yml", "--limit", THIRD)
            self.lost = False
        if self.play is None:
            with asking(self.cluster, FIRST, [FIRST]) as client:
                self.list(FIRST, SECOND, THIRD)
                self.play = self.cluster.play("site.yml")
                self.told = client.told()
        return self.cluster

    def list(self, *control: str) -> None:
        """Have the inventory name these machines of the control plane; the others are in no group of it."""
        self.cluster.control = [*control]
        self.cluster.write_inventory()
        others = {name: {"ansible_host": self.cluster.address(name)} for name in {SECOND, THIRD} - {*control}}
        (self.cluster.inventory / "others.yml").write_text(json.dumps({"ungrouped": {"hosts": others}}))

    def running(self) -> dict[str, tuple[str, str]]:
        """Return container id and address of every ready pod, by uid."""
        return {
            pod["metadata"]["uid"]: (pod["status"]["containerStatuses"][0]["containerID"], pod["status"]["podIP"])
            for pod in standing.pods(self.cluster)
            if is_true(pod, "Ready")
        }

    def tally(self) -> standing.Tally:
        """Return what the pod that asks has counted."""
        pod = self.cluster.get("pod", "asking", "-n", standing.NAMESPACE)
        container = str(pod["status"]["containerStatuses"][0]["containerID"]).rpartition("/")[2]
        return standing.tally(self.cluster, WORKER, container)

    def pods_noticed_nothing(self) -> None:
        """Fail if a container or an address is another one than before, or a pod's request has failed."""
        assert self.before.items() <= self.running().items()
        assert self.tally().bad == self.failed_before


@pytest.fixture(scope="module")
def growing() -> Iterator[Growing]:
    """MINIK8S_STANDING_GROWTH in the environment names a lab with three machines to use again, and to keep."""
    kept = os.environ.get("MINIK8S_STANDING_GROWTH", "")
    made = Growing(kept or f"g{uuid.uuid4().hex[:7]}")
    try:
        made.begin()
        yield made
    finally:
        if not kept:
            made.cluster.close()


@pytest.fixture
def three(growing: Growing) -> LabCluster:
    """The cluster with three machines of the control plane."""
    return growing.grow()


def members(cluster: LabCluster) -> list[JsonObject]:
    """Return etcd's members as the first machine lists them."""
    found = json.loads(cluster.on(FIRST, [*ETCDCTL, "member", "list", "--write-out=json"]))
    listed: list[JsonObject] = found["members"]
    return listed


def servers(cluster: LabCluster, control: str = "") -> list[str]:
    """Return the addresses of ``default/kubernetes``."""
    path = "jsonpath={.subsets[0].addresses[*].ip}"
    return cluster.kubectl("get", "endpoints", "kubernetes", "-o", path, control=control).split()


def authorities(cluster: LabCluster) -> set[str]:
    """Return what the machines trust, without repetition."""
    return {cluster.on(control, ["cat", CA]) for control in cluster.control}


def said(log: Path, *words: str) -> bool:
    """Return whether a run has said the words, one after the other."""
    return re.search(".*".join(map(re.escape, words)), log.read_text(errors="replace"), re.DOTALL) is not None


def test_one_machine_becomes_three_and_nobody_is_without_an_api(growing: Growing, three: LabCluster):
    assert growing.told.good > 0
    assert growing.told.failures == [], "the API server refused calls"
    growing.pods_noticed_nothing()
    result = members(three)
    assert sorted(each["name"] for each in result) == sorted(three.control)
    assert not [each for each in result if each.get("isLearner")]
    three.until(lambda: sorted(servers(three)) == sorted(map(three.address, three.control)))
    for control in three.control:
        assert three.kubectl("get", "nodes", "-o", "name", control=control) == f"node/{WORKER}\n"
    again = three.play("site.yml")
    assert again.changed == 0, [line for line in again.output.splitlines() if line.startswith(("TASK", "changed"))]


def test_a_second_run_is_refused_and_a_killed_one_locks_nobody_out(growing: Growing, three: LabCluster):
    """The certificates are renewed then, with no request failing on any machine."""
    with three.playing("site.yml") as log:
        three.until(lambda: said(log, "TASK [membership_lock : No other run changes the members]", "PLAY ["))
        with pytest.raises(CommandFailed) as refused:
            three.play("renew.yml")
        assert not said(log, "PLAY RECAP"), log.read_text()
    words = " ".join(refused.value.words.split())
    assert re.search(r"\S+@\S+ runs site.yml \(process \d+\) since 2", words), words
    assert "-e membership_lock_break=" in words
    assert f"{LOCK} on {FIRST}" in words
    assert all(counts["changed"] == 0 for counts in recap(refused.value.words).values())
    with asking(three, FIRST, three.control) as client:
        assert three.play("renew.yml").changed > 0
        result = client.told()
    assert result.failures == []
    assert "none" in three.on(FIRST, ["sh", "-c", f"test -e {LOCK} || echo none"])


def test_an_authority_whose_exchange_was_stopped_in_its_middle_is_exchanged_with_no_request_failing(
    growing: Growing, three: LabCluster
):
    (old,) = authorities(three)
    with asking(three, FIRST, three.control) as client:
        with three.playing("rotate_ca.yml") as log:
            middle = (
                "PLAY [The new authority signs everything]",
                "The certificates and kubeconfigs are there]",
                "changed",
            )
            three.until(lambda: said(log, *middle), 600, "the exchange does not get to its middle")
        three.play("rotate_ca.yml")
        three.until(lambda: client.told().good > 0)
        result = client.told()
    assert result.failures == []
    (new,) = authorities(three)
    assert new.count("BEGIN CERTIFICATE") == 1
    assert new != old
    three.fetch_kubeconfig()
    growing.pods_noticed_nothing()


def test_one_is_left_when_one_machine_is_lost_and_another_one_removed(growing: Growing, three: LabCluster):
    growing.play, growing.lost = None, True
    three.lab.power_cut(THIRD)
    growing.list(FIRST)
    with pytest.raises(CommandFailed, match="does not answer, so it cannot be cleaned"):
        three.play("control_plane_remove.yml", "-e", f"machine={THIRD}")
    three.play("control_plane_remove.yml", "-e", f"machine={SECOND}", "-e", "etcd_alone=true")
    assert [each["name"] for each in members(three)] == [FIRST]
    assert servers(three) == [three.address(FIRST)]
    assert three.on(SECOND, ["sh", "-c", "ls -d /etc/minik8s /opt/minik8s /var/lib/minik8s* 2>/dev/null || true"]) == ""
    growing.pods_noticed_nothing()
