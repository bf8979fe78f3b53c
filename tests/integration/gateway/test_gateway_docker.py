"""The gateway against a real dockerd: what happens to containers and images reaches its clients."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from minik8s_modules.api.kinds import LEASE
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.gateway.inventory import NodeAddress
from minik8s_modules.gateway.main import Gateway
from tests.integration.gateway.conftest import Containers, Peer
from tests.support.waiting import until

ACTIONS = ("create", "start", "die", "destroy")


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
def gateway(tmp_path: Path, api: FakeApi) -> Iterator[Gateway]:
    gateway = Gateway(api, tmp_path / "gateway.sock", tmp_path / "links")
    gateway.start()
    yield gateway
    gateway.stop()


def local(containers: Containers, tmp_path: Path) -> NodeAddress:
    return NodeAddress(containers.node, "warm_local", run_dir=str(tmp_path / "run"))


@pytest.fixture
def peer(gateway: Gateway, tmp_path: Path, containers: Containers) -> Iterator[Peer]:
    gateway.use([local(containers, tmp_path)])
    peer = Peer(tmp_path / "gateway.sock")
    peer.wait(op="alive", node=containers.node, alive=True)
    peer.wait(op="state", node=containers.node)
    yield peer
    peer.close()


def test_a_containers_life_is_told_event_by_event(peer: Peer, containers: Containers):
    made = containers.create("short", ["sh", "-c", "exit 3"])
    containers.start(made)
    seen = {action: peer.wait(op="event", action=action, id=made) for action in ACTIONS[:3]}
    containers.remove(made)
    seen["destroy"] = peer.wait(op="event", action="destroy", id=made)
    assert seen["create"]["container"]["container"] == "short"
    assert seen["die"]["container"]["state"] == "exited"
    assert seen["die"]["container"]["exit_code"] == 3
    assert seen["die"]["container"]["finished_at"]
    assert seen["destroy"]["container"] is None
    assert {message["node"] for message in seen.values()} == {containers.node}


def test_a_new_client_gets_the_state_and_a_relist_sends_it_again(peer: Peer, containers: Containers, tmp_path: Path):
    made = containers.create("long", ["sleep", "60"])
    containers.start(made)
    peer.wait(op="event", action="start", id=made)
    other = Peer(tmp_path / "gateway.sock")
    assert other.wait(op="alive")["alive"] is True
    state = other.wait(op="state")
    assert [(each["id"], each["state"]) for each in state["containers"]] == [(made, "running")]
    assert "minik8s/busybox:1" in state["images"]
    assert any(image.startswith("sha256:") for image in state["images"])
    other.send(op="relist", node=containers.node)
    assert other.wait(op="state")["containers"] == state["containers"]
    other.close()


def test_other_nodes_containers_are_not_seen(peer: Peer, containers: Containers):
    stranger = Containers(f"{containers.node}-x")
    try:
        stranger.start(stranger.create("a", ["true"]))
        mine = containers.create("mine", ["true"])
        peer.wait(op="event", action="create")
        peer.send(op="relist", node=containers.node)
        assert [each["id"] for each in peer.wait(op="state")["containers"]] == [mine]
    finally:
        stranger.close()


def test_an_image_that_appears_is_told(peer: Peer, containers: Containers):
    name = f"minik8s/{containers.node}:9"
    try:
        containers.tag(name)
        assert name in peer.wait(op="images")["images"]
    finally:
        containers.untag(name)
    assert name not in peer.wait(op="images")["images"]


@pytest.fixture
def registry() -> Iterator[tuple[int, threading.Event]]:
    """Something that takes a registry's connections and answers only when released."""
    release = threading.Event()

    class Silent(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            release.wait(30)
            self.send_error(503)

        do_HEAD = do_GET  # noqa: N815 - a name given by http.server

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Silent)
    server.daemon_threads = False
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield server.server_address[1], release
    release.set()
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_pull_that_fails_tells_dockers_message(peer: Peer, containers: Containers, registry):
    port, release = registry
    release.set()
    image = f"127.0.0.1:{port}/nothing:1"
    peer.send(op="pull", id="p1", node=containers.node, image=image, auth=None)
    answer = peer.wait(op="pulled", id="p1")
    assert (answer["ok"], answer["reason"], answer["image"]) == (False, "ErrImagePull", image)
    assert str(port) in answer["message"] or "503" in answer["message"]


def test_a_waiting_pull_delays_nothing_and_can_be_cancelled(peer: Peer, containers: Containers, registry):
    port, _ = registry
    for number in range(3):
        image = f"127.0.0.1:{port}/slow{number}:1"
        peer.send(op="pull", id=f"slow{number}", node=containers.node, image=image, auth=None)
    made = containers.create("meanwhile", ["true"])
    heard = peer.upto(op="event", action="create", id=made)
    assert "pulled" not in {one["op"] for one in heard}, "the registry says nothing for 30 s"
    for number in range(3):
        peer.send(op="cancel", id=f"slow{number}")
    answers = [peer.wait(op="pulled") for _ in range(3)]
    assert {answer["reason"] for answer in answers} == {"Cancelled"}


def test_a_pull_for_a_node_that_is_not_here_fails_at_once(peer: Peer):
    peer.send(op="pull", id="p", node="elsewhere", image="a", auth=None)
    assert "elsewhere" in peer.wait(op="pulled", id="p")["message"]


def test_a_living_node_has_its_lease_renewed_and_its_file_touched(
    peer: Peer, containers: Containers, api: FakeApi, tmp_path: Path
):
    attended = tmp_path / "run" / "attended"
    until(attended.exists)
    assert abs(attended.stat().st_mtime - time.time()) < 60
    until(lambda: bool(api.list(LEASE).items))
    (lease,) = api.list(LEASE).items
    assert lease["metadata"]["namespace"] == "kube-node-lease"
    assert (lease["metadata"]["name"], lease["spec"]["leaseDurationSeconds"]) == (containers.node, 40)


def test_a_dead_node_delays_no_other_and_is_told_dead(gateway: Gateway, containers: Containers, tmp_path: Path):
    dead = NodeAddress("dead", "warm_local", docker_socket=str(tmp_path / "none.sock"), run_dir=str(tmp_path))
    peer = Peer(tmp_path / "gateway.sock")
    try:
        gateway.use([dead, local(containers, tmp_path)])
        peer.wait(op="state", node=containers.node)
        peer.wait(op="alive", node="dead", alive=False)
    finally:
        peer.close()


def test_a_removed_node_is_watched_no_longer(gateway: Gateway, peer: Peer, containers: Containers, tmp_path: Path):
    stays = Containers(f"{containers.node}-stays")
    try:
        gateway.use([local(stays, tmp_path)])
        peer.wait(op="state", node=stays.node)
        peer.send(op="pull", id="p", node=containers.node, image="a", auth=None)
        assert "there is no node" in peer.wait(op="pulled", id="p")["message"]
        unseen, seen = containers.create("unseen", ["true"]), stays.create("seen", ["true"])
        assert unseen not in {message.get("id") for message in peer.upto(op="event", action="create", id=seen)}
    finally:
        stays.close()
