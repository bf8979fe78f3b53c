"""The loop with an API, a runner, a gateway and a node in memory."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from minik8s_modules.api.errors import NotFound, ServiceUnavailable
from minik8s_modules.api.kinds import CONFIG_MAP, EVENT, NODE, POD, POD_ADDRESS, SECRET, Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import SystemClock
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.module_utils.minik8s.core.sections import SECTIONS
from minik8s_modules.reconcile.executor.fake_runner import FakeRunner
from minik8s_modules.reconcile.housekeeping.policies import NO_POLICIES
from minik8s_modules.reconcile.service import Outside, ShardService
from minik8s_modules.reconcile.values.items import OnOutcome
from minik8s_modules.reconcile.values.values import Settings
from tests.unit.reconcile.fake_node import FakeNode, Killed
from tests.unit.reconcile.worlds import IMAGE, PAUSE

NAME = "n1"


class FakeLink:
    """A gateway in memory for one node."""

    def __init__(self, node: FakeNode, on_message: Callable[[JsonObject], None], on_up: Callable[[bool], None]) -> None:
        self.node, self.on_message, self.on_up = node, on_message, on_up
        self.sent: list[JsonObject] = []
        self.cancelled: list[str] = []
        self.relists = 0
        self.up = False

    def start(self) -> None:
        """Connect and tell the state."""
        self.up = True
        self.on_up(True)  # noqa: FBT003 - the link's callback
        self.on_message({"op": "alive", "node": self.node.name, "alive": True})
        self.on_message(self.node.state())
        self.node.tell = self.on_message

    def stop(self) -> None:
        """Disconnect."""
        self.node.tell = lambda _message: None
        self.up = False

    def cut(self) -> None:
        """Lose the connection."""
        self.stop()
        self.on_up(False)  # noqa: FBT003

    def send(self, message: JsonObject) -> bool:
        """Take a request."""
        if self.up and message["op"] == "pull":
            self.sent.append(dict(message))
        if self.up and message["op"] == "cancel":
            self.cancelled.append(message["id"])
        if self.up and message["op"] == "relist":
            self.relists += 1
            threading.Timer(0.01, lambda: self.up and self.on_message(self.node.state())).start()
        return self.up

    def answer(self, *, ok: bool, message: str = "") -> None:
        """Answer the last pull."""
        pull = self.sent[-1]
        reason = "" if ok else "ErrImagePull"
        if ok:
            self.node.images.append(pull["image"])  # a list that is under way must not take it back
        answer = {"ok": ok, "image_id": "sha256:2", "reason": reason, "message": message}
        self.on_message({"op": "pulled", "id": pull["id"], "node": pull["node"], "image": pull["image"], **answer})


class Cluster:
    """A reconciler with one node; ``restart`` loses all memory of it."""

    def __init__(self) -> None:
        self.clock = SystemClock()
        self.api = FakeApi(self.clock)
        self.node = FakeNode(NAME, [IMAGE, PAUSE])
        self.fenced = 0
        self.token = 1
        self.full_every_s = 300.0
        self.settings = Settings(hmac_key=b"test key")
        self.policies = NO_POLICIES
        self.service: ShardService | None = None

    def start(self) -> None:
        """Start a reconciler."""
        outside = Outside(self.api, self._runner, self._make_link, self.clock)
        self.service = ShardService(
            outside, [NAME], (1, self.token), self.settings, lambda: self.full_every_s, self._on_fenced, self.policies
        )
        self.service.start()

    def stop(self) -> None:
        """End it."""
        if self.service is not None:
            self.service.stop()
            self.service = None

    def restart(self) -> None:
        """Lose all memory."""
        self.stop()
        self.token += 1
        self.start()

    def _on_fenced(self) -> None:
        self.fenced += 1

    def _runner(self, on_outcome: OnOutcome) -> FakeRunner:
        return FakeRunner([NAME], self.node.realize, on_outcome)

    def _make_link(self, on_message: Callable[[JsonObject], None], on_up: Callable[[bool], None]) -> FakeLink:
        self.link = FakeLink(self.node, on_message, on_up)
        return self.link

    def create(self, name: str = "web", **spec: Any) -> JsonObject:
        """Create a bound pod."""
        spec = {"restartPolicy": "Always", "nodeName": NAME, "containers": [{"name": "app", "image": IMAGE}], **spec}
        metadata = {"name": name, "namespace": "default"}
        return self.api.create(POD, {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}})

    def pod(self, name: str = "web") -> JsonObject:
        """Return the pod."""
        return self.api.get(POD, name, "default")

    def phase(self, name: str = "web") -> str:
        """Return its phase."""
        return str(self.pod(name)["status"].get("phase"))

    def container(self, name: str = "web", index: int = 0) -> JsonObject:
        """Return a container's status."""
        statuses = self.pod(name)["status"].get("containerStatuses") or [{"state": {}, "restartCount": -1}]
        return dict(statuses[index])

    def waiting(self, name: str = "web") -> str:
        """Return why the container waits."""
        return str(self.container(name)["state"].get("waiting", {}).get("reason", ""))

    def events(self) -> list[str]:
        """Return the events."""
        return [f"{one['reason']}: {one['message']}" for one in self.api.list(EVENT).items]

    def addresses(self) -> list[str]:
        """Return the claimed addresses."""
        return sorted(one["metadata"]["name"] for one in self.api.list(POD_ADDRESS).items)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    made.start()
    yield made
    made.stop()


