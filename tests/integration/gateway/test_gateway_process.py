"""The gateway as a process, over ssh: killed with -9 it leaves nothing that its successor cannot use."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from minik8s_modules.runtime.identity import start_time
from tests.integration.gateway.conftest import (
    DOCKER,
    Containers,
    Peer,
    Sshd,
    start_sshd,
    user,
)
from tests.support.waiting import until


class Daemon:
    """``minik8s-gateway`` with its files in ``folder``."""

    def __init__(self, folder: Path, inventory: dict[str, object]) -> None:
        self.folder = folder
        self.socket = folder / "gateway.sock"
        self.inventory = folder / "hosts.yml"
        self.inventory.write_text(yaml.safe_dump(inventory))
        kubeconfig = folder / "kubeconfig"
        named = {"contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}], "current-context": "c"}
        clusters = [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}]
        kubeconfig.write_text(yaml.safe_dump({**named, "clusters": clusters, "users": [{"name": "u", "user": {}}]}))
        self.config = folder / "gateway.yml"
        options = {"kubeconfig": kubeconfig, "inventory": self.inventory, "run_dir": folder}
        self.config.write_text(yaml.safe_dump({key: str(value) for key, value in options.items()}))
        self.log = folder / "gateway.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "minik8s_modules.gateway.main", "--config", str(self.config)], stderr=log
            )

    def peer(self) -> Peer:
        """Connect to its socket as soon as it listens."""
        end = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError):
                return Peer(self.socket)
            assert time.monotonic() < end, self.log.read_text()
            time.sleep(0.05)

    def end(self, number: int) -> int:
        """Send a signal and wait; return the exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        code = self.process.wait(60)
        self.process = None
        return code

    def master_pid(self, node: str) -> int:
        """Return the recorded pid of a node's ssh master."""
        return int((self.folder / "gateway" / f"{node}.pid").read_text().split()[0])


@pytest.fixture
def daemon(tmp_path: Path, sshd: Sshd, containers: Containers) -> Iterator[Daemon]:
    host = {
        "ansible_connection": "warm_ssh",
        "ansible_host": "127.0.0.1",
        "ansible_port": sshd.port,
        "ansible_user": user(),
        "ansible_ssh_private_key_file": str(sshd.key),
        "minik8s_known_hosts": str(sshd.known_hosts),
        "minik8s_docker_socket": DOCKER,
        "minik8s_run_dir": str(tmp_path / "node-run"),
    }
    daemon = Daemon(tmp_path, {"all": {"children": {"nodes": {"hosts": {containers.node: host}}}}})
    yield daemon
    if daemon.process is not None:
        daemon.end(signal.SIGTERM)
    with contextlib.suppress(OSError, ValueError):
        os.kill(daemon.master_pid(containers.node), signal.SIGKILL)


def test_a_node_behind_ssh_is_watched_and_attended(daemon: Daemon, containers: Containers):
    daemon.start()
    peer = daemon.peer()
    peer.wait(op="state", node=containers.node)
    made = containers.create("a", ["true"])
    containers.start(made)
    assert peer.wait(op="event", action="die", id=made)["container"]["exit_code"] == 0
    attended = daemon.folder / "node-run" / "attended"
    until(attended.exists)
    assert attended.stat().st_mode & 0o777 == 0o644
    assert daemon.socket.stat().st_mode & 0o777 == 0o660
    assert (daemon.folder / "gateway" / f"{containers.node}.docker").stat().st_mode & 0o777 == 0o600
    peer.close()
    master = daemon.master_pid(containers.node)
    assert daemon.end(signal.SIGTERM) == 0
    assert start_time(master) == ""
    assert not daemon.socket.exists()


def test_after_kill_9_the_successor_adopts_the_master_and_replaces_the_socket(daemon: Daemon, containers: Containers):
    daemon.start()
    first = daemon.peer()
    first.wait(op="state", node=containers.node)
    master = daemon.master_pid(containers.node)
    daemon.end(signal.SIGKILL)
    first.close()
    assert daemon.socket.exists()
    assert start_time(master)
    made = containers.create("meanwhile", ["true"])
    daemon.start()
    second = daemon.peer()
    state = second.wait(op="state", node=containers.node)
    assert [each["id"] for each in state["containers"]] == [made]
    assert daemon.master_pid(containers.node) == master
    second.close()
    daemon.end(signal.SIGTERM)
    assert start_time(master) == ""


def test_a_killed_master_is_replaced_and_no_event_is_lost(daemon: Daemon, containers: Containers):
    daemon.start()
    peer = daemon.peer()
    peer.wait(op="state", node=containers.node)
    os.kill(daemon.master_pid(containers.node), signal.SIGKILL)
    made = containers.create("meanwhile", ["true"])
    state = peer.wait(op="state", node=containers.node)
    assert [each["id"] for each in state["containers"]] == [made]
    containers.start(made)
    peer.wait(op="event", action="die", id=made)
    peer.close()


def test_an_unreachable_node_is_dead_and_comes_back(daemon: Daemon, containers: Containers, sshd: Sshd):
    daemon.start()
    peer = daemon.peer()
    peer.wait(op="alive", node=containers.node, alive=True)
    sshd.process.kill()
    sshd.process.wait()
    # the connections live in children of the listener; the master holds one, and dies with it
    os.kill(daemon.master_pid(containers.node), signal.SIGKILL)
    peer.wait(op="alive", node=containers.node, alive=False)
    again = start_sshd(sshd.key.parent, sshd.port)
    try:
        peer.wait(op="alive", node=containers.node, alive=True)
        peer.wait(op="state", node=containers.node)
        peer.close()
        daemon.end(signal.SIGTERM)
    finally:
        again.kill()
        again.wait()


def test_an_unknown_host_key_is_refused(daemon: Daemon, containers: Containers, sshd: Sshd):
    sshd.known_hosts.write_text("")
    daemon.start()
    until(lambda: "Host key verification failed" in daemon.log.read_text())
    peer = daemon.peer()
    result = peer.wait(op="alive", node=containers.node, alive=False, timeout_s=60)
    assert "Host key verification failed" in result["message"]
    peer.close()


def test_a_node_that_refuses_the_key_is_dead_and_says_why(daemon: Daemon, containers: Containers, sshd: Sshd):
    sshd.key.with_suffix(".pub").write_text("")
    daemon.start()
    peer = daemon.peer()
    result = peer.wait(op="alive", node=containers.node, alive=False, timeout_s=60)
    assert "Permission denied (publickey" in result["message"]
    peer.close()


def test_a_second_gateway_on_the_same_socket_is_refused(daemon: Daemon, containers: Containers):
    daemon.start()
    daemon.peer().close()
    done = subprocess.run(
        [sys.executable, "-m", "minik8s_modules.gateway.main", "--config", str(daemon.config)],
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 2
    assert b"another gateway serves" in done.stderr
    peer = daemon.peer()
    peer.wait(op="state", node=containers.node)
    peer.close()


def test_nodes_follow_the_inventory_file(daemon: Daemon, containers: Containers):
    daemon.inventory.write_text(yaml.safe_dump({"all": {"hosts": {}}}))
    daemon.start()
    peer = daemon.peer()
    host = {"ansible_connection": "warm_local", "minik8s_run_dir": str(daemon.folder / "node-run")}
    daemon.inventory.write_text(yaml.safe_dump({"all": {"hosts": {containers.node: host}}}))
    peer.wait(op="state", node=containers.node)
    peer.close()
