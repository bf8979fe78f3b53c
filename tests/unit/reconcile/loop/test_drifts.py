"""Which steps of a pass are drift, and what is told of them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from minik8s_modules.api.kinds import EVENT
from minik8s_modules.api.objects import JsonObject, Key
from minik8s_modules.reconcile.loop.drift_events import DriftEvents, concerned
from minik8s_modules.reconcile.loop.drift_holds import Hold, holding, holds
from minik8s_modules.reconcile.loop.drifts import Difference, Realized, drifted
from minik8s_modules.reconcile.loop.section_changes import Request, full
from tests.unit.reconcile.loop.test_loop import NAME, Cluster, running, until

EARLIER, LATER = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 0, 5, tzinfo=UTC)
OLD, NEW = {"names": "old"}, {"names": "new"}


def result(*steps: tuple[str, str], errors: tuple[str, ...] = (), due: tuple[str, ...] = ()) -> JsonObject:
    return {
        "steps": [{"action": action, "key": key, "detail": ""} for action, key in steps],
        "errors": {key: {"reason": "NodeError", "message": "no"} for key in errors},
        "due": [{"key": key, "after_s": 1} for key in due],
        "held": [],
    }


def delta(entries: dict[str, Any], *keys: str) -> Request:
    return Request({}, entries, frozenset(keys))


def judged(realized: Realized, entries: dict[str, Any], *steps: tuple[str, str], **more: Any) -> list[str]:
    found = realized.take("dns", full(entries), result(*steps, **more), LATER)
    return [one.key for one in found]


def test_what_a_node_had_and_has_no_more_is_drift():
    realized = Realized()
    realized.take("dns", full({"a": OLD}), result(("set", "a")), EARLIER)
    found = realized.take("dns", full({"a": OLD}), result(("set", "a"), ("write", "a")), LATER)
    assert found == [Difference("dns", "a", "set, write", EARLIER, healed=True)]
    assert judged(realized, {"a": OLD}) == []


def test_the_first_look_at_a_node_tells_no_drift():
    assert judged(Realized(), {"a": OLD}, ("set", "a"), ("remove", "stranger")) == []


@pytest.mark.parametrize("before", [{}, {"a": OLD}, {"b": OLD}])
def test_what_is_newly_declared_changed_or_deleted_is_no_drift(before):
    realized = Realized()
    realized.take("dns", full(before), result(), EARLIER)
    changed = {"a": NEW}
    steps = [("set", "a")] + [("remove", key) for key in before.keys() - changed.keys()]
    assert judged(realized, changed, *steps, ("write", "server")) == []


def test_what_nobody_declared_is_drift():
    realized = Realized()
    realized.take("dns", full({"a": OLD}), result(), EARLIER)
    assert judged(realized, {"a": OLD}, ("remove", "stranger")) == ["stranger"]


def test_what_we_left_ourselves_is_no_drift():
    realized, had = Realized(), {"a": OLD, "server": OLD}
    realized.take("dns", full(had), result(), EARLIER)
    assert judged(realized, had, ("tidy", "stranger"), ("tidy", "server")) == []
    (found,) = realized.take("dns", full(had), result(("tidy", "stranger"), ("remove", "stranger")), LATER)
    assert (found.key, found.what) == ("stranger", "remove")
    realized.take("dns", full(had), {**result(), "held": result(("tidy", "stranger"))["steps"]}, LATER)
    assert realized.held["dns"] == {}


@pytest.mark.parametrize("pending", [{"errors": ("a",)}, {"due": ("a",)}])
def test_what_was_never_realized_is_no_drift(pending):
    realized = Realized()
    realized.take("dns", full({"a": OLD}), result(("set", "a"), **pending), EARLIER)
    assert judged(realized, {"a": OLD}, ("set", "a"), **pending) == []
    assert judged(realized, {"a": OLD}, ("set", "a")) == []
    assert judged(realized, {"a": OLD}, ("set", "a")) == ["a"]


def test_what_was_realized_and_can_be_no_more_is_told_as_not_put_right():
    realized = Realized()
    realized.take("dns", full({"a": OLD}), result(), EARLIER)
    for seen in (EARLIER, LATER):
        found = realized.take("dns", full({"a": OLD}), result(("set", "a"), errors=("a",)), LATER)
        assert found == [Difference("dns", "a", "no", seen, healed=False)]


def test_a_delta_tells_no_drift_and_its_keys_are_known_afterwards():
    realized = Realized()
    realized.take("dns", full({"a": OLD, "b": OLD}), result(), EARLIER)
    entries = {"a": NEW, "c": NEW}
    assert realized.take("dns", delta(entries, "a", "b", "c"), result(("set", "a"), due=("c",)), EARLIER) == []
    assert realized.known() == {"dns": {"a": NEW}}
    assert judged(realized, entries, ("set", "a"), ("set", "c")) == ["a"]


def test_a_shared_file_is_drift_alone_and_not_when_what_it_holds_has_changed():
    had = {"server": OLD, "a": OLD}
    assert drifted("dns", {"server"}, (), had, had) == {"server"}
    assert drifted("dns", {"server", "a"}, (), {**had, "a": NEW}, had) == frozenset()
    # an entry that never works must not hide it
    assert drifted("dns", {"server"}, ("b",), {**had, "b": NEW}, had) == {"server"}


class Told:
    """Keeps Events."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str, str]] = []

    def event(self, obj: JsonObject, kind: str, reason: str, message: str, **more: object) -> None:
        """Keep one."""
        assert not any(more.values())
        self.events.append((obj["metadata"]["name"], kind, reason, message))