def until(condition: Callable[[], Any], timeout_s: float = 60.0) -> None:
    """Wait until ``condition`` holds; an error of it counts as not yet."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        try:
            if condition():
                return
        except (NotFound, ServiceUnavailable, KeyError, ValueError, IndexError):
            pass
        time.sleep(0.005)
    assert condition(), "not reached in time"


def rests(cluster: Cluster) -> bool:
    """Return whether the node is told nothing, and no status is written, for longer than both take."""
    calls, writes = len(cluster.node.calls), len(cluster.api.calls)
    time.sleep(0.3)
    later = [call for call in cluster.api.calls[writes:] if call[0] == "patch"]
    return len(cluster.node.calls) == calls and not later


def running(cluster: Cluster, name: str = "web") -> bool:
    return cluster.phase(name) == "Running" and bool(cluster.container(name)["ready"])


def test_a_host_becomes_a_node(cluster: Cluster):
    until(lambda: cluster.api.get(NODE, NAME)["status"]["conditions"])
    node = cluster.api.get(NODE, NAME)
    assert node["spec"]["podCIDR"] == "10.244.0.0/24"
    assert node["metadata"]["labels"]["kubernetes.io/hostname"] == NAME
    assert node["status"]["addresses"][0] == {"type": "InternalIP", "address": "192.0.2.10"}
    assert node["status"]["conditions"][0]["status"] == "True"


def test_a_dead_node_is_not_ready_and_comes_back(cluster: Cluster):
    until(lambda: cluster.api.get(NODE, NAME)["status"]["conditions"][0]["status"] == "True")
    cluster.link.on_message({"op": "alive", "node": NAME, "alive": False})
    until(lambda: cluster.api.get(NODE, NAME)["status"]["conditions"][0]["status"] == "Unknown")
    until(lambda: rests(cluster))
    calls = len(cluster.node.calls)
    cluster.create()
    time.sleep(0.1)
    assert len(cluster.node.calls) == calls
    cluster.link.on_message({"op": "alive", "node": NAME, "alive": True})
    until(lambda: running(cluster))


def test_a_node_that_is_back_is_listed_before_anything_is_said_of_its_pods(cluster: Cluster, monkeypatch: Any):
    cluster.create()
    until(lambda: running(cluster))
    cluster.link.on_message({"op": "alive", "node": NAME, "alive": False})
    until(lambda: cluster.api.get(NODE, NAME)["status"]["conditions"][0]["status"] == "Unknown")
    # its power is cut: nobody tells that the container has ended
    tell, cluster.node.tell = cluster.node.tell, lambda _message: None
    cluster.link.up = False  # nor is a list under way
    cluster.node.die(cluster.node.find("app")["id"], 137)
    cluster.node.tell = tell
    unready = [{"type": "Ready", "status": "False"}]
    cluster.api.patch(POD, "web", "default", {"status": {"conditions": unready}}, subresource="status")
    asked: list[JsonObject] = []

    def held_back(message: JsonObject) -> bool:
        asked.append(message)
        return True

    with monkeypatch.context() as held:
        held.setattr(cluster.link, "send", held_back)
        cluster.link.on_message({"op": "alive", "node": NAME, "alive": True})
        assert {"op": "relist", "node": NAME} in asked
        time.sleep(0.3)
        assert cluster.pod()["status"]["conditions"] == unready
    cluster.link.up = True
    cluster.link.on_message(cluster.node.state())
    until(lambda: cluster.container()["restartCount"] == 1 and running(cluster))
    until(lambda: cluster.api.get(NODE, NAME)["status"]["conditions"][0]["status"] == "True")


def test_a_node_that_is_back_is_asked_again_what_it_is(cluster: Cluster):
    def status() -> JsonObject:
        found: JsonObject = cluster.api.get(NODE, NAME)["status"]
        return found

    until(lambda: status()["conditions"][0]["status"] == "True")
    cluster.link.on_message({"op": "alive", "node": NAME, "alive": False})
    until(lambda: status()["conditions"][0]["status"] == "Unknown")
    cluster.node.facts |= {"boot_id": "second", "huge_pages": {"2097152": 8 << 20}}
    cluster.link.on_message({"op": "alive", "node": NAME, "alive": True})
    until(lambda: status()["nodeInfo"]["bootID"] == "second")
    assert status()["allocatable"]["hugepages-2Mi"] == "8Mi"


def test_a_bound_pod_runs_and_says_so(cluster: Cluster):
    cluster.create()
    until(lambda: running(cluster))
    status = cluster.pod()["status"]
    assert status["podIP"] == "10.244.0.2"
    assert status["hostIP"] == "192.0.2.10"
    assert cluster.addresses() == ["10.244.0.2"]
    assert {one["type"]: one["status"] for one in status["conditions"]}["Ready"] == "True"
    until(lambda: "Started: Started container app" in cluster.events())
    assert "Created: Created container: app" in cluster.events()
    assert all(one["source"] == {"component": "kubelet", "host": "n1"} for one in cluster.api.list(EVENT).items)
    assert f'Pulled: Container image "{IMAGE}" already present on machine' in cluster.events()


def test_a_pod_that_runs_causes_no_more_items_and_writes(cluster: Cluster):
    cluster.create()
    until(lambda: running(cluster))
    until(lambda: rests(cluster))


def test_a_patch_that_concerns_no_status_causes_no_write_of_one(cluster: Cluster):
    cluster.create()
    until(lambda: running(cluster))
    until(lambda: rests(cluster))
    cluster.api.patch(POD, "web", "default", {"metadata": {"labels": {"a": "b"}}})
    writes = len(cluster.api.calls)
    cluster.create("later")  # once it runs, the patch has been seen
    until(lambda: running(cluster, "later"))
    assert [call for call in cluster.api.calls[writes:] if call[0] == "patch" and "web" in call] == []


def test_a_second_pod_is_sent_as_a_delta_of_the_sections_it_has(cluster: Cluster):
    cluster.create("one")
    until(lambda: running(cluster, "one"))
    until(lambda: rests(cluster))
    calls = len(cluster.node.calls)
    cluster.create("two")
    until(lambda: running(cluster, "two"))
    assert cluster.node.calls[calls:] == [("sandboxes", "delta"), ("containers", "delta")]


def test_thirty_pods_at_once_run_with_thirty_addresses(cluster: Cluster):
    for number in range(30):
        cluster.create(f"web-{number}")
    until(lambda: all(running(cluster, f"web-{number}") for number in range(30)), 60)
    assert len(cluster.addresses()) == 30
    assert cluster.node.double_starts == 0


def test_a_container_that_dies_is_restarted_and_counted(cluster: Cluster):
    cluster.create()
    until(lambda: running(cluster))
    cluster.node.die(cluster.node.find("app")["id"], 3)
    until(lambda: cluster.container()["restartCount"] == 1 and running(cluster))
    assert cluster.container()["lastState"]["terminated"]["exitCode"] == 3
    cluster.node.die(cluster.node.find("app")["id"], 3)
    until(lambda: cluster.waiting() == "CrashLoopBackOff")
    assert cluster.phase() == "Running"
    until(lambda: any(one.startswith("BackOff: Back-off restarting failed container app") for one in cluster.events()))


def test_a_removed_container_comes_back(cluster: Cluster):
    cluster.create()
    until(lambda: running(cluster))
    cluster.node.destroy(cluster.node.find("app")["id"])
    until(lambda: cluster.container()["restartCount"] == 1 and running(cluster))


def test_a_pod_that_ended_is_succeeded_and_gives_its_address_back(cluster: Cluster):
    cluster.create(restartPolicy="Never")
    until(lambda: running(cluster))
    cluster.node.die(cluster.node.find("app")["id"], 0)
    until(lambda: cluster.phase() == "Succeeded")
    until(lambda: cluster.addresses() == [])
    assert [one["container"] for one in cluster.node.containers.values()] == ["app"]


def test_a_deleted_pod_gets_its_grace_then_goes_with_its_address(cluster: Cluster):
    cluster.create(terminationGracePeriodSeconds=7)
    until(lambda: running(cluster))
    cluster.api.delete(POD, "web", "default")
    until(lambda: cluster.node.stopped)
    assert [grace_s for _, grace_s in cluster.node.stopped] == [7]
    assert cluster.node.running() == {"": 0, "app": 0}
    cluster.node.die(cluster.node.find("app")["id"], 143)
    until(lambda: cluster.api.list(POD).items == [])
    until(lambda: cluster.node.containers == {})
    until(lambda: cluster.addresses() == [])
    until(lambda: "Killing: Stopping container app" in cluster.events())


def test_a_pod_deleted_by_force_leaves_nothing(cluster: Cluster):
    cluster.create()
    until(lambda: running(cluster))
    cluster.api.delete(POD, "web", "default", grace_s=0)
    until(lambda: not cluster.node.containers)
    until(lambda: cluster.addresses() == [])


def test_a_pod_of_the_same_name_is_another_pod(cluster: Cluster):
    first = cluster.create()
    until(lambda: running(cluster))
    cluster.api.delete(POD, "web", "default", grace_s=0)
    second = cluster.create()
    until(lambda: running(cluster))
    assert {one["pod_uid"] for one in cluster.node.containers.values()} <= {
        first["metadata"]["uid"],
        second["metadata"]["uid"],
    }
    until(lambda: {one["pod_uid"] for one in cluster.node.containers.values()} == {second["metadata"]["uid"]})


def test_a_missing_image_is_pulled_and_a_failure_named(cluster: Cluster):
    cluster.create(containers=[{"name": "app", "image": "example.com/x:1"}])
    until(lambda: cluster.link.sent)
    assert cluster.link.sent[0]["image"] == "example.com/x:1"
    until(lambda: cluster.waiting() == "ContainerCreating")
    cluster.link.answer(ok=False, message="no such host")
    until(lambda: cluster.waiting() == "ErrImagePull")
    until(lambda: cluster.waiting() == "ImagePullBackOff")
    until(lambda: 'Pulling: Pulling image "example.com/x:1"' in cluster.events())
    assert 'Failed: Failed to pull image "example.com/x:1": no such host' in cluster.events()
    cluster.link.on_message({"op": "images", "node": NAME, "images": [IMAGE, PAUSE, "example.com/x:1"]})
    until(lambda: running(cluster))


def test_a_pulled_image_starts_its_container(cluster: Cluster):
    cluster.create(containers=[{"name": "app", "image": "example.com/x:1"}])
    until(lambda: cluster.link.sent)
    cluster.link.answer(ok=True)
    until(lambda: running(cluster))
    until(lambda: 'Pulled: Successfully pulled image "example.com/x:1"' in cluster.events())


def test_a_broken_off_pull_is_asked_for_again(cluster: Cluster):
    cluster.create(containers=[{"name": "app", "image": "example.com/x:1"}])
    until(lambda: cluster.link.sent)
    cluster.link.cut()
    cluster.link.start()
    until(lambda: len(cluster.link.sent) == 2)


def test_a_pull_that_no_pod_waits_for_is_broken_off(cluster: Cluster):
    def wants(name: str, image: str) -> None:
        cluster.create(name, containers=[{"name": "app", "image": image}])
        until(lambda: cluster.waiting(name) == "ContainerCreating")

    wants("first", "example.com/shared:1")
    wants("second", "example.com/shared:1")
    wants("alone", "example.com/stalls:1")
    assert [pull["image"] for pull in cluster.link.sent] == ["example.com/shared:1", "example.com/stalls:1"]
    cluster.api.delete(POD, "first", "default", grace_s=0)
    cluster.api.delete(POD, "alone", "default", grace_s=0)
    until(lambda: cluster.link.cancelled)
    assert cluster.link.cancelled == [cluster.link.sent[1]["id"]], "second still waits for the shared image"
    wants("again", "example.com/stalls:1")
    until(lambda: len(cluster.link.sent) == 3)


def test_init_containers_run_in_order(cluster: Cluster):
    cluster.create(initContainers=[{"name": "one", "image": IMAGE}, {"name": "two", "image": IMAGE}])
    until(lambda: cluster.node.running() == {"": 0, "one": 0})
    until(lambda: cluster.waiting() == "PodInitializing")
    cluster.node.die(cluster.node.find("one")["id"], 0)
    until(lambda: cluster.node.running() == {"": 0, "two": 0})
    cluster.node.die(cluster.node.find("two")["id"], 0)
    until(lambda: running(cluster))


def test_a_config_map_that_comes_later_starts_the_container(cluster: Cluster):
    cluster.create(containers=[{"name": "app", "image": IMAGE, "envFrom": [{"configMapRef": {"name": "settings"}}]}])
    until(lambda: cluster.waiting() == "CreateContainerConfigError")
    cluster.api.create(CONFIG_MAP, {"metadata": {"name": "settings", "namespace": "default"}, "data": {"A": "1"}})
    until(lambda: running(cluster))
    uid = cluster.pod()["metadata"]["uid"]
    assert cluster.node.documents["containers"][f"{uid}/app"]["env"] == [["A", "1"]]


def test_a_changed_config_map_leaves_the_running_container_alone(cluster: Cluster):
    made = {"metadata": {"name": "settings", "namespace": "default"}, "data": {"A": "1"}}
    cluster.api.create(CONFIG_MAP, made)
    cluster.create(containers=[{"name": "app", "image": IMAGE, "envFrom": [{"configMapRef": {"name": "settings"}}]}])
    until(lambda: running(cluster))
    until(lambda: rests(cluster))
    calls = len(cluster.node.calls)
    cluster.api.patch(CONFIG_MAP, "settings", "default", {"data": {"A": "2"}})
    time.sleep(0.2)
    assert len(cluster.node.calls) == calls


def test_secret_values_travel_only_in_the_blob(cluster: Cluster):
    secret = {"metadata": {"name": "s", "namespace": "default"}, "data": {"password": "aHVudGVyMg=="}}
    cluster.api.create(SECRET, secret)
    cluster.create(containers=[{"name": "app", "image": IMAGE, "envFrom": [{"secretRef": {"name": "s"}}]}])
    until(lambda: running(cluster))
    assert "hunter2" not in json.dumps(cluster.node.documents)
    assert "aHVudGVyMg" not in json.dumps(cluster.node.documents)
    blobs = [json.loads(base64.b64decode(one)) for one in cluster.node.secret_blobs]
    assert {"default/s": {"password": "aHVudGVyMg=="}} in blobs


def test_a_restarted_reconciler_adopts_what_runs(cluster: Cluster):
    cluster.create()
    until(lambda: running(cluster))
    before = sorted(cluster.node.containers)
    cluster.restart()
    until(lambda: ("containers", "full") in cluster.node.calls[-len(SECTIONS) :])
    time.sleep(0.1)
    assert sorted(cluster.node.containers) == before
    assert cluster.container()["restartCount"] == 0
    assert cluster.addresses() == ["10.244.0.2"]


def test_what_happened_while_nobody_looked_is_seen_after_a_restart(cluster: Cluster):
    cluster.create()
    cluster.create("other")
    until(lambda: running(cluster) and running(cluster, "other"))
    cluster.stop()
    uid = cluster.pod()["metadata"]["uid"]
    cluster.node.die(cluster.node.find("app", uid)["id"], 3)
    cluster.api.delete(POD, "other", "default", grace_s=0)
    cluster.restart()
    until(lambda: cluster.container()["restartCount"] == 1 and running(cluster))
    until(lambda: {one["pod_uid"] for one in cluster.node.containers.values()} == {uid})
    until(lambda: cluster.addresses() == [cluster.pod()["status"]["podIP"]])


def test_a_module_that_dies_is_tried_again(cluster: Cluster):
    cluster.node.effects_left = 1
    cluster.create()
    until(lambda: len(cluster.node.containers) == 1)
    cluster.node.effects_left = None
    until(lambda: running(cluster))
    assert cluster.node.double_starts == 0


def test_an_error_of_one_key_is_told_and_tried_again(cluster: Cluster):
    until(lambda: cluster.api.get(NODE, NAME))
    created = cluster.create()
    uid = created["metadata"]["uid"]
    cluster.node.errors[f"{uid}/app"] = {"reason": "CreateContainerError", "message": "no space left"}
    cluster.create("other")
    until(lambda: cluster.waiting() == "CreateContainerError" or running(cluster))
    until(lambda: running(cluster, "other"))
    cluster.node.errors.clear()
    until(lambda: running(cluster))


def test_a_node_with_a_foreign_base_gets_everything(cluster: Cluster):
    cluster.create()
    until(lambda: running(cluster))
    cluster.node.documents["containers"] = {}
    cluster.create("other")
    until(lambda: running(cluster, "other"))
    assert ("containers", "full") in cluster.node.calls[-2:]
    assert len(cluster.node.documents["containers"]) == 2


def test_a_fenced_reconciler_gives_the_shard_up(cluster: Cluster):
    cluster.create()
    until(lambda: running(cluster))
    cluster.node.token = [1, 99]
    cluster.create("other")
    until(lambda: cluster.fenced)
    until(lambda: rests(cluster))
    assert cluster.phase("other") == "Pending"


def test_a_status_write_that_fails_is_not_lost(cluster: Cluster):
    until(lambda: cluster.api.get(NODE, NAME)["status"]["conditions"])
    cluster.create()
    cluster.api.fail(*[ServiceUnavailable("down") for _ in range(12)])
    until(lambda: running(cluster), 60)


def test_a_status_somebody_overwrote_is_put_right(cluster: Cluster):
    cluster.create()
    until(lambda: running(cluster))
    cluster.api.patch(POD, "web", "default", {"status": {"phase": "Pending", "podIP": None}}, subresource="status")
    until(lambda: running(cluster) and cluster.pod()["status"]["podIP"] == "10.244.0.2")


def test_the_address_is_claimed_while_the_token_is_asked_for(cluster: Cluster):
    answered, create = threading.Event(), cluster.api.create

    def slow_tokens(kind: Kind, obj: Mapping[str, Any], **options: Any) -> JsonObject:
        if options.get("subresource") != "token":
            return create(kind, obj, **options)
        assert answered.wait(20)
        return {"spec": {"expirationSeconds": 1000}, "status": {"token": "t"}}

    cluster.api.create = slow_tokens  # type: ignore[method-assign]
    source = {"projected": {"sources": [{"serviceAccountToken": {"path": "token", "expirationSeconds": 1000}}]}}
    cluster.create(volumes=[{"name": "account", **source}])
    until(lambda: cluster.addresses() == ["10.244.0.2"], 60)
    assert cluster.node.documents.get("sandboxes", {}) == {}
    answered.set()
    until(lambda: cluster.phase() == "Running", 60)


def test_addresses_that_are_taken_are_passed_over(cluster: Cluster):
    foreign = {"metadata": {"name": "10.244.0.2"}, "spec": {"podUID": "x", "nodeName": "elsewhere"}}
    cluster.api.create(POD_ADDRESS, foreign)
    cluster.create()
    until(lambda: running(cluster))
    assert cluster.pod()["status"]["podIP"] == "10.244.0.3"


def test_a_node_without_free_addresses_says_so_until_one_is_released():
    made = Cluster()
    made.api.create(NODE, {"metadata": {"name": NAME}, "spec": {"podCIDR": "10.9.0.0/30"}, "status": {}})
    made.start()
    try:
        made.create("one")
        until(lambda: running(made, "one"))
        made.create("two")
        text = "Failed to create pod sandbox: no free address in 10.9.0.0/30, the podCIDR of node n1"
        until(lambda: f"FailedCreatePodSandBox: {text}" in made.events())
        until(lambda: made.waiting("two") == "ContainerCreating")
    finally:
        made.stop()


def test_the_node_is_observed_fully_from_time_to_time():
    made = Cluster()
    made.full_every_s = 0.1
    made.start()
    try:
        until(lambda: made.node.calls.count(("containers", "full")) >= 3)
    finally:
        made.stop()


def test_a_lost_gateway_leads_to_a_full_observation(cluster: Cluster):
    cluster.create()
    until(lambda: running(cluster))
    time.sleep(0.05)
    cluster.link.cut()
    cluster.node.die(cluster.node.find("app")["id"], 1)
    calls = len(cluster.node.calls)
    cluster.link.start()
    until(lambda: cluster.container()["restartCount"] == 1 and running(cluster))
    assert ("network", "full") in cluster.node.calls[calls:]


def test_a_destroyed_container_nobody_told_of_is_found_by_the_next_list():
    made = Cluster()
    made.full_every_s = 0.5
    made.start()
    try:
        made.create()
        until(lambda: running(made))
        made.node.tell = lambda _message: None
        made.api.delete(POD, "web", "default", grace_s=0)
        until(lambda: not made.node.containers)
        until(lambda: made.addresses() == [], 60)
        assert made.link.relists
    finally:
        made.stop()


def test_a_pod_without_a_decision_does_not_hold_up_the_others(cluster: Cluster):
    cluster.create("poison", containers=[{"name": "app"}])
    cluster.create("web")
    until(lambda: running(cluster))


def test_a_pod_that_cannot_be_read_holds_up_no_other_after_a_restart(cluster: Cluster):
    """A node got nothing any more, as long as something of a pod ran there that nobody could decide about."""
    cluster.create("broken")
    until(lambda: running(cluster, "broken"))
    cluster.stop()
    found = cluster.api.get(POD, "broken", "default")
    cluster.api.update(POD, {**found, "spec": {**found["spec"], "containers": "text"}})
    cluster.token += 1
    cluster.start()
    cluster.create("web")
    until(lambda: running(cluster))
    assert cluster.api.get(POD, "broken", "default")["spec"]["containers"] == "text"


def test_a_pod_that_fails_after_its_decision_holds_up_no_other_either(cluster: Cluster, monkeypatch: Any):
    """What follows a decision was outside of its guard: with it, all that was looked at together was lost."""
    cluster.stop()
    send = FakeLink.send

    def sent(link: FakeLink, message: JsonObject) -> bool:
        if message.get("image") == "example.com/bad:1":
            raise TypeError("str is not valid UTF-8: surrogates not allowed")
        return send(link, message)

    monkeypatch.setattr(FakeLink, "send", sent)
    cluster.create("bad", containers=[{"name": "app", "image": "example.com/bad:1"}])
    names = [f"web-{number}" for number in range(8)]
    for name in names:
        cluster.create(name)
    cluster.start()
    until(lambda: all(running(cluster, name) for name in names))


def test_killed_is_a_kind_of_failure():
    node = FakeNode(NAME, [])
    node.effects_left = 0
    with pytest.raises(Killed):
        node.destroy(node.containers.setdefault("x", {"id": "x"})["id"])
