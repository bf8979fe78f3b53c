"""Nodes of virtual nodes: made, kept alive, told; ported from virtual-kubelet's ``node/node_test.go``."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.kinds import LEASE, NODE
from minik8s_modules.api.merging.strategic_merge import strategic_merge
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import SystemClock
from minik8s_modules.base.metrics import Registry
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.runtime.queue_metrics import QueueMetrics
from minik8s_modules.virtual.contract import NoResources
from minik8s_modules.virtual.figures import Figures
from minik8s_modules.virtual.nodes.controller import LEASE_NAMESPACE, Carried, NodeController, Timing
from minik8s_modules.virtual.nodes.declared import Wishes, new_node, with_heartbeat
from minik8s_modules.virtual.nodes.patching import LAST_STATUS, node_patch
from minik8s_modules.virtual.provider import InitConfig, NodeCallback
from minik8s_modules.virtual.providers.mock import Mock
from tests.support.waiting import until

NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"
WISHES = Wishes("far", "mock", internal_ip="192.0.2.7", port=10250)


class Pinged(Mock):
    """A mock whose ping may fail or hang."""

    def __init__(self) -> None:
        super().__init__(InitConfig("far", NoResources()))
        self.error: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.under_way = self.most_under_way = self.pings = 0
        self.notify: NodeCallback = lambda _: None

    def ping(self) -> None:
        """Count, wait for the gate, and raise what is to be raised."""
        self.pings += 1
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        self.gate.wait()
        self.under_way -= 1
        if self.error is not None:
            raise self.error

    def notify_node_status(self, notify: NodeCallback) -> None:
        """Remember whom to tell."""
        self.notify = notify


class Kept:
    """A controller of one node ``far`` over an API in memory."""

    def __init__(self) -> None:
        self.api, self.provider = FakeApi(SystemClock()), Pinged()
        registry = Registry()
        self.wanted = self.provider.configure_node(new_node(WISHES, NOW))
        self.controller = NodeController(
            self.api,
            {"far": Carried(self.wanted, self.provider)},
            SystemClock(),
            Figures(registry),
            QueueMetrics(registry),
            Timing(ping_s=0.05, status_s=0.05, lease_s=1),
        )

    def node(self) -> JsonObject | None:
        """Return the Node, None where there is none."""
        try:
            return self.api.get(NODE, "far")
        except NotFound:
            return None

    def renewed(self) -> str:
        """Return when the Lease was renewed, "" where there is none."""
        try:
            return str(self.api.get(LEASE, "far", LEASE_NAMESPACE)["spec"]["renewTime"])
        except NotFound:
            return ""


@contextmanager
def kept() -> Iterator[Kept]:
    made = Kept()
    made.controller.start()
    try:
        yield made
    finally:
        made.provider.gate.set()
        made.controller.stop()


def test_a_node_is_registered_and_its_lease_is_the_nodes() -> None:
    with kept() as world:
        until(world.renewed)
        node = world.node()
        assert node is not None
        assert objects.labels(node)["type"] == "virtual-kubelet"
        assert node["spec"]["taints"] == [
            {"key": "virtual-kubelet.io/provider", "value": "mock", "effect": "NoSchedule"}
        ]
        assert node["status"]["capacity"]["cpu"] == "20"
        assert node["status"]["daemonEndpoints"] == {"kubeletEndpoint": {"Port": 10250}}
        lease = world.api.get(LEASE, "far", LEASE_NAMESPACE)
        assert lease["spec"]["holderIdentity"] == "far"
        assert lease["metadata"]["ownerReferences"][0]["uid"] == objects.uid(node)
        before = world.renewed()
        until(lambda: world.renewed() != before)


def test_a_provider_that_does_not_answer_silences_its_node() -> None:
    with kept() as world:
        until(world.renewed)
        world.provider.error = ConnectionError("away")
        until(lambda: not world.controller.is_answering("far"))
        pings = world.provider.pings
        until(lambda: world.provider.pings > pings + 2)  # what was under way is over
        before = world.renewed()
        until(lambda: world.provider.pings > pings + 8)
        assert world.renewed() == before
        world.provider.error = None
        until(lambda: world.renewed() != before)


def test_a_ping_that_hangs_is_the_only_one_under_way() -> None:
    with kept() as world:
        until(world.renewed)
        world.provider.gate.clear()
        until(lambda: world.provider.under_way == 1)
        until(lambda: not world.controller.is_answering("far"))
        assert world.provider.most_under_way == 1


def test_a_node_that_somebody_deleted_is_registered_again() -> None:
    with kept() as world:
        until(world.renewed)
        before = objects.uid(world.node() or {})
        world.api.delete(NODE, "far")
        until(lambda: objects.uid(world.node() or {}) not in {"", before})
        until(
            lambda: (
                objects.dig(world.api.get(LEASE, "far", LEASE_NAMESPACE), "metadata", "ownerReferences", 0, "uid")
                == objects.uid(world.node() or {})
            )
        )


def test_what_the_provider_tells_of_the_node_replaces_what_it_told_before() -> None:
    with kept() as world:
        until(world.node)
        fields = {**world.wanted, "status": {**world.wanted["status"], "capacity": {"cpu": "1"}}}
        fields["metadata"] = {**fields["metadata"], "labels": {"type": "virtual-kubelet", "zone": "b"}}
        world.provider.notify(fields)
        until(lambda: objects.labels(world.node() or {}).get("zone") == "b")
        until(lambda: objects.dig(world.node(), "status", "capacity", "cpu") == "1")
        assert "kubernetes.io/role" not in objects.labels(world.node() or {})


# ------------------------------------------------------------------ what is patched


def _applied(wanted: JsonObject, current: JsonObject) -> JsonObject:
    """Return ``current`` after both patches, by the API server's own code."""
    patch = node_patch(wanted, current)
    patched = strategic_merge(NODE, current, patch.meta) if patch.meta else current
    return strategic_merge(NODE, patched, {"status": patch.status}) if patch.status else patched


