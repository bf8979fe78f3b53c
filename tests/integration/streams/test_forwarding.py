"""kubectl port-forward over WebSocket (SPDY inside) and SPDY: several ports, many connections, half-closed ones."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.integration.streams.conftest import Streaming

PROTOCOLS = {"websocket": {}, "spdy": {"KUBECTL_PORT_FORWARD_WEBSOCKETS": "false"}}
pytestmark = pytest.mark.parametrize("env", PROTOCOLS.values(), ids=PROTOCOLS.keys())
# busybox has no server that takes ten connections at once, so these run in the pod's network from outside:
# 7000 answers with all it was told, once it was told all; 7001 greets
SERVERS = """
import socketserver, threading
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        data = b""
        while piece := self.request.recv(65536):
            data += piece
        self.request.sendall(data)
class Greet(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.sendall(b"hello\\n")
class Server(socketserver.ThreadingTCPServer):
    request_queue_size = 100
    daemon_threads = True
first, second = Server(("0.0.0.0", 7000), Echo), Server(("0.0.0.0", 7001), Greet)
threading.Thread(target=first.serve_forever, daemon=True).start()
print("ready", flush=True)
second.serve_forever()
"""


@pytest.fixture(scope="module")
def pod(streaming: Streaming) -> Iterator[str]:
    made = streaming.pod("ports", "sleep 3600")
    with servers(streaming, made):
        yield "ports"


@contextmanager
def servers(streaming: Streaming, made: dict[str, Any]) -> Iterator[None]:
    """Run the servers in the pod's network."""
    state = streaming.inspect(made)["State"]
    assert state["Running"], state
    argv = ["nsenter", "-t", str(state["Pid"]), "-n", sys.executable, "-c", SERVERS]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        try:
            yield
        finally:
            process.kill()


@contextmanager
def forwarded(streaming: Streaming, pod: str, env: dict[str, str], *ports: int) -> Iterator[list[int]]:
    """Run kubectl port-forward; yield the local ports."""
    process = streaming.popen("port-forward", f"pod/{pod}", *(f":{port}" for port in ports), env=env)
    assert process.stdout is not None
    try:
        found: list[int] = []
        while len(found) < len(ports):
            line = process.stdout.readline().decode()
            assert line, process.communicate()
            if match := re.match(r"Forwarding from 127.0.0.1:(\d+)", line):
                found.append(int(match[1]))
        yield found
    finally:
        process.terminate()
        process.communicate(timeout=60)


def talk(port: int, data: bytes) -> bytes:
    """Send ``data``, say that nothing more comes, return all that is answered."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as peer:

        def send() -> None:
            peer.sendall(data)
            peer.shutdown(socket.SHUT_WR)

        sender = threading.Thread(target=send)
        sender.start()
        answer = b""
        while piece := peer.recv(65536):
            answer += piece
        sender.join()
        return answer


def test_two_ports_and_many_connections(streaming: Streaming, pod: str, env: dict[str, str]) -> None:
    with forwarded(streaming, pod, env, 7000, 7001) as (echo, greeter):
        assert talk(greeter, b"") == b"hello\n"
        answers: list[bytes] = []
        threads = [
            threading.Thread(target=lambda each=each: answers.append(talk(echo, b"%d." % each * 50_000)))
            for each in range(10)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(answers) == sorted(b"%d." % each * 50_000 for each in range(10))
        assert talk(greeter, b"") == b"hello\n"


def test_a_port_nobody_listens_on(streaming: Streaming, pod: str, env: dict[str, str]) -> None:
    process = streaming.popen("port-forward", f"pod/{pod}", ":7999", env=env, stderr=subprocess.STDOUT)
    assert process.stdout is not None
    match = re.match(r"Forwarding from 127.0.0.1:(\d+)", process.stdout.readline().decode())
    assert match is not None
    try:
        with socket.create_connection(("127.0.0.1", int(match[1])), timeout=60) as peer:
            assert peer.recv(10) == b""
    finally:
        process.terminate()
    text = process.communicate(timeout=60)[0].decode()
    assert "error forwarding port 7999 to pod ports" in text
    assert "refused" in text
