"""Which pods are scheduled at all, and the parts of a decision that the API's field coverage names."""

from __future__ import annotations

from minik8s_modules.scheduler.framework.infos import is_pending
from minik8s_modules.scheduler.framework.snapshot import Snapshot
from minik8s_modules.scheduler.profiles.deciding import decide_node
from tests.unit.scheduler.worlds import node, pod


def test_node_selector():
    snapshot = Snapshot.of([node("a", labels={"disk": "hdd"}), node("b", labels={"disk": "ssd"})], [])
    assert decide_node(pod("p", nodeSelector={"disk": "ssd"}), snapshot).node == "b"


def test_scheduler_name():
    assert is_pending(pod("p"))
    assert is_pending(pod("p", schedulerName="default-scheduler"))
    assert not is_pending(pod("p", schedulerName="mine"))
    assert is_pending(pod("p", schedulerName="mine"), "mine")


def test_unschedulable():
    snapshot = Snapshot.of([node("a", unschedulable=True)], [])
    decision = decide_node(pod("p"), snapshot)
    assert decision.message == "0/1 nodes are available: 1 node(s) were unschedulable."


def test_taints_and_tolerations():
    snapshot = Snapshot.of([node("a", taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}])], [])
    assert not decide_node(pod("p"), snapshot).node
    exact = {"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}
    for toleration in (exact, {"key": "k", "operator": "Exists"}, {"operator": "Exists"}):
        assert decide_node(pod("p", tolerations=[toleration]), snapshot).node == "a"
    for change in ({"key": "x"}, {"value": "x"}, {"effect": "NoExecute"}):
        assert not decide_node(pod("p", tolerations=[{**exact, **change}]), snapshot).node


def test_bound_finished_and_deleting_pods_are_not_scheduled():
    bound, finished, deleting = pod("a", nodeName="n"), pod("b"), pod("c")
    finished["status"]["phase"] = "Failed"
    deleting["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert not any(is_pending(each) for each in (bound, finished, deleting))


def test_a_gated_pod_is_not_tried():
    decision = decide_node(pod("p", schedulingGates=[{"name": "a.b/c"}]), Snapshot.of([node("a")], []))
    assert (decision.node, decision.message) == ("", "waiting for scheduling gates: [a.b/c]")


def test_a_pod_of_another_scheduler_waits_for_it():
    decision = decide_node(pod("p", schedulerName="mine"), Snapshot.of([node("a")], []))
    assert (decision.node, decision.message) == ("", "it waits for a scheduler named mine")


def test_the_policies_of_the_original_go_by_name():
    nodes = [node(name, labels={"app": "web"} if name == "c" else {}) for name in "abc"]
    turns = [decide_node(pod("p", schedulerName="round-robin"), Snapshot.of(nodes, [], turn)).node for turn in range(4)]
    assert turns == ["a", "b", "c", "a"]
    likes = pod("p", schedulerName="label-affinity")
    likes["metadata"]["labels"] = {"app": "web"}
    assert {decide_node(likes, Snapshot.of(nodes, [], turn)).node for turn in range(9)} == {"c"}
    drawn = {decide_node(pod("p", schedulerName="random"), Snapshot.of(nodes, [], turn)).node for turn in range(40)}
    assert drawn == {"a", "b", "c"}
