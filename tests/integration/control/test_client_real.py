"""The client, the informer, leader election and Events on the real API server."""

from __future__ import annotations

import queue
import threading
from typing import Any

import pytest

from minik8s_modules.api.errors import AlreadyExists, Conflict, Forbidden, Invalid, NotFound
from minik8s_modules.api.kinds import CONFIG_MAP, EVENT, LEASE, NODE, POD
from minik8s_modules.client.errors import ApiUnreachable
from minik8s_modules.client.informer import Informer
from minik8s_modules.gateway.leases import NodeLeases
from minik8s_modules.runtime.events import EventRecorder
from minik8s_modules.runtime.leader import WAITS, LeaderElector, Token
from tests.integration.control.conftest import Cluster, pod
from tests.support.waiting import until


def config_map(name: str, namespace: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace}, "data": data}


def test_every_verb(cluster: Cluster):
    client, space = cluster.admin, cluster.namespace()
    made = client.create(CONFIG_MAP, config_map("a", space, x="1"))
    with pytest.raises(AlreadyExists):
        client.create(CONFIG_MAP, config_map("a", space))
    client.create(CONFIG_MAP, config_map("planned", space), dry_run=True)
    assert client.get(CONFIG_MAP, "a", space)["data"] == {"x": "1"}
    updated = client.update(CONFIG_MAP, {**made, "data": {"x": "2"}})
    with pytest.raises(Conflict):
        client.update(CONFIG_MAP, {**made, "data": {"x": "3"}})
    client.patch(CONFIG_MAP, "a", space, {"data": {"y": "4"}})
    client.patch(CONFIG_MAP, "a", space, {"data": {"z": "5"}}, patch_type="strategic")
    steps = [{"op": "remove", "path": "/data/y"}]
    assert client.patch(CONFIG_MAP, "a", space, steps, patch_type="json")["data"] == {"x": "2", "z": "5"}
    with pytest.raises(Conflict):
        client.delete(CONFIG_MAP, "a", space, resource_version=updated["metadata"]["resourceVersion"])
    client.delete(CONFIG_MAP, "a", space, uid=made["metadata"]["uid"])
    with pytest.raises(NotFound):
        client.get(CONFIG_MAP, "a", space)
    with pytest.raises(Invalid):
        client.create(CONFIG_MAP, config_map("NOT A NAME", space))
    assert client.raw("GET", "/version").status == 200


def test_lists_page_and_select(cluster: Cluster):
    client, space = cluster.admin, cluster.namespace()
    for number in range(7):
        made = config_map(f"c{number}", space)
        made["metadata"]["labels"] = {"odd": str(number % 2)}
        client.create(CONFIG_MAP, made)
    assert len(client.list(CONFIG_MAP, space, limit=3).items) == 7
    assert len(client.list(CONFIG_MAP, space, label_selector="odd=1").items) == 3
    (found,) = client.list(CONFIG_MAP, space, field_selector="metadata.name=c4").items
    assert (found["kind"], found["metadata"]["name"]) == ("ConfigMap", "c4")
    client.delete_collection(CONFIG_MAP, space)
    assert client.list(CONFIG_MAP, space).items == []


def test_an_informer_follows_over_restarts_of_the_server(cluster: Cluster):
    client, space = cluster.admin, cluster.namespace()
    heard: queue.Queue[tuple[str, str]] = queue.Queue()

    def handler(old: dict[str, Any] | None, new: dict[str, Any] | None) -> None:
        name = (new or old or {})["metadata"]["name"]
        heard.put((name, "gone" if new is None else "changed" if old else "new"))

    informer = Informer(client, CONFIG_MAP, space)
    informer.add_handler(handler)
    informer.start()
    assert informer.wait_synced(60)
    client.create(CONFIG_MAP, config_map("a", space))
    assert heard.get(timeout=60) == ("a", "new")
    cluster.server.stop()
    with pytest.raises(ApiUnreachable):
        client.get(CONFIG_MAP, "a", space)
    cluster.server.start()
    client.patch(CONFIG_MAP, "a", space, {"data": {"x": "1"}})
    client.create(CONFIG_MAP, config_map("b", space))
    client.delete(CONFIG_MAP, "a", space)
    assert [heard.get(timeout=60) for _ in range(3)] == [("a", "changed"), ("b", "new"), ("a", "gone")]
    assert heard.empty()
    informer.stop()


