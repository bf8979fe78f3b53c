"""A node that serves a kubelet's API itself, asked by the API server: real kubectl, and our own virtual nodes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path

import psutil
import pytest
import yaml

from minik8s_modules.api import objects
from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.kinds import NODE, POD
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.client.api import ApiClient
from tests.integration.control.conftest import Daemon
from tests.support.apiserver import ApiServerProcess
from tests.support.etcd import EtcdServer, free_port
from tests.support.pki import Authority, Certificate, write_kubeconfig
from tests.support.waiting import until

CALLER = "system:minik8s:apiserver"
FORMS = {
    "WebSocket": {},
    "SPDY": {"KUBECTL_REMOTE_COMMAND_WEBSOCKETS": "false", "KUBECTL_PORT_FORWARD_WEBSOCKETS": "false"},
}


def own_address() -> str:
    """Return an address of this machine that lasts and is not its loopback's: no other is believed of a node."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        probe.connect(("198.51.100.1", 9))  # of the way out, if there is one; nothing is sent
        return str(probe.getsockname()[0])
    found = (each.address for rows in psutil.net_if_addrs().values() for each in rows if each.family == socket.AF_INET)
    return next(each for each in found if not (ip_address(each).is_loopback or ip_address(each).is_link_local))


class World:
    """An API server, and a virtual node ``far`` of the provider mock, with a Pod ``one``."""

    def __init__(self, folder: Path, etcd: EtcdServer) -> None:
        self.folder, self.address, self.port = folder, own_address(), free_port()
        callers = folder / "api" / "pki"
        files = {
            "cert": str(callers / "caller.crt"),
            "key": str(callers / "caller.key"),
            "ca": str(callers / "cluster.crt"),
        }
        self.server = ApiServerProcess(folder / "api", etcd.endpoint, reconciler_client=files)
        self.server.authority.issue("caller", CALLER)
        self.server.start()
        self.admin = ApiClient(self.server.url, self.server.authority.ca, self.server.admin.cert, self.server.admin.key)

    def daemon(self, name: str, serving: Certificate, port: int, authority: Path | None = None) -> Daemon:
        """Return a process that carries the node ``name`` and serves its API, not started."""
        own = self.server.identity(f"system:node:{name}", "system:nodes")
        kubeconfig = write_kubeconfig(
            self.folder / f"{name}.kubeconfig", self.server.url, self.server.authority.ca, own
        )
        config = self.folder / f"{name}.yml"
        files = {"cert": serving.cert, "key": serving.key, "client_ca": authority or self.server.authority.ca}
        served = {"listen": f"{self.address}:{port}", **{key: str(path) for key, path in files.items()}}
        said = {"kubeconfig": str(kubeconfig), "internal_ip": self.address, "serving": served}
        config.write_text(yaml.safe_dump({**said, "nodes": [{"name": name, "provider": "mock"}]}))
        return Daemon("virtual", config)

    def pod(self, name: str, node: str) -> None:
        """Create a Pod on a node, and wait until it runs."""
        spec = {"nodeName": node, "containers": [{"name": "app", "image": "x:1"}]}
        self.admin.create(POD, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})
        until(lambda: objects.status(self.admin.get(POD, name, "default")).get("phase") == "Running")

    def stop(self) -> None:
        """End the API server."""
        self.admin.close()
        self.server.stop()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("kubelet")
    etcd = EtcdServer(folder / "etcd").start()
    made = World(folder, etcd)
    serving = made.server.authority.issue("far-serving", "system:node:far", names=("far.node.minik8s.internal",))
    daemon = made.daemon("far", serving, made.port).start()
    try:
        until(lambda: _node(made, "far"))
        made.pod("one", "far")
        yield made
    finally:
        daemon.stop()
        made.stop()
        etcd.stop()


def _node(world: World, name: str) -> JsonObject | None:
    try:
        return world.admin.get(NODE, name)
    except NotFound:
        return None


def test_a_log_is_told_in_part_with_times_and_to_its_end(world: World) -> None:
    log = world.server.kubectl("logs", "one").stdout
    assert log.startswith("started x:1\n")
    assert re.match(
        r"\d{4}-\d\d-\d\dT[\d:.]+Z started x:1\n", world.server.kubectl("logs", "one", "--timestamps").stdout
    )
    assert len(world.server.kubectl("logs", "one", "--tail=1").stdout.splitlines()) == 1
    assert world.server.kubectl("logs", "one", "--limit-bytes=4").stdout == "star"
    done = world.server.kubectl("logs", "one", "-c", "never", check=False)
    assert "container never is not valid for pod one" in done.stderr


