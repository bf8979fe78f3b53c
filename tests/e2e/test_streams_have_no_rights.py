"""The daemon that parses streams, as it is installed: what its user may, tried as that user."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import pytest

from tests.support.clusters.installed import Installed

USER = "minik8s-streams"
AS_USER = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--init-groups"]
DOCKER = "/var/run/docker.sock"


def may(*argv: str) -> bool:
    done = subprocess.run([*AS_USER, *argv], capture_output=True, stdin=subprocess.DEVNULL, timeout=60, check=False)
    return done.returncode == 0


def test_the_daemon_runs_as_a_user_of_no_further_group(cluster: Installed):
    (streams,) = cluster.parts()["streams"]
    status = dict(line.split(":", 1) for line in Path(f"/proc/{streams.pid}/status").read_text().splitlines())
    group = subprocess.run(["id", "-g", USER], capture_output=True, text=True, check=True).stdout.strip()
    assert streams.username() == USER
    assert set(status["Groups"].split()) <= {group}
    assert not int(status["CapEff"], 16)


def test_its_user_reaches_neither_docker_nor_root(cluster: Installed):
    connect = f"import socket; socket.socket(socket.AF_UNIX).connect({DOCKER!r})"
    assert may("true")
    assert not may("/usr/bin/python3", "-c", connect)
    assert not may("sudo", "-n", "/usr/bin/python3", "-I", "-")


@pytest.mark.parametrize(
    "file",
    ["gateway.kubeconfig", "reconciler.kubeconfig", "admin.kubeconfig", "hmac.key", "pki/apiserver.key",
     "pki/apiserver-reconciler-client.key", "pki/ca.key", "pki/service-accounts.key", "inventory/hosts.yml"],
)  # fmt: skip
def test_its_user_reads_nobody_elses_keys(cluster: Installed, file: str):
    assert Path("/etc/minik8s", file).exists()
    assert not may("cat", f"/etc/minik8s/{file}")
    assert may("cat", "/etc/minik8s/pki/gateway.key")


def test_its_user_sees_neither_the_nodes_sockets_nor_the_key_to_them(cluster: Installed):
    assert not may("ls", "/run/minik8s/gateway")
    assert not may("ls", "/var/lib/minik8s-node")


def test_nobody_else_is_answered_at_the_gateways_socket(cluster: Installed):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stranger:
        stranger.settimeout(20)
        stranger.connect("/run/minik8s/streams.sock")
        assert stranger.recv(1000) == b""