def test_an_informer_with_a_field_selector_sees_pods_leave(cluster: Cluster):
    client, space, node = cluster.admin, cluster.namespace(), cluster.node()
    informer = Informer(client, POD, space, field_selector="spec.nodeName=")
    informer.start()
    assert informer.wait_synced(60)
    client.create(POD, pod("p", space))
    until(lambda: informer.get(space, "p"))
    target = {"metadata": {"name": "p", "namespace": space}, "target": {"kind": "Node", "name": node}}
    client.create(POD, target, subresource="binding")
    until(lambda: informer.get(space, "p") is None)
    informer.stop()


def test_a_lease_is_taken_with_a_token_and_released(cluster: Cluster):
    client = cluster.client("reconciler")
    stop, tokens = threading.Event(), []

    def lead(token: Token, lost: threading.Event) -> None:
        tokens.append(token)
        stop.set()
        assert lost.wait(60)

    annotations = {"minik8s.io/plan-endpoint": "https://127.0.0.1:1"}
    for identity in ("first", "second"):
        stop.clear()
        elector = LeaderElector(client, "minik8s-reconciler-t", identity=identity, fenced=True, annotations=annotations)
        elector.run(stop, lead)
    assert tokens[0] < tokens[1]
    assert tokens[0].epoch > 0
    lease = client.get(LEASE, "minik8s-reconciler-t", "kube-system")
    assert lease["metadata"]["annotations"] == annotations
    assert lease["spec"].get("holderIdentity", "") == ""
    assert lease["spec"]["leaseTransitions"] == 1


def test_a_candidate_of_any_daemon_may_say_that_it_waits(cluster: Cluster):
    client = cluster.client("scheduler")
    first, second = (LeaderElector(client, "test-waits", identity=identity) for identity in ("first", "second"))
    assert first.try_acquire_or_renew()
    assert first.try_acquire_or_renew()
    assert not second.try_acquire_or_renew()
    lease = client.get(LEASE, "test-waits", "kube-system")
    assert (lease["metadata"]["annotations"], lease["spec"]["leaseDurationSeconds"]) == ({WAITS: "second"}, 19)
    with pytest.raises(Conflict):
        first.try_acquire_or_renew()
    assert first.try_acquire_or_renew()
    assert client.get(LEASE, "test-waits", "kube-system")["spec"]["leaseDurationSeconds"] == 11
    first.release()
    assert second.try_acquire_or_renew()


def test_events_are_written_and_counted(cluster: Cluster):
    client, space = cluster.client("scheduler"), cluster.namespace()
    recorder = EventRecorder(client, "default-scheduler")
    subject = cluster.admin.create(POD, pod("p", space))
    for _ in range(3):
        recorder.event(subject, "Warning", "FailedScheduling", "no nodes available to schedule pods")
        recorder.write_one()
    (event,) = cluster.admin.list(EVENT, space).items
    assert (event["count"], event["type"], event["involvedObject"]["uid"]) == (
        3, "Warning", subject["metadata"]["uid"],
    )  # fmt: skip
    assert recorder.dropped == 0


def test_the_gateway_renews_node_leases_and_may_do_little_else(cluster: Cluster):
    client = cluster.client("gateway")
    leases = NodeLeases(client, lambda: ["some-node"])
    leases.renew_all()
    first = cluster.admin.get(LEASE, "some-node", "kube-node-lease")
    leases.renew_all()
    second = cluster.admin.get(LEASE, "some-node", "kube-node-lease")
    assert first["spec"]["leaseDurationSeconds"] == 40
    assert first["spec"]["renewTime"] < second["spec"]["renewTime"]
    assert first["spec"]["acquireTime"] == second["spec"]["acquireTime"]
    with pytest.raises(Forbidden):
        client.list(POD)
    with pytest.raises(Forbidden):
        client.create(NODE, {"metadata": {"name": "mine"}})
