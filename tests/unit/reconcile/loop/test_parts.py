"""The small parts: what was observed, deltas, addresses, nodes, hosts, the link to the gateway."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.api.errors import ServiceUnavailable
from minik8s_modules.api.kinds import POD_ADDRESS
from minik8s_modules.base.clock import FakeClock, SystemClock
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.reconcile.loop import section_changes as changes
from minik8s_modules.reconcile.loop.gateway_link import GatewayLink
from minik8s_modules.reconcile.loop.section_changes import Confirmed
from minik8s_modules.reconcile.nodes.nodes import conditions, status_from_facts
from minik8s_modules.reconcile.pods.containers import backoff_s
from minik8s_modules.reconcile.pods.observed import NodeObservations, observation
from minik8s_modules.reconcile.values.addresses import REST_S, AddressBook, AddressesExhausted, usable
from minik8s_modules.reconcile.values.environment import SecretValue, expand
from minik8s_modules.reconcile.values.images import normalized
from minik8s_modules.reconcile.values.values import Sealed
from tests.unit.reconcile.loop.test_loop import until
from tests.unit.reconcile.worlds import T0, UID, observed_container, pod

RAW = {
    "id": "x",
    "name": "n",
    "type": "app",
    "pod_uid": UID,
    "pod_name": "web",
    "pod_namespace": "default",
    "container": "app",
    "attempt": 0,
    "state": "exited",
    "exit_code": 1,
    "oom_killed": False,
    "error": "",
    "created_at": "2026-01-01T00:00:01.5Z",
    "started_at": "2026-01-01T00:00:02.123456789Z",
    "finished_at": "2026-01-01T01:00:00Z",
    "image": "i",
    "image_id": "sha256:0",
    "ip": "",
}


# what was observed


def test_an_end_in_the_future_counts_as_now_and_stays():
    seen = NodeObservations()
    now = T0 + timedelta(seconds=10)
    seen.learn(observation(RAW, now), 0.0)
    seen.learn(observation(RAW, now + timedelta(seconds=60)), 60.0)
    last = seen.pod(UID).last("app")
    assert last is not None
    assert last.finished_at == now


def test_a_nodes_capacity_comes_from_its_facts():
    facts = {"cpus": 2, "memory_bytes": 1 << 30, "disk_bytes": 3 << 30}
    capacity = status_from_facts("n", facts, "v1")["capacity"]
    assert capacity == {"cpu": "2", "memory": "1048576Ki", "pods": "110", "ephemeral-storage": "3145728Ki"}
    assert "ephemeral-storage" not in status_from_facts("n", {"disk_bytes": 0}, "v1")["capacity"]
    huge = status_from_facts("n", {"huge_pages": {"1073741824": 0, "2097152": 16 << 20}}, "v1")["capacity"]
    assert (huge["hugepages-1Gi"], huge["hugepages-2Mi"]) == ("0", "16Mi")


def test_what_could_not_be_started_ended_when_it_was_created():
    failed = {**RAW, "state": "created", "error": "exec: no", "started_at": "", "finished_at": ""}
    assert observation(failed, T0 + timedelta(seconds=9)).finished_at == T0 + timedelta(seconds=1.5)
    assert observation(failed, T0).finished_at == T0
    assert observation({**failed, "error": ""}, T0).finished_at is None


@pytest.mark.parametrize("broken", [{"attempt": "x"}, {"finished_at": "yesterday"}, {"id": None, "exit_code": "a"}])
def test_an_observation_that_is_none_is_refused(broken: dict[str, Any]):
    with pytest.raises(ValueError, match="observation cannot be read"):
        observation({**RAW, **broken}, T0)


def test_an_observation_never_runs_backwards():
    seen = NodeObservations()
    dead = observed_container({"container": "app", "id": "a", "state": "exited", "created": 1, "finished": 5})
    alive = observed_container({"container": "app", "id": "a", "created": 1})
    assert seen.learn(dead, 1.0)
    assert not seen.learn(alive, 2.0)
    assert seen.pod(UID).last("app") == dead


def test_a_kill_for_memory_that_an_event_told_is_not_forgotten_by_a_list():
    seen = NodeObservations()
    assert seen.learn(observation({**RAW, "oom_killed": True}, T0), 1.0)
    assert not seen.learn(observation(RAW, T0), 2.0)
    assert seen.containers()[0].oom_killed


def test_a_container_started_again_by_hand_is_alive():
    seen = NodeObservations()
    seen.learn(observed_container({"container": "app", "id": "a", "state": "exited", "finished": 5}), 1.0)
    again = observed_container({"container": "app", "id": "a", "created": 1, "started": 9})
    assert seen.learn(again, 2.0)
    assert seen.pod(UID).last("app") == again


def test_a_destroyed_container_stays_destroyed():
    seen = NodeObservations()
    one = observed_container({"container": "app", "id": "a"})
    seen.learn(one, 1.0)
    assert seen.forget("a") == UID
    assert not seen.learn(one, 2.0)
    assert seen.pod(UID).empty
    assert seen.uids() == set()


def test_a_list_removes_what_it_lacks_unless_it_was_just_learned():
    seen = NodeObservations()
    seen.learn(observed_container({"container": "old", "id": "a"}), 1.0)
    seen.learn(observed_container({"container": "new", "id": "b"}), 9.0)
    assert seen.replace([], 10.0, 3.0) == {UID}
    assert sorted(seen.pod(UID).containers) == ["new"]


# deltas


def entry(state: str = "running", attempt: int = 0, **more: Any) -> dict[str, Any]:
    return {"state": state, "attempt": attempt, "stop": None, **more}


def test_nothing_to_say_is_no_request():
    confirmed = Confirmed("d", {"a": entry()})
    assert changes.delta({"a": entry()}, confirmed, frozenset()) is None


def test_a_delta_names_what_is_new_changed_gone_and_looked_at_again():
    confirmed = Confirmed("d", {"same": entry(), "changed": entry(), "gone": entry(), "again": entry()})
    wanted = {"same": entry(), "changed": entry(attempt=1), "new": entry(), "again": entry()}
    request = changes.delta(wanted, confirmed, frozenset({"again", "unknown"}))
    assert request is not None
    assert request.options["base"] == "d"
    assert sorted(request.options["upsert"]) == ["again", "changed", "new"]
    assert sorted(request.options["delete"]) == ["gone", "unknown"]
    assert request.keys == frozenset({"again", "changed", "new", "gone", "unknown"})
    assert request.entries == wanted


def test_keeping_what_is_there_is_not_worth_an_item_but_goes_along():
    confirmed = Confirmed("d", {"a": entry()})
    assert changes.delta({"a": entry("kept")}, confirmed, frozenset()) is None
    request = changes.delta({"a": entry("kept"), "b": entry()}, confirmed, frozenset())
    assert request is not None
    assert sorted(request.options["upsert"]) == ["a", "b"]
    stopping = changes.delta({"a": entry("kept") | {"stop": {"grace_s": 1}}}, confirmed, frozenset())
    assert stopping is not None


def test_variables_of_services_that_were_given_once_are_worth_no_item():
    told = entry() | {"links": [["WEB_SERVICE_HOST", "100.0.0.7"]]}
    confirmed = Confirmed("d", {"a": told})
    assert changes.delta({"a": entry()}, confirmed, frozenset()) is None
    assert changes.delta({"a": entry() | {"image": "other"}}, confirmed, frozenset()) is not None
    assert changes.delta({"a": told}, Confirmed("d", {"a": entry()}), frozenset()) is not None
    beside = changes.delta({"a": entry(), "b": entry()}, confirmed, frozenset())
    assert beside is not None
    assert beside.options["upsert"] == {"b": entry()}
    assert beside.entries["a"] == told, "whoever makes it again from the document has them"
    looked_at = changes.delta({"a": entry()}, confirmed, frozenset({"a"}))
    assert looked_at is not None
    assert looked_at.options["upsert"] == {"a": told}


@pytest.mark.parametrize(("mode", "worth"), [("nftables", False), ("ipvs", True)])
def test_a_service_without_endpoints_is_worth_an_item_where_it_has_rules(mode: str, *, worth: bool):
    known: dict[str, dict[str, str]] = {"dataplane": {"mode": mode}}
    idle = {"protocol": "TCP", "address": "100.0.0.7", "port": 80, "endpoints": []}
    confirmed = Confirmed("d", known)
    assert (changes.delta({**known, "default/web:80": idle}, confirmed, frozenset()) is not None) == worth
    served = {**idle, "endpoints": [["10.244.0.7", 8080]]}
    request = changes.delta({**known, "default/a:80": idle, "default/web:80": served}, confirmed, frozenset())
    assert request is not None
    assert set(request.options["upsert"]) == {"default/a:80", "default/web:80"}, "what was not worth one goes along"
    # one that loses its endpoints, or goes, is
    before = Confirmed("d", {**known, "default/web:80": served})
    assert changes.delta({**known, "default/web:80": idle}, before, frozenset()) is not None
    assert changes.delta(known, before, frozenset()) is not None


# addresses


def book(api: FakeApi | None = None, clock: FakeClock | None = None) -> AddressBook:
    return AddressBook(api or FakeApi(), clock or FakeClock())


def test_network_gateway_and_broadcast_are_no_pods():
    assert list(usable("10.0.0.0/29")) == ["10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"]


def test_a_claim_is_an_object_and_is_found_again():
    api = FakeApi()
    first = book(api)
    assert first.claim(pod(), "n1", "10.0.0.0/29") == "10.0.0.2"
    assert first.claim(pod(), "n1", "10.0.0.0/29") == "10.0.0.2"
    stored = api.list(POD_ADDRESS).items
    assert [one["spec"]["podUID"] for one in stored] == [UID]
    recovered = book(api)
    for one in stored:
        recovered.on_change(None, one)
    assert recovered.claim(pod(), "n1", "10.0.0.0/29") == "10.0.0.2"


def test_two_claimants_get_two_addresses():
    api = FakeApi()
    assert book(api).claim(pod(), "n1", "10.0.0.0/29") == "10.0.0.2"
    other = pod(metadata={"uid": "other"})
    assert book(api).claim(other, "n1", "10.0.0.0/29") == "10.0.0.3"


def test_a_released_address_rests_before_it_is_given_again():
    api, clock = FakeApi(), FakeClock()
    made = book(api, clock)
    made.claim(pod(), "n1", "10.0.0.0/29")
    made.release(made.claims_of(UID)[0])
    assert api.list(POD_ADDRESS).items == []
    assert made.claim(pod(metadata={"uid": "b"}), "n1", "10.0.0.0/29") == "10.0.0.3"
    clock.advance(REST_S + 1)
    assert made.claim(pod(metadata={"uid": "c"}), "n1", "10.0.0.0/29") == "10.0.0.2"


def test_no_address_left_is_an_error_and_a_failed_claim_is_none():
    api = FakeApi()
    made = book(api)
    api.fail(ServiceUnavailable("down"))
    with pytest.raises(ServiceUnavailable):
        made.claim(pod(), "n1", "10.0.0.0/30")
    assert made.of(UID) is None
    assert made.claim(pod(), "n1", "10.0.0.0/30") == "10.0.0.2"
    with pytest.raises(AddressesExhausted, match=r"10\.0\.0\.0/30"):
        made.claim(pod(metadata={"uid": "b"}), "n1", "10.0.0.0/30")


# nodes and hosts


def test_ready_keeps_its_time_while_it_stays():
    node = {"status": {"conditions": conditions({}, alive=True, now="then")}}
    assert conditions(node, alive=True, now="now")[0]["lastTransitionTime"] == "then"
    assert conditions(node, alive=False, now="now")[0]["lastTransitionTime"] == "now"


def test_a_node_that_does_not_answer_says_why():
    said = conditions({}, alive=False, now="now", silence="x" * 999 + "ssh: Permission denied\n(publickey).")
    told = said[0]["message"]
    assert told.startswith("Docker on this node does not answer (xxx")
    assert told.endswith("ssh: Permission denied (publickey).); the node is left as it is")
    assert len(told) < 400
    assert conditions({}, alive=True, now="now", silence="x")[0]["message"] == "Docker answers"


# words


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("busybox", "busybox:latest"),
        ("docker.io/library/busybox:1", "busybox:1"),
        ("docker.io/me/x", "me/x:latest"),
        ("localhost:5000/a/b:c", "localhost:5000/a/b:c"),
        ("a@sha256:" + "0" * 64, "a@sha256:" + "0" * 64),
        ("sha256:" + "0" * 64, "sha256:" + "0" * 64),
    ],
)
def test_images_have_one_name(image: str, name: str):
    assert normalized(image) == name


@pytest.mark.parametrize("image", ["", "UPPER", "a b", "a:b:c", "/a", "a/", "../x", "a" * 300])
def test_what_is_no_image_name_is_refused(image: str):
    with pytest.raises(ValueError, match="invalid reference format"):
        normalized(image)


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("$(A)", "1"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$(B)", "$(B)"),
        ("$(A", "$(A"),
        ("$A", "$A"),
        ("{{ x }}\n\"'\0", "{{ x }}\n\"'\0"),
    ],
)
def test_variables_expand_as_kubernetes_does(text: str, expanded: str):
    assert expand(text, {"A": "1"}) == expanded


def test_what_takes_a_secret_in_is_secret():
    value = expand("db://$(P)", {"P": SecretValue(b"hunter2", "default/s", "p")})
    assert isinstance(value, SecretValue)
    assert value.value == b"db://hunter2"


def test_sealed_values_do_not_print():
    assert "hunter2" not in repr(Sealed({"default/s": {"p": b"hunter2"}}))


def test_the_back_off_grows_as_kubelets():
    delays = [
        backoff_s([observed_container({"container": "app", "attempt": n, "state": "exited", "finished": 2})])
        for n in range(8)
    ]
    assert delays == [0, 10, 20, 40, 80, 160, 300, 300]


# the link to the gateway


class Gateway:
    """A socket that takes one client at a time."""

    def __init__(self, path: Path) -> None:
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen(1)
        self.listener.settimeout(60)

    def accept(self) -> socket.socket:
        """Return the next client."""
        return self.listener.accept()[0]


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    made = Gateway(tmp_path / "gw.sock")
    yield made
    made.listener.close()


def test_the_link_takes_messages_survives_bad_ones_and_reconnects(gateway: Gateway, tmp_path: Path):
    messages: list[dict[str, Any]] = []
    ups: list[bool] = []
    seen = threading.Event()

    def take(message: dict[str, Any]) -> None:
        messages.append(message)
        seen.set()
        if message.get("op") == "bad":
            raise KeyError("node")

    link = GatewayLink(tmp_path / "gw.sock", take, ups.append, SystemClock())
    assert not link.send({"op": "relist"})
    link.start()
    client = gateway.accept()
    client.sendall(b'{"op": "bad"}\nnot json\n{"op": "alive"}\n')
    until(lambda: [one["op"] for one in messages] == ["bad", "alive"])
    assert link.send({"op": "relist", "node": "n1"})
    assert json.loads(client.recv(100)) == {"op": "relist", "node": "n1"}
    client.close()
    second = gateway.accept()
    second.sendall(b'{"op": "state"}\n')
    until(lambda: messages[-1]["op"] == "state")
    assert ups == [True, False, True]
    link.stop()
    second.close()