def named(name: str) -> JsonObject:
    return {"metadata": {"name": name, "uid": name}}


def test_what_is_held_is_told_since_when_it_was_first_seen_unless_it_is_ignored():
    realized, left = Realized(), {**result(), "held": result(("update", "a"), ("make", "b"))["steps"]}
    entries = {"a": OLD, "b": OLD}
    realized.take("containers", full(entries), result(), EARLIER)
    for _ in range(2):
        asked = full(entries)._replace(ignored=frozenset("b"))
        found = realized.take("containers", asked, left, LATER)
        assert found == [Difference("containers", "a", "update", EARLIER, healed=False, held=True)]
    assert realized.held["containers"].keys() == {"a", "b"}
    assert realized.take("containers", delta(entries, "b"), result(), LATER) == []
    assert realized.held["containers"].keys() == {"a"}
    (healed,) = realized.take("containers", full(entries), result(("update", "a")), LATER)
    assert healed.healed
    assert realized.held["containers"] == {}


def test_whose_policy_a_key_has():
    own: dict[str, JsonObject] = {
        "u": {"metadata": {"annotations": {"minik8s.io/drift": "heal"}}},
        "v": {"metadata": {}},
    }

    def pod(uid: str) -> JsonObject | None:
        return own.get(uid)

    node = {"metadata": {"annotations": {"minik8s.io/drift": "containers=ignore,network=report"}}}
    document: dict[str, Any] = {
        "network": {"pod-network": {}}, "volumes": {"u/data": {}}, "sandboxes": {"v": {}},
        "containers": {"u/app": {}, "v/app": {}},
    }  # fmt: skip
    network = frozenset({"pod-network"})
    app = frozenset({"v/app"})
    assert holds(node, pod, document) == {"network": Hold(network), "containers": Hold(app, app)}
    assert holds(node, pod, document, healing=True) == {"containers": Hold(app, app)}
    asked = holding(full(document["containers"]), Hold(app, app))
    assert (asked.options["hold"], asked.ignored) == (["v/app"], app)
    assert holding(delta(document["containers"], "u/app"), Hold(app, app)).options == {}


