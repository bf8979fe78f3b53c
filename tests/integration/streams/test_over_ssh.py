"""The same streams to a node behind ssh: Docker's socket is forwarded, port-forward goes through the node's master.

Where this machine has IPv6, the node is reached by that: ``ansible_host`` may be of either family.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from minik8s_modules.api.kinds import NODE
from minik8s_modules.module_utils.minik8s.install.ranges import has_ipv6
from tests.integration.gateway.conftest import Sshd, _keygen, start_sshd, user
from tests.integration.streams.conftest import Streaming
from tests.integration.streams.test_forwarding import forwarded, servers, talk
from tests.support.etcd import free_port

HOST = "::1" if has_ipv6() else "127.0.0.1"


@pytest.fixture(scope="module")
def streaming() -> Iterator[Streaming]:
    folder = Path(tempfile.mkdtemp(prefix="mk8s-"))
    ssh = folder / "sshd"
    ssh.mkdir()
    host_key, _ = _keygen(ssh / "host"), _keygen(ssh / "client")
    port = free_port()
    known_hosts = ssh / "known_hosts"
    known_hosts.write_text(f"[{HOST}]:{port} {' '.join(host_key.split()[:2])}\n")
    sshd = Sshd(port, ssh / "client", known_hosts, start_sshd(ssh, port, HOST))
    made = Streaming(
        folder,
        ansible_connection="warm_ssh",
        ansible_host=HOST,
        ansible_port=sshd.port,
        ansible_user=user(),
        ansible_ssh_private_key_file=str(sshd.key),
        minik8s_known_hosts=str(known_hosts),
    )
    try:
        made.start_gateway()
        yield made
    finally:
        made.close()
        sshd.process.kill()
        sshd.process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def test_logs_and_commands(streaming: Streaming) -> None:
    streaming.pod("far", "echo from afar; sleep 3600")
    assert streaming.until(lambda: streaming.kubectl("logs", "far").stdout) == "from afar\n"
    done = streaming.kubectl("exec", "-i", "far", "--", "sh", "-c", "cat; exit 4", stdin="to and fro", check=False)
    assert (done.stdout, done.returncode) == ("to and fro", 4)


def test_ports(streaming: Streaming) -> None:
    made = streaming.pod("ports", "sleep 3600")
    with servers(streaming, made), forwarded(streaming, "ports", {}, 7000, 7001, 7999) as (echo, greeter, nobody):
        assert talk(greeter, b"") == b"hello\n"
        assert talk(echo, b"x" * 1_000_000) == b"x" * 1_000_000
        assert talk(nobody, b"") == b""


def test_a_proxied_request(streaming: Streaming) -> None:
    """Busybox' nc answers one request; where nobody listens, ssh tells only at its end."""
    answer = "HTTP/1.0 200 OK\\r\\nContent-Type: text/plain\\r\\n\\r\\nfrom afar"
    streaming.pod("site", f"while true; do printf '{answer}' | nc -l -p 8080; done")
    path = "/api/v1/namespaces/default/pods/site:"
    done = streaming.until(lambda: streaming.kubectl("get", "--raw", f"{path}8080/proxy/x", check=False).stdout)
    assert done == "from afar"
    refused = streaming.kubectl("get", "--raw", f"{path}8081/proxy/x", check=False).stderr
    assert "error trying to reach service" in refused
    assert "refused" in refused.lower()


def test_figures_of_the_machine(streaming: Streaming) -> None:
    streaming.admin.create(NODE, {"metadata": {"name": streaming.node.name}})
    capacity = {"cpu": "2", "memory": "4Gi"}
    body = {"status": {"capacity": capacity, "allocatable": capacity}}
    streaming.admin.patch(NODE, streaming.node.name, "", body, subresource="status")
    top = ("top", "node", streaming.node.name, "--no-headers")
    streaming.until(lambda: streaming.kubectl(*top, check=False).returncode == 0, 60)
    assert int(streaming.kubectl(*top).stdout.split()[3].removesuffix("Mi")) > 0
    with socket.socket(socket.AF_UNIX) as gateway:
        gateway.settimeout(30)
        gateway.connect(str(streaming.folder / "gw.sock"))
        result = gateway.makefile("rb")
        stats = next(message for line in result if (message := json.loads(line))["op"] == "stats")
    # /proc and the file system of Docker's directory, read through the sftp channel
    assert 0 < stats["machine"]["memory_available_bytes"] < stats["machine"]["memory_bytes"]
    assert 0 < stats["machine"]["disk"]["available_bytes"] < stats["machine"]["disk"]["capacity_bytes"]


def ways(streaming: Streaming) -> list[psutil.Process]:
    """Return the processes that carry connections to ports, of this gateway or a dead one."""
    control = str(streaming.folder / "gw")
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            if "-W" in words and any(control in word for word in words):
                found.append(process)
    return found


@pytest.mark.parametrize("victim", ["gateway", "parser", "client"])
def test_whoever_is_killed_no_ssh_is_left(streaming: Streaming, victim: str) -> None:
    made = streaming.pod(f"held-{victim}", "sleep 3600")
    with (
        servers(streaming, made),
        forwarded(streaming, f"held-{victim}", {}, 7000) as (echo,),
        socket.create_connection(("127.0.0.1", echo), 20) as held,
    ):
        held.sendall(b"held")  # the server answers at the end of what it gets
        streaming.until(lambda: len(ways(streaming)) == 1)
        if victim == "gateway":
            streaming.kill_gateway()
        elif victim == "parser":
            streaming.kill_parser()
        else:
            held.close()
        streaming.until(lambda: not ways(streaming))
    if victim == "gateway":
        streaming.start_gateway()
    elif victim == "parser":
        streaming.start_parser()
        streaming.until(streaming.admin_reaches)
    assert streaming.kubectl("exec", f"held-{victim}", "--", "echo", "again").stdout == "again\n"
