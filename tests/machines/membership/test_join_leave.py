"""Machines join and leave a cluster under load: by playbook, by command, and when they answer no more (S-19)."""

from __future__ import annotations

import pytest

from minik8s_modules.api.objects import JsonObject
from tests.machines.membership.members import WEB, Members
from tests.support.clusters import standing
from tests.support.clusters.labcluster import CommandFailed
from tests.support.clusters.standing import NAMESPACE

SPARE = "spare1"
SLEEP = ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.1; done"]


def test_a_machine_joins_takes_pods_and_leaves_without_a_failed_request(served: Members):
    cluster = served.cluster
    served.leave(SPARE)
    before, daemons = served.running(*cluster.workers), served.daemons()

    play = served.add_by_command(SPARE)

    assert {name for name, each in play.recap.items() if each["changed"]} == {"control1", SPARE}
    assert all(play.recap[name]["ok"] <= 1 for name in cluster.workers if name in play.recap), (
        "it looked at other nodes"
    )
    assert SPARE in cluster.ready_nodes()
    node = served.node(SPARE)
    assert node is not None
    cidr = node["spec"]["podCIDR"]
    cluster.until(lambda: served.ranges(SPARE) == {cidr: "Assigned"})
    assert served.running(*cluster.workers) == before, "a container was restarted"
    assert served.daemons() == daemons, "a daemon was restarted"
    assert SPARE in cluster.on("control1", ["cat", "/etc/minik8s/machines/hosts.yml"])
    # it is as those that were installed: the same server of names, and the pause program that asks probes
    for path in ("/opt/minik8s/bin/coredns", "/var/lib/minik8s/pause"):
        sums = {cluster.on(name, ["sha256sum", path]).split()[0] for name in (SPARE, *cluster.workers)}
        assert len(sums) == 1, path

    cluster.apply(standing.deployment("far", 2, standing.server_spec(SPARE)), standing.service("far"))
    cluster.until(lambda: standing.ready_on(cluster, "app=far", SPARE) == 2)
    url = f"http://{served.address('far')}/"
    cluster.until(lambda: cluster.inside("client", "timeout", "5", "wget", "-q", "-O", "-", url, namespace=NAMESPACE))
    cluster.kubectl("delete", "deployment,service", "far", "-n", NAMESPACE)
    # the servers are spread anew, so that the machine that leaves has some of them
    cluster.kubectl("rollout", "restart", f"deployment/{WEB}", "-n", NAMESPACE)
    cluster.kubectl("rollout", "status", f"deployment/{WEB}", "-n", NAMESPACE, "--timeout=180s", timeout_s=200)
    cluster.until(lambda: standing.all_ready(cluster, 3, f"app={WEB}"))
    assert standing.ready_on(cluster, f"app={WEB}", SPARE) >= 1

    each = served.command("node", "remove", SPARE)

    assert "was not cleaned" not in each, "its machine was taken for one that does not answer"
    assert served.node(SPARE) is None
    assert served.ranges(SPARE) == {}
    assert served.remains(SPARE) == ""
    assert SPARE not in cluster.on("control1", ["sh", "-c", "cat /etc/minik8s/inventory/* /etc/minik8s/machines/*"])
    cluster.until(lambda: standing.all_ready(cluster, 3, f"app={WEB}"))
    counted = served.tally()
    assert counted.bad == 0, counted
    assert served.daemons() == daemons, "a daemon was restarted"


def test_the_command_that_added_a_machine_changes_nothing_again(members: Members):
    if members.node(SPARE) is None:
        members.add_by_command(SPARE)
    assert members.add_by_command(SPARE).changed == 0