def test_the_node_hears_of_a_section_once_and_each_object_of_its_own():
    outcome = Told()
    found = [Difference("services", f"shop/{name}:80", "set x", EARLIER, healed=True) for name in "ab"]
    found.append(Difference("volumes", "uid/data", "make /p", None, healed=False))
    event_writer = DriftEvents(outcome, lambda _, key: [named(key.partition(":")[0])], named)
    event_writer.tell("n1", found)
    put_right = "changed after 2026-01-01T00:00:00Z by somebody else, put right by minik8s_services:"
    assert outcome.events == [
        ("n1", "Normal", "DriftHealed", f"services: {put_right} shop/a:80: set x; shop/b:80: set x"),
        ("shop/a", "Normal", "DriftHealed", f"node n1: services: {put_right} shop/a:80: set x"),
        ("shop/b", "Normal", "DriftHealed", f"node n1: services: {put_right} shop/b:80: set x"),
        (
            "n1", "Warning", "DriftFound",
            "volumes: changed at an unknown time by somebody else, not put right: uid/data: make /p",
        ),
        (
            "uid/data", "Warning", "DriftFound",
            "node n1: volumes: changed at an unknown time by somebody else, not put right: uid/data: make /p",
        ),
    ]  # fmt: skip


def test_a_node_that_lost_everything_does_not_flood():
    outcome = Told()
    found = [Difference("services", f"shop/s{number}:80", "set", EARLIER, healed=True) for number in range(500)]
    DriftEvents(outcome, lambda _, key: [named(key)], named).tell("n1", found)
    assert len(outcome.events) == 21
    assert outcome.events[0][3].endswith("and 495 more")


@pytest.mark.parametrize(
    ("section", "key", "names"),
    [
        ("volumes", "uid/data", ["pod uid"]),
        ("sandboxes", "uid", ["pod uid"]),
        ("containers", "gone/app", []),
        ("services", "shop/web:80", ["service shop/web"]),
        ("services", "dataplane", []),
        ("dns", "service/shop/web", ["service shop/web"]),
        ("dns", "host/a.test", ["host a.test"]),
        ("dns", "server", []),
        ("ingress", "a.test", ["host a.test"]),
        ("ingress", "_server", []),
        ("network", "pod-network", []),
        ("secrets", "shop/s", []),
    ],
)
def test_whose_a_key_is(section, key, names):
    def pod(uid: str) -> JsonObject | None:
        return named(f"pod {uid}") if uid != "gone" else None

    def service(at: Key) -> JsonObject:
        return named(f"service {at.namespace}/{at.name}")

    found = concerned(section, key, pod, service, lambda host: [named(f"host {host}")])
    assert [one["metadata"]["name"] for one in found] == names


@pytest.fixture
def cluster():
    made = Cluster()
    made.start()
    yield made
    made.stop()


def test_what_a_full_observation_put_right_is_an_event_of_pod_and_node(cluster: Cluster):
    uid = cluster.create()["metadata"]["uid"]
    until(lambda: running(cluster))
    cluster.node.meddled["containers"] = [{"action": "update", "key": f"{uid}/app", "detail": "memory"}]
    assert cluster.service is not None
    until(lambda: cluster.node.meddled == {"containers": []} or observed(cluster))
    until(lambda: {("Pod", "web"), ("Node", NAME)} <= told_of(cluster))


def test_what_somebody_does_with_docker_is_looked_at_at_once(cluster: Cluster):
    uid = cluster.create()["metadata"]["uid"]
    until(lambda: running(cluster))
    cluster.node.meddled["containers"] = [{"action": "update", "key": f"{uid}/app", "detail": "memory"}]

    def updated() -> bool:
        cluster.node.event("update", cluster.node.find("app"))
        return ("Pod", "web") in told_of(cluster)

    until(updated)


def observed(cluster: Cluster) -> bool:
    """Ask for an observation; False, for this is no condition."""
    assert cluster.service is not None
    node = {"metadata": {"name": NAME}}
    asked = {"metadata": {"name": NAME, "annotations": {"minik8s.io/observe": str(len(cluster.node.calls))}}}
    cluster.service.loop.on_node(node, asked)
    return False


def told_of(cluster: Cluster) -> set[tuple[str, str]]:
    events = cluster.api.list(EVENT).items
    return {
        (one["involvedObject"]["kind"], one["involvedObject"]["name"])
        for one in events
        if one["reason"] == "DriftHealed" and "update memory" in one["message"]
    }
