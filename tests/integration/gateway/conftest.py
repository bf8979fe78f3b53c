"""Real Docker and real sshd for the gateway's tests; every object is scoped by a node name of the test's own."""

from __future__ import annotations

import contextlib
import getpass
import os
import queue
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import docker
import orjson
import pytest

from minik8s_modules.module_utils.minik8s.core import labels
from tests.support.etcd import free_port
from tests.support.waiting import until

DOCKER = "/var/run/docker.sock"
IMAGE = "minik8s/busybox:1"


class Peer:
    """A client of the gateway's socket."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.connect(str(path))
        except OSError:
            self._socket.close()
            raise
        self.messages: queue.Queue[dict[str, Any]] = queue.Queue()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def send(self, **message: Any) -> None:
        """Send one message."""
        self._socket.sendall(orjson.dumps(message) + b"\n")

    def wait(self, timeout_s: float = 60.0, **wanted: Any) -> dict[str, Any]:
        """Return the next message that has all of ``wanted``; earlier ones are dropped."""
        return self.upto(timeout_s, **wanted)[-1]

    def upto(self, timeout_s: float = 60.0, **wanted: Any) -> list[dict[str, Any]]:
        """Return the messages up to the next that has all of ``wanted``, which is the last."""
        end = time.monotonic() + timeout_s
        found: list[dict[str, Any]] = []
        while not found or any(found[-1].get(key) != value for key, value in wanted.items()):
            try:
                found.append(self.messages.get(timeout=max(0.0, end - time.monotonic())))
            except queue.Empty:
                listed = [{key: each.get(key) for key in ("op", "node", "action", "id")} for each in found]
                raise AssertionError(f"no {wanted} came, but {listed}") from None
        return found

    def close(self) -> None:
        """End it and what it made."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(60)
        self._socket.close()

    def _read(self) -> None:
        with contextlib.suppress(OSError), self._socket.makefile("rb") as stream:
            for line in stream:
                self.messages.put(orjson.loads(line))


class Containers:
    """Makes containers that look like ours for one node."""

    def __init__(self, node: str, socket_path: str = DOCKER) -> None:
        self.node = node
        self._client = docker.APIClient(base_url=f"unix://{socket_path}", version="1.40", timeout=30)

    def create(self, name: str, command: list[str]) -> str:
        """Create a container that is not started."""
        pod = {"uid": f"uid-{self.node}", "name": "web", "namespace": "default"}
        made = self._client.create_container(
            IMAGE,
            command,
            name=f"{self.node}-{name}",
            labels=labels.pod_labels(self.node, pod, "app", name, 0),
            host_config=self._client.create_host_config(network_mode="none"),
        )
        return str(made["Id"])

    def start(self, container_id: str) -> None:
        """Start a container."""
        self._client.start(container_id)

    def remove(self, container_id: str) -> None:
        """Remove a container by force."""
        self._client.remove_container(container_id, force=True)

    def tag(self, name: str) -> None:
        """Give the test image another name."""
        repository, _, tag = name.rpartition(":")
        self._client.tag(IMAGE, repository, tag)

    def untag(self, name: str) -> None:
        """Take that name away."""
        with contextlib.suppress(docker.errors.ImageNotFound):
            self._client.remove_image(name, noprune=True)

    def close(self) -> None:
        """End it and what it made."""
        found = self._client.containers(all=True, filters={"label": f"{labels.NODE}={self.node}"})
        for entry in found:
            self.remove(entry["Id"])
        self._client.close()


@pytest.fixture
def containers() -> Iterator[Containers]:
    made = Containers(f"t{uuid.uuid4().hex[:10]}")
    yield made
    made.close()


class Sshd(NamedTuple):
    """A running sshd: where, and the files a client needs."""

    port: int
    key: Path
    known_hosts: Path
    process: subprocess.Popen[bytes]


def _keygen(path: Path) -> str:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    return path.with_suffix(".pub").read_text()


def start_sshd(folder: Path, port: int, address: str = "127.0.0.1") -> subprocess.Popen[bytes]:
    config = folder / "sshd_config"
    config.write_text(
        f"Port {port}\nListenAddress {address}\nHostKey {folder}/host\nPidFile none\n"
        f"AuthorizedKeysFile {folder}/client.pub\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n"
        "PermitRootLogin prohibit-password\nSubsystem sftp internal-sftp\nAllowStreamLocalForwarding yes\n"
        "MaxSessions 20\n"
    )
    assert Path("/usr/sbin/sshd").exists(), "sshd is not installed: apt-get install openssh-server"
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    process = subprocess.Popen(
        ["/usr/sbin/sshd", "-D", "-e", "-f", str(config)], stderr=subprocess.DEVNULL, start_new_session=True
    )
    until(lambda: _listens(port, address))
    return process


def _listens(port: int, address: str) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        return probe.connect_ex((address, port)) == 0


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[Sshd]:
    folder = tmp_path / "sshd"
    folder.mkdir()
    host_key, _ = _keygen(folder / "host"), _keygen(folder / "client")
    port = free_port()
    known_hosts = folder / "known_hosts"
    known_hosts.write_text(f"[127.0.0.1]:{port} {' '.join(host_key.split()[:2])}\n")
    process = start_sshd(folder, port)
    yield Sshd(port, folder / "client", known_hosts, process)
    process.kill()
    process.wait()


def user() -> str:
    return getpass.getuser() or str(os.getuid())
