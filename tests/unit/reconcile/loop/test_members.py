"""Nodes that come to a running reconciler and leave it: the others notice nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.kinds import NODE, PERSISTENT_VOLUME, POD
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import SystemClock
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.reconcile.executor.fake_runner import FakeRunner
from minik8s_modules.reconcile.nodes.registration import Registrar
from minik8s_modules.reconcile.service import Outside, ShardService
from minik8s_modules.reconcile.values.items import OnOutcome
from minik8s_modules.reconcile.values.values import Settings
from tests.support.waiting import until
from tests.unit.reconcile.fake_node import FakeNode
from tests.unit.reconcile.worlds import IMAGE, PAUSE

NAMES = ("n1", "n2", "n3")


class Machines:
    """Three machines, a gateway that watches those in ``watched``, and a reconciler of some of them."""

    def __init__(self) -> None:
        self.api = FakeApi(SystemClock())
        self.nodes = {name: FakeNode(name, [IMAGE, PAUSE]) for name in NAMES}
        self.reachable = set(NAMES)
        self.on_message: Callable[[JsonObject], None] = lambda _message: None
        settings = Settings(hmac_key=b"test key")
        outside = Outside(self.api, self._runner, self._link, SystemClock())
        self.service = ShardService(outside, ("n1", "n2"), (1, 1), settings, lambda: 300.0, lambda: None)

    def _runner(self, on_outcome: OnOutcome) -> FakeRunner:
        return FakeRunner(NAMES, self._realize, on_outcome)

    def _realize(self, node: str, section: str, options: JsonObject, check: bool) -> JsonObject:  # noqa: FBT001
        if node not in self.reachable:
            raise ConnectionError(f"{node} does not answer")
        return self.nodes[node].realize(node, section, options, check)

    def _link(self, on_message: Callable[[JsonObject], None], on_up: Callable[[bool], None]) -> Machines:
        self.on_message, self._on_up = on_message, on_up
        return self

    def start(self) -> None:
        """Connect, as a link does."""
        self._on_up(True)  # noqa: FBT003 - the link's callback
        for node in self.nodes.values():
            node.tell = self.on_message
            self.send({"op": "relist", "node": node.name})

    def stop(self) -> None:
        """Disconnect."""
        for node in self.nodes.values():
            node.tell = lambda _message: None

    def send(self, message: JsonObject) -> bool:
        """Answer a relist as the gateway does."""
        node = self.nodes[message["node"]]
        if message["op"] == "relist" and node.name in self.reachable:
            listed = [{"op": "alive", "node": node.name, "alive": True}, node.state()]
            threading.Thread(target=lambda: [self.on_message(each) for each in listed]).start()
        return True

    def run(self, name: str, node: str) -> None:
        """Create a pod on a node."""
        spec = {"restartPolicy": "Always", "nodeName": node, "containers": [{"name": "app", "image": IMAGE}]}
        metadata = {"name": name, "namespace": "default"}
        self.api.create(POD, {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}})

    def phase(self, name: str) -> str:
        """Return a pod's phase."""
        return str(self.api.get(POD, name, "default")["status"].get("phase"))

    def exists(self, node: str) -> bool:
        """Return whether there is a Node."""
        try:
            return bool(self.api.get(NODE, node))
        except NotFound:
            return False


@pytest.fixture
def machines() -> Iterator[Machines]:
    made = Machines()
    made.service.start()
    until(lambda: made.exists("n1") and made.exists("n2"))
    yield made
    made.service.stop()