def test_a_followed_log_goes_on_until_the_pod_ends(world: World) -> None:
    world.pod("followed", "far")
    argv = world.server.kubectl_argv("logs", "-f", "followed")
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started x:1\n"
        world.server.kubectl("exec", "followed", "--", "hello")
        assert process.stdout.readline() == "exec hello\n"
        world.server.kubectl("delete", "pod", "followed", "--grace-period=30")
        assert process.wait(60) == 0


@pytest.mark.parametrize("env", FORMS.values(), ids=FORMS)
def test_a_command_gets_input_and_tells_its_exit_code(world: World, env: dict[str, str]) -> None:
    done = world.server.kubectl("exec", "-i", "one", "--", "cat", "a b", stdin="typed\n", env=env)
    assert done.stdout == "cat a b\ntyped\n"
    failed = world.server.kubectl("exec", "one", "--", "exit", "3", env=env, check=False)
    assert (failed.returncode, "exit code 3" in failed.stderr) == (3, True)
    big = "x" * 300_000 + "\n"
    assert world.server.kubectl("exec", "-i", "one", "--", "cat", stdin=big, env=env).stdout == f"cat\n{big}"


@pytest.mark.parametrize("env", FORMS.values(), ids=FORMS)
def test_somebody_attaches(world: World, env: dict[str, str]) -> None:
    done = world.server.kubectl("attach", "-i", "one", stdin="typed\n", env=env)
    assert "attached to app\ntyped\n" in done.stdout


@pytest.mark.parametrize("env", FORMS.values(), ids=FORMS)
def test_a_port_is_forwarded(world: World, env: dict[str, str]) -> None:
    argv = world.server.kubectl_argv("port-forward", "pod/one", ":7000")
    environment = {**os.environ, "HOME": str(world.folder), **env}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            match = re.match(r"Forwarding from 127.0.0.1:(\d+)", process.stdout.readline())
            assert match is not None
            with socket.create_connection(("127.0.0.1", int(match[1])), timeout=60) as peer:
                peer.sendall(b"echo" * 50_000)
                peer.shutdown(socket.SHUT_WR)
                answer = b"".join(iter(lambda: peer.recv(65536), b""))
            assert answer == b"default/one:7000\n" + b"echo" * 50_000
        finally:
            process.terminate()


def test_figures_of_the_node_are_those_of_its_provider(world: World) -> None:
    summary = json.loads(world.server.kubectl("get", "--raw", "/api/v1/nodes/far/proxy/stats/summary").stdout)
    assert summary["node"]["nodeName"] == "far"
    assert "one" in {each["podRef"]["name"] for each in summary["pods"]}
    metrics = world.server.kubectl("get", "--raw", "/api/v1/nodes/far/proxy/metrics/resource").stdout
    assert "node_cpu_usage_seconds_total" in metrics
    pods = json.loads(world.server.kubectl("get", "--raw", "/api/v1/nodes/far/proxy/pods").stdout)
    assert "one" in {each["metadata"]["name"] for each in pods["items"]}
    top = world.server.kubectl("top", "node", "far", "--no-headers").stdout.split()
    assert top[0] == "far"
    pod = world.server.kubectl("top", "pod", "one", "--no-headers").stdout.split()
    assert pod == ["one", "100m", "64Mi"]


# ------------------------------------------------------------------ who is believed


@contextmanager
def _impostor(world: World, name: str, serving: Certificate, authority: Path | None = None) -> Iterator[None]:
    daemon = world.daemon(name, serving, free_port(), authority).start()
    try:
        until(lambda: _node(world, name))
        world.pod(f"on-{name}", name)
        yield
    finally:
        daemon.stop()


def test_a_server_whose_certificate_is_for_another_node_is_not_asked(world: World) -> None:
    serving = world.server.authority.issue("other-serving", "system:node:far", names=("far.node.minik8s.internal",))
    with _impostor(world, "other", serving):
        done = world.server.kubectl("exec", "on-other", "--", "ls", check=False)
    assert "its certificate is for 127.0.0.1, far.node.minik8s.internal; it must be for" in done.stderr


def test_a_server_that_nobody_signed_is_not_asked(world: World) -> None:
    serving = Authority(world.folder / "foreign", "foreign").issue("serving", "stranger", addresses=(world.address,))
    with _impostor(world, "stranger", serving):
        done = world.server.kubectl("logs", "on-stranger", check=False)
    assert "certificate verify failed" in done.stderr


def test_the_node_answers_api_servers_alone(world: World) -> None:
    context = world.server.context(world.server.identity("somebody", "system:masters"))
    context.check_hostname = False
    with (
        socket.create_connection((world.address, world.port), timeout=60) as plain,
        context.wrap_socket(plain) as connection,
    ):
        connection.sendall(b"GET /containerLogs/default/one/app HTTP/1.1\r\nHost: far\r\n\r\n")
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 403")
    assert b"not somebody" in answer
