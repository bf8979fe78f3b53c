"""The gateway over a dockerd that is killed, and one that hangs; private ones, the shared one stays."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from minik8s_modules.client.fake import FakeApi
from minik8s_modules.gateway.inventory import NodeAddress
from minik8s_modules.gateway.main import Gateway
from tests.integration.gateway.conftest import Containers, Peer
from tests.support.docker.dockerd import Dockerd, private_dockerd


@pytest.fixture(scope="module")
def dockerd() -> Iterator[Dockerd]:
    with private_dockerd() as dockerd:
        yield dockerd


@pytest.fixture
def private(dockerd: Dockerd, containers: Containers) -> Iterator[Containers]:
    made = Containers(containers.node, str(dockerd.socket))
    yield made
    made.close()


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    gateway = Gateway(FakeApi(), tmp_path / "gateway.sock", tmp_path / "links")
    gateway.start()
    yield gateway
    gateway.stop()


@pytest.fixture
def peer(gateway: Gateway, tmp_path: Path, private: Containers, dockerd: Dockerd) -> Iterator[Peer]:
    run_dir = str(tmp_path / "run")
    gateway.use([NodeAddress(private.node, "warm_local", docker_socket=str(dockerd.socket), run_dir=run_dir)])
    peer = Peer(tmp_path / "gateway.sock")
    peer.wait(op="state", node=private.node)
    yield peer
    peer.close()


def test_a_killed_dockerd_costs_no_container_and_no_event(peer: Peer, private: Containers, dockerd: Dockerd):
    short = private.create("short", ["sh", "-c", "sleep 1; exit 7"])
    long = private.create("long", ["sleep", "600"])
    for each in (short, long):
        private.start(each)
        peer.wait(op="event", action="start", id=each)
    dockerd.kill()
    time.sleep(1.5)
    dockerd.start()
    state = peer.wait(op="state", node=private.node)
    seen = {each["id"]: (each["state"], each["exit_code"]) for each in state["containers"]}
    assert seen[long] == ("running", 0)
    if seen[short][0] == "running":  # Docker itself hears of the end a moment after its start
        observation = peer.wait(op="event", action="die", id=short)["container"]
        seen[short] = (observation["state"], observation["exit_code"])
    assert seen[short][0] == "exited"
    private.remove(long)
    assert peer.wait(op="event", action="destroy", id=long)["container"] is None


def test_a_dockerd_that_hangs_is_dead_until_it_answers_again(
    peer: Peer, private: Containers, dockerd: Dockerd, gateway: Gateway
):
    assert dockerd.process is not None
    dockerd.process.send_signal(signal.SIGSTOP)
    try:
        # up to 10 s until the next ping, 5 s until it is given up, 5 s of silence
        peer.wait(op="alive", node=private.node, alive=False)
    finally:
        dockerd.process.send_signal(signal.SIGCONT)
    peer.wait(op="alive", node=private.node, alive=True)
    peer.send(op="relist", node=private.node)
    peer.wait(op="state", node=private.node)
