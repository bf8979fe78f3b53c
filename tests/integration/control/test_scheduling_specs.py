"""What upstream's e2e specs of scheduling demand, with scheduler and controllers as processes on the real API server.

Source: kubernetes 1.32 ``test/e2e/scheduling/preemption.go`` and ``predicates.go``. Nodes are objects: a pod with a
node counts as running, and one without a grace period goes at once.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import EVENT, NODE, POD, PRIORITY_CLASS, REPLICA_SET, RUNTIME_CLASS
from minik8s_modules.api.objects import JsonObject, condition
from minik8s_modules.client.informer import Informer
from tests.integration.control.conftest import Cluster, pod
from tests.support.waiting import until

FAKE, FINALIZER, PATIENCE_S = "example.com/fake", "example.com/test-finalizer", 90.0
pytestmark = pytest.mark.usefixtures("scheduler", "daemon")


@pytest.fixture
def classes(cluster: Cluster) -> Iterator[dict[str, str]]:
    """Make classes of priorities 1, 100 and 1000; yield their names."""
    names = {each: f"{each}-{uuid.uuid4().hex[:6]}" for each in ("low", "medium", "high")}
    for each, value in (("low", 1), ("medium", 100), ("high", 1000)):
        cluster.admin.create(PRIORITY_CLASS, {"metadata": {"name": names[each]}, "value": value})
    yield names
    for name in names.values():
        cluster.admin.delete(PRIORITY_CLASS, name)


def node_with(cluster: Cluster, amount: int, **labels: str) -> str:
    """Register a node that has so much of a resource that nobody else asks for."""
    name = cluster.node()
    cluster.admin.patch(NODE, name, "", {"metadata": {"labels": labels}})
    amounts = {"capacity": {FAKE: str(amount)}, "allocatable": {FAKE: str(amount)}}
    cluster.admin.patch(NODE, name, "", {"status": amounts}, subresource="status")
    return name


def pausing(name: str, space: str, amount: int = 0, **more: Any) -> JsonObject:
    """Return a pod that asks for so much of the resource, and goes without a grace period."""
    meta = {key: more.pop(key) for key in ("labels", "finalizers") if key in more}
    asked = {"requests": {FAKE: str(amount)}, "limits": {FAKE: str(amount)}} if amount else {}
    container = {"name": "app", "image": "i", "resources": asked, "ports": more.pop("ports", [])}
    made = pod(name, space, terminationGracePeriodSeconds=0, **{"containers": [container], **more})
    return {**made, "metadata": {**made["metadata"], **meta}}


def on(name: str) -> JsonObject:
    """Return the affinity that binds to a node by its name."""
    field = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [field]}}}


def placed(cluster: Cluster, space: str, prefix: str = "") -> dict[str, str]:
    """Return the nodes of pods that have one, by name."""
    found = {objects.name(one): objects.spec(one).get("nodeName") for one in cluster.admin.list(POD, space).items}
    return {name: str(node) for name, node in found.items() if node and name.startswith(prefix)}


def has(cluster: Cluster, space: str, count: int) -> bool:
    return len(placed(cluster, space)) == count


def refused(cluster: Cluster, space: str, name: str) -> str:
    """Wait until a pod was found unschedulable; return why."""
    result = until(lambda: condition(cluster.admin.get(POD, name, space), "PodScheduled"), PATIENCE_S)
    assert (result["status"], result["reason"]) == ("False", "Unschedulable")
    return str(result["message"])


# --- preemption.go ----------------------------------------------------------------------------------


def test_a_pod_of_high_priority_takes_the_place_of_one_of_low_and_of_no_other(
    cluster: Cluster, classes: dict[str, str]
):
    space, node = cluster.namespace(), node_with(cluster, 5)
    for number in range(5):
        which = classes["low" if number == 0 else "medium"]
        cluster.admin.create(POD, pausing(f"pod{number}", space, 1, affinity=on(node), priorityClassName=which))
    until(lambda: len(placed(cluster, space)) == 5, PATIENCE_S)
    cluster.admin.create(POD, pausing("preemptor", space, 1, priorityClassName=classes["high"], affinity=on(node)))
    until(lambda: "preemptor" in placed(cluster, space), PATIENCE_S)
    assert sorted(placed(cluster, space)) == ["pod1", "pod2", "pod3", "pod4", "preemptor"]


def test_a_critical_pod_of_the_system_preempts(cluster: Cluster, classes: dict[str, str]):
    space, node = cluster.namespace(), node_with(cluster, 2)
    for name, which in (("victim", "low"), ("stays", "high")):
        cluster.admin.create(POD, pausing(name, space, 1, affinity=on(node), priorityClassName=classes[which]))
    until(lambda: len(placed(cluster, space)) == 2, PATIENCE_S)
    name = f"critical-{space}"
    critical = pausing(name, "kube-system", 1, affinity=on(node), priorityClassName="system-cluster-critical")
    cluster.admin.create(POD, critical)
    until(lambda: name in placed(cluster, "kube-system"), PATIENCE_S)
    assert [*placed(cluster, space)] == ["stays"]
    cluster.admin.delete(POD, name, "kube-system", grace_s=0)


def test_a_preempted_pod_has_the_condition_that_says_so(cluster: Cluster, classes: dict[str, str]):
    space, node = cluster.namespace(), node_with(cluster, 1)
    low = pausing("victim", space, 1, affinity=on(node), priorityClassName=classes["low"], finalizers=[FINALIZER])
    cluster.admin.create(POD, low)
    until(lambda: placed(cluster, space), PATIENCE_S)
    cluster.admin.create(POD, pausing("preemptor", space, 1, affinity=on(node), priorityClassName=classes["high"]))
    until(lambda: objects.is_deleting(cluster.admin.get(POD, "victim", space)), PATIENCE_S)
    result = condition(cluster.admin.get(POD, "victim", space), "DisruptionTarget") or {}
    assert (result.get("status"), result.get("reason")) == ("True", "PreemptionByScheduler")
    nominated = until(lambda: objects.status(cluster.admin.get(POD, "preemptor", space)).get("nominatedNodeName"))
    assert nominated == node
    cluster.admin.patch(POD, "victim", space, {"metadata": {"finalizers": None}})
    until(lambda: [*placed(cluster, space)] == ["preemptor"], PATIENCE_S)


def test_of_pods_of_three_priorities_the_highest_are_nominated_and_the_rest_share_what_is_left(
    cluster: Cluster, classes: dict[str, str]
):
    space, node = cluster.namespace(), node_with(cluster, 10)
    for number in range(10):
        low = pausing(f"low{number}", space, 1, affinity=on(node), priorityClassName=classes["low"])
        cluster.admin.create(POD, {**low, "metadata": {**low["metadata"], "finalizers": [FINALIZER]}})
    until(lambda: len(placed(cluster, space)) == 10, PATIENCE_S)
    for which, count in (("medium", 10), ("high", 5)):
        for number in range(count):
            made = pausing(f"{which}{number}", space, 1, affinity=on(node), priorityClassName=classes[which])
            cluster.admin.create(POD, made)

    def pods(prefix: str) -> list[JsonObject]:
        return [one for one in cluster.admin.list(POD, space).items if objects.name(one).startswith(prefix)]

    until(lambda: all(map(objects.is_deleting, pods("low"))), PATIENCE_S)
    until(lambda: all(objects.status(one).get("nominatedNodeName") for one in pods("high")), PATIENCE_S)
    for one in pods("low"):
        cluster.admin.patch(POD, objects.name(one), space, {"metadata": {"finalizers": None}})
    until(lambda: len(placed(cluster, space, "high")) == 5, PATIENCE_S)
    until(lambda: len(placed(cluster, space, "medium")) == 5, PATIENCE_S)
    assert len(placed(cluster, space)) == 10


def test_a_spread_pod_preempts_where_the_spread_lets_it(cluster: Cluster, classes: dict[str, str]):
    space, key = cluster.namespace(), f"example.com/{uuid.uuid4().hex[:8]}"
    for value in ("a", "b"):
        node_with(cluster, 10, **{key: value})
    among = {"matchExpressions": [{"key": key, "operator": "Exists"}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [among]}}
    common = {"affinity": {"nodeAffinity": required}, "labels": {"spread": ""}}
    cluster.admin.create(POD, pausing("high", space, 9, priorityClassName=classes["high"], **common))
    until(lambda: len(placed(cluster, space)) == 1, PATIENCE_S)
    for number in range(3):
        cluster.admin.create(POD, pausing(f"low-{number}", space, 3, priorityClassName=classes["low"], **common))
    until(lambda: len(placed(cluster, space)) == 4, PATIENCE_S)
    even = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule"}
    even["labelSelector"] = {"matchExpressions": [{"key": "spread", "operator": "Exists"}]}
    medium = pausing(
        "medium", space, 3, priorityClassName=classes["medium"], topologySpreadConstraints=[even], **common
    )
    cluster.admin.create(POD, medium)
    until(lambda: "medium" in placed(cluster, space), PATIENCE_S)
    assert sorted(name.partition("-")[0] for name in placed(cluster, space)) == ["high", "low", "medium"]


def test_pods_of_replica_sets_are_preempted_once_each_and_no_more_than_needed(cluster: Cluster):
    space, node = cluster.namespace(), node_with(cluster, 1000)
    made: dict[str, set[str]] = {f"pod{number}": set() for number in (1, 2, 3)}

    def seen(_old: JsonObject | None, new: JsonObject | None) -> None:
        if new is not None and objects.labels(new).get("name") in made:
            made[objects.labels(new)["name"]].add(objects.uid(new))

    informer = Informer(cluster.admin, POD, space)
    informer.add_handler(seen)
    informer.start()
    names = [f"p{number}-{space}" for number in range(1, 5)]
    for value, name in enumerate(names, 1):
        cluster.admin.create(PRIORITY_CLASS, {"metadata": {"name": name}, "value": value})
    for number, amount in ((1, 200), (2, 300), (3, 450)):
        labels = {"name": f"pod{number}"}
        template = pausing("x", space, amount, labels=labels, priorityClassName=names[number - 1], affinity=on(node))
        spec = {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {**template, "metadata": {"labels": labels}},
        }
        cluster.admin.create(REPLICA_SET, {"metadata": {"name": f"rs{number}", "namespace": space}, "spec": spec})
        until(partial(has, cluster, space, number), PATIENCE_S)
    cluster.admin.create(POD, pausing("pod4", space, 500, priorityClassName=names[3], affinity=on(node)))
    until(lambda: "pod4" in placed(cluster, space), PATIENCE_S)
    until(lambda: [len(uids) for uids in made.values()] == [2, 2, 1], PATIENCE_S)
    # what fits nowhere now was refused once, and nobody else was preempted for it
    for one in cluster.admin.list(POD, space).items:
        if objects.name(one) not in placed(cluster, space):
            refused(cluster, space, objects.name(one))
    informer.stop()
    assert [len(uids) for uids in made.values()] == [2, 2, 1]
    assert len([one for one in cluster.admin.list(EVENT, space).items if one["reason"] == "Preempted"]) == 2


# --- predicates.go ----------------------------------------------------------------------------------


def test_the_overhead_of_a_runtime_class_counts(cluster: Cluster):
    space, node = cluster.namespace(), node_with(cluster, 1000)
    overhead = {"overhead": {"podFixed": {FAKE: "250"}}, "handler": "runc"}
    cluster.admin.create(RUNTIME_CLASS, {"metadata": {"name": space}, **overhead})
    cluster.admin.create(POD, pausing("filler", space, 700, affinity=on(node)))
    until(lambda: placed(cluster, space), PATIENCE_S)
    cluster.admin.create(POD, pausing("additional", space, 200, affinity=on(node), runtimeClassName=space))
    assert f"1 Insufficient {FAKE}" in refused(cluster, space, "additional")


def unscheduled(cluster: Cluster, space: str) -> list[str]:
    """Return the messages of Events that say why Pods have no node."""
    return [one["message"] for one in cluster.admin.list(EVENT, space).items if one["reason"] == "FailedScheduling"]


def test_a_pod_that_asks_for_more_than_is_left_has_to_wait(cluster: Cluster):
    space, node = cluster.namespace(), node_with(cluster, 10)
    cluster.admin.create(POD, pausing("filler", space, 7, affinity=on(node)))
    until(lambda: placed(cluster, space), PATIENCE_S)
    cluster.admin.create(POD, pausing("additional", space, 5, affinity=on(node)))
    assert f"1 Insufficient {FAKE}" in refused(cluster, space, "additional")
    until(lambda: any("1 Insufficient" in one for one in unscheduled(cluster, space)), PATIENCE_S)


def test_a_selector_that_no_node_matches_keeps_a_pod_waiting(cluster: Cluster):
    space = cluster.namespace()
    cluster.admin.create(POD, pausing("restricted", space, nodeSelector={"label": "nonempty"}))
    assert "didn't match Pod's node affinity/selector" in refused(cluster, space, "restricted")


def with_port(name: str, space: str, node: str, ip: str, protocol: str = "TCP") -> JsonObject:
    port = {"containerPort": 8080, "hostPort": 54321, "protocol": protocol, **({"hostIP": ip} if ip else {})}
    return pausing(name, space, affinity=on(node), ports=[port])


def test_equal_host_ports_go_together_on_other_addresses_and_protocols(cluster: Cluster):
    space, node = cluster.namespace(), cluster.node()
    for name, ip, protocol in (("p1", "127.0.0.1", "TCP"), ("p2", "10.1.2.3", "TCP"), ("p3", "10.1.2.3", "UDP")):
        cluster.admin.create(POD, with_port(name, space, node, ip, protocol))
    until(lambda: len(placed(cluster, space)) == 3, PATIENCE_S)


def test_equal_host_ports_conflict_where_one_is_of_all_addresses(cluster: Cluster):
    space, node = cluster.namespace(), cluster.node()
    cluster.admin.create(POD, with_port("p4", space, node, ""))
    until(lambda: placed(cluster, space), PATIENCE_S)
    cluster.admin.create(POD, with_port("p5", space, node, "10.1.2.3"))
    assert "didn't have free ports for the requested pod ports" in refused(cluster, space, "p5")


def test_four_spread_pods_are_two_on_each_of_two_nodes(cluster: Cluster):
    space, key = cluster.namespace(), f"example.com/{uuid.uuid4().hex[:8]}"
    for value in ("a", "b"):
        node_with(cluster, 10, **{key: value})
    even = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule"}
    even["labelSelector"] = {"matchLabels": {"spread": ""}}
    among = {"matchExpressions": [{"key": key, "operator": "Exists"}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [among]}}
    template = pausing("x", space, labels={"spread": ""}, topologySpreadConstraints=[even],
                       affinity={"nodeAffinity": required})  # fmt: skip
    spec = {"replicas": 4, "selector": {"matchLabels": {"spread": ""}},
            "template": {**template, "metadata": {"labels": {"spread": ""}}}}  # fmt: skip
    cluster.admin.create(REPLICA_SET, {"metadata": {"name": "rs", "namespace": space}, "spec": spec})
    until(lambda: len(placed(cluster, space)) == 4, PATIENCE_S)
    nodes = [*placed(cluster, space).values()]
    assert sorted(nodes.count(each) for each in set(nodes)) == [2, 2]


def test_gated_pods_of_a_replica_set_go_once_they_are_opened(cluster: Cluster):
    space = cluster.namespace()
    cluster.node()
    template = pausing("x", space, labels={"a": "b"}, schedulingGates=[{"name": "foo"}, {"name": "bar"}])
    spec = {
        "replicas": 3,
        "selector": {"matchLabels": {"a": "b"}},
        "template": {**template, "metadata": {"labels": {"a": "b"}}},
    }
    cluster.admin.create(REPLICA_SET, {"metadata": {"name": "rs", "namespace": space}, "spec": spec})

    def gated() -> list[JsonObject]:
        listed = [(one, condition(one, "PodScheduled") or {}) for one in cluster.admin.list(POD, space).items]
        return [one for one, found in listed if found.get("reason") == "SchedulingGated"]

    until(lambda: len(gated()) == 3, PATIENCE_S)
    for one in gated():
        cluster.admin.patch(POD, objects.name(one), space, {"spec": {"schedulingGates": [{"name": "bar"}]}})
    assert placed(cluster, space) == {}
    for one in cluster.admin.list(POD, space).items:
        cluster.admin.patch(POD, objects.name(one), space, {"spec": {"schedulingGates": None}})
    until(lambda: len(placed(cluster, space)) == 3, PATIENCE_S)