def test_a_node_that_is_not_attended_draws_no_folder_by_what_it_says_of_itself(machines: Machines):
    """A node with a reconciler of its own writes its own labels and addresses."""
    host = {"kubernetes.io/hostname": "n2"}
    machines.api.create(NODE, {"metadata": {"name": "liar", "labels": host}, "spec": {}, "status": {}})
    terms = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n2"]}]}]
    spec = {"hostPath": {"path": "/srv/v"}, "nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}
    meta = {"name": "v", "uid": "u", "annotations": {"pv.kubernetes.io/provisioned-by": "minik8s.io/hostpath"}}
    machines.api.create(PERSISTENT_VOLUME, {"metadata": meta, "spec": spec, "status": {"phase": "Bound"}})
    until(lambda: [*machines.nodes["n2"].documents.get("folders", {})] == ["v"])


def test_a_node_that_comes_is_registered_and_runs_pods(machines: Machines):
    machines.run("a", "n1")
    until(lambda: machines.phase("a") == "Running")
    before = [call for call in machines.nodes["n1"].calls if call[1] == "full"]
    assert machines.service.use(NAMES)
    until(lambda: machines.exists("n3"))
    assert machines.api.get(NODE, "n3")["spec"]["podCIDR"] == "10.244.2.0/24"
    machines.run("c", "n3")
    until(lambda: machines.phase("c") == "Running")
    assert [call for call in machines.nodes["n1"].calls if call[1] == "full"] == before
    assert machines.nodes["n1"].double_starts == 0


def test_a_node_that_leaves_is_not_registered_again(machines: Machines):
    machines.run("b", "n2")
    until(lambda: machines.phase("b") == "Running")
    assert machines.service.use(("n1", "n3"))
    machines.api.delete(NODE, "n2")
    until(lambda: machines.exists("n3"))
    machines.on_message({"op": "alive", "node": "n2", "alive": True})
    machines.run("d", "n1")
    until(lambda: machines.phase("d") == "Running")
    assert not machines.exists("n2")


def test_a_deleted_node_is_registered_again_only_when_its_machine_answers(machines: Machines):
    cidr = machines.api.get(NODE, "n2")["spec"]["podCIDR"]
    machines.reachable.remove("n2")
    machines.api.delete(NODE, "n2")
    machines.run("d", "n1")
    until(lambda: machines.phase("d") == "Running")
    assert not machines.exists("n2")
    machines.reachable.add("n2")
    until(lambda: machines.exists("n2"))
    assert machines.api.get(NODE, "n2")["spec"]["podCIDR"] == cidr


def test_a_node_that_was_deleted_while_its_status_was_due_is_not_made_again_from_memory():
    """The copy lacks the Node before the loop is told that it was deleted."""
    api, there = FakeApi(SystemClock()), True
    registrar = Registrar(
        api, lambda name: api.get(NODE, name) if there else None, lambda _name: True, "10.244.0.0/16", SystemClock()
    )
    facts = {"cpus": 2, "memory_bytes": 1 << 30, "internal_ip": "192.0.2.10"}
    there = False
    registrar.on_facts("n1", facts)
    registrar.write("n1")
    there = True
    registrar.write("n1")
    api.delete(NODE, "n1")
    there = False
    registrar.write("n1")
    assert [each["metadata"]["name"] for each in api.list(NODE).items] == []
    registrar.on_facts("n1", facts)
    registrar.write("n1")
    assert [each["metadata"]["name"] for each in api.list(NODE).items] == ["n1"]


def test_a_node_tells_of_its_kubelets_port_as_long_as_there_is_one():
    api = FakeApi(SystemClock())

    def reported(port: int) -> object:
        registrar = Registrar(
            api, lambda name: _there(api, name), lambda _: True, "10.244.0.0/16", SystemClock(), kubelet_port=port
        )
        registrar.on_facts("n1", {"internal_ip": "192.0.2.10"})
        for _ in range(2):
            registrar.write("n1")
        return api.get(NODE, "n1")["status"].get("daemonEndpoints")

    assert reported(10250) == {"kubeletEndpoint": {"Port": 10250}}
    assert reported(10251) == {"kubeletEndpoint": {"Port": 10251}}
    assert reported(0) is None
    assert reported(0) is None


def _there(api: FakeApi, name: str) -> JsonObject | None:
    return next((each for each in api.list(NODE).items if each["metadata"]["name"] == name), None)


def test_one_node_and_many_are_other_watches(machines: Machines):
    assert not machines.service.use(("n1",))