def test_a_disruption_budget_is_honoured_and_the_removal_can_be_called_off(members: Members):
    cluster = members.cluster
    members.present(SPARE)
    keep = {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "kept"}}}
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "kept", "namespace": NAMESPACE},
    }
    cluster.apply(standing.deployment("kept", 1, standing.server_spec(SPARE)), {**budget, "spec": keep})
    cluster.until(lambda: standing.ready_on(cluster, "app=kept", SPARE) == 1)
    before = members.running(SPARE)

    with pytest.raises(CommandFailed) as refused:
        members.command("node", "remove", SPARE, "--timeout", "8")

    assert "could not be drained within 8 s" in refused.value.words
    assert "the same command goes on where this one stopped" in refused.value.words
    assert members.running(SPARE) == before
    cluster.kubectl("uncordon", SPARE)
    cluster.until(lambda: "minik8s.io/leaving" not in (members.node(SPARE) or {})["metadata"].get("annotations", {}))
    assert SPARE in cluster.ready_nodes()
    members.clear()


def bare(name: str, *, original: bool) -> JsonObject:
    """Return a bare pod on the machine that leaves, of the original or of Kubernetes."""
    made = standing.pod(name, standing.pod_spec(SLEEP))
    made["spec"]["nodeName"] = SPARE
    if original:
        made["metadata"]["annotations"] = {"minik8s.io/dialect": "original"}
    return made


def uids(members: Members) -> dict[str, str]:
    """Return the uids of the bare pods there are, by name, with their nodes."""
    found = [one for one in standing.pods(members.cluster) if not one["metadata"].get("ownerReferences")]
    return {one["metadata"]["name"]: one["metadata"]["uid"] for one in found}


def test_a_machine_that_does_not_answer_is_given_up_and_its_addresses_wait(members: Members):
    cluster = members.cluster
    members.present(SPARE)
    replicas = standing.deployment("set", 2, standing.server_spec(), kind="ReplicaSet")
    cluster.apply(bare("original", original=True), bare("plain", original=False), replicas)
    cluster.until(lambda: standing.all_ready(cluster, 2, "app=set"))
    cluster.until(lambda: cluster.ready("original", NAMESPACE) and cluster.ready("plain", NAMESPACE))
    old, (cidr,) = uids(members), members.ranges(SPARE)
    cluster.lab.power_cut(SPARE)

    with pytest.raises(CommandFailed) as refused:
        members.command("node", "remove", SPARE)
    assert "does not answer" in refused.value.words
    assert "-e force=true" in refused.value.words
    assert members.node(SPARE) is not None

    result = members.command("node", "remove", SPARE, "--force")
    assert f"kubectl delete podcidr {cidr.replace('/', '-')}" in result
    cluster.until(lambda: members.node(SPARE) is None)
    cluster.until(lambda: standing.all_ready(cluster, 2, "app=set"), told="the ReplicaSet's pods were not replaced")
    cluster.until(lambda: uids(members).keys() == {"original"} and uids(members) != {"original": old["original"]})
    cluster.until(lambda: cluster.ready("original", NAMESPACE))
    assert not standing.pods(cluster, node=SPARE)
    cluster.until(lambda: members.ranges(SPARE) == {cidr: "Quarantined"})

    # nobody else gets its range
    cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "ghost"}})
    cluster.until(lambda: members.ranges("ghost"))
    assert cidr not in members.ranges("ghost")
    cluster.kubectl("delete", "node", "ghost")
    cluster.kubectl("delete", "podcidrs", *(one.replace("/", "-") for one in members.ranges("ghost")))

    cluster.lab.start(SPARE)
    members.command("node", "remove", SPARE)
    assert members.ranges(SPARE) == {}
    assert members.remains(SPARE) == ""
    members.add(SPARE)
    assert members.ranges(SPARE).keys() == {cidr}, "the range that was freed is the lowest one"
    members.clear()


def test_what_cannot_be_is_said_at_once(members: Members):
    cluster = members.cluster
    for words, each in (
        (["node_add.yml", "-e", "node=nobody"], "nobody: no such machine in the group nodes"),
        (["node_add.yml", "--limit", "worker1"], "-e node=NAME"),
        (["node_remove.yml"], "Name one node with -e node=NAME"),
        (["node_remove.yml", "-e", "node=nobody"], "There is no node nobody; the cluster has"),
        (["node_remove.yml", "-e", "node=control1"], "is a machine of the control plane"),
    ):
        with pytest.raises(CommandFailed) as refused:
            cluster.play(*words)
        assert each in " ".join(refused.value.words.split()), refused.value.words
