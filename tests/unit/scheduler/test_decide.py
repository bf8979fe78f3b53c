"""Which pods are scheduled at all, and the parts of a decision that the API's field coverage names."""

from __future__ import annotations

from minik8s_modules.scheduler.framework import Profile, Snapshot, decide, is_pending
from minik8s_modules.scheduler.plugins import NodeReady, RoundRobin, decide_node
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


def test_a_profile_is_data():
    class Reluctant:
        name = "Reluctant"

        def pre_filter(self, _pod, _snapshot):
            return "not today"

    snapshot = Snapshot.of([node("a"), node("b")], [], turn=1)
    assert decide(pod("p"), snapshot, Profile(pre_filters=(Reluctant(),))).message == "not today"
    assert decide(pod("p"), snapshot, Profile(filters=(NodeReady(),), scores=((RoundRobin(), 2),))).node == "b"
    assert decide(pod("p"), snapshot, Profile()).node == "a"