def test_others_conditions_labels_and_annotations_stay() -> None:
    """TestManualConditionsPreserved, TestBeforeAnnotationsPreserved."""
    wanted = new_node(WISHES, NOW)
    node = _applied(wanted, {**wanted, "metadata": {"name": "far", "labels": {"mine": "1"}, "annotations": {"a": "b"}}})
    node["status"]["conditions"].append({"type": "Mine", "status": "True"})
    again = _applied(with_heartbeat(wanted, node, LATER), node)
    assert objects.condition(again, "Mine") == {"type": "Mine", "status": "True"}
    assert (objects.labels(again)["mine"], objects.annotations(again)["a"]) == ("1", "b")
    ready = objects.condition(again, "Ready") or {}
    assert (ready["lastHeartbeatTime"], ready["lastTransitionTime"]) == (LATER, NOW)


def test_what_was_told_and_is_no_more_goes() -> None:
    wanted = new_node(WISHES._replace(labels={"zone": "a"}), NOW)
    wanted["status"]["conditions"].append({"type": "Licence", "status": "True"})
    wanted["status"]["capacity"] = {"cpu": "1", "example.com/gpu": "2"}
    node = _applied(wanted, {**wanted})
    less = new_node(WISHES, NOW)
    less["status"]["capacity"] = {"cpu": "1"}
    again = _applied(less, node)
    assert objects.condition(again, "Licence") is None
    assert "zone" not in objects.labels(again)
    assert again["status"]["capacity"] == {"cpu": "1"}


def test_a_heartbeat_changes_nothing_but_times() -> None:
    wanted = new_node(WISHES, NOW)
    node = _applied(wanted, {**wanted})
    patch = node_patch(with_heartbeat(wanted, node, LATER), node)
    assert patch.meta == {}
    assert patch.status.keys() == {"conditions"}
    assert all(each.keys() == {"type", "lastHeartbeatTime"} for each in patch.status["conditions"])


@pytest.mark.parametrize("text", ["no json", "[1]", ""])
def test_an_annotation_that_cannot_be_read_counts_as_nothing(text: str) -> None:
    wanted = new_node(WISHES, NOW)
    node = {**wanted, "metadata": {"name": "far", "annotations": {LAST_STATUS: text}}}
    assert _applied(wanted, node)["status"] == wanted["status"]
