"""The program of the pause container, compiled and talked to over its stdin and stdout, against real sockets."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.gateway.probing.checks import Check, Result, parse
from minik8s_modules.gateway.probing.wire import read_states, table_of
from tests.support.docker.pause import compiled, http_check

WAIT_S = 60
SERVING = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00" + b"\x00\x00\x07\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x02\x08"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("pause"))


class Pause:
    """The program at work."""

    def __init__(self, program: Path) -> None:
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.checks: dict[str, Check] = {}

    def declare(self, *raw: dict[str, Any], delay_s: float = 0) -> None:
        """Send a table."""
        checks = [parse(one) for one in raw]
        self.checks = {check.id: check for check in checks}
        assert self.process.stdin
        self.process.stdin.write(table_of([(check, delay_s) for check in checks], "1"))
        self.process.stdin.flush()

    def state(self) -> dict[str, Result]:
        """Return the next state told."""
        assert self.process.stdout
        return read_states(self.process.stdout.readline().decode(), self.checks)[1]

    def until(self, condition: Callable[[dict[str, Result]], bool]) -> dict[str, Result]:
        """Return the first state that fulfils the condition."""
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            found = self.state()
            if condition(found):
                return found
        raise AssertionError("not told")


@pytest.fixture
def pause(program: Path) -> Iterator[Pause]:
    made = Pause(program)
    guard = threading.Timer(WAIT_S + 5, made.process.kill)  # a read must not wait for ever
    guard.start()
    yield made
    guard.cancel()
    made.process.kill()
    made.process.communicate()


class Server:
    """Answers every connection with ``answer``; None leaves it open and silent."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.answer: bytes | None = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nok"
        self.asked: list[bytes] = []
        self.opened: list[socket.socket] = []
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.socket = socket.create_server((host, 0), family=family)
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            self.opened.append(connection)
            if self.answer is not None:
                with contextlib.suppress(OSError):  # who has read enough hangs up
                    self.asked.append(connection.recv(4096))
                    connection.sendall(self.answer)
                connection.close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    with contextlib.suppress(OSError):  # a test may have closed it
        made.socket.shutdown(socket.SHUT_RDWR)
    made.socket.close()
    for connection in made.opened:
        connection.close()


def test_a_probe_repeats_and_counts_by_its_thresholds(pause: Pause, server: Server):
    pause.declare(http_check("c/r", "127.0.0.1", server.port, period_s=0.1, success=2))
    assert pause.until(lambda found: found["c/r"].state == "success")["c/r"].streak == 2
    server.answer = b"HTTP/1.1 503 Busy\r\n\r\n"
    first = pause.until(lambda found: found["c/r"].streak < 0)["c/r"]
    assert first == Result("success", -1, "HTTP probe failed with statuscode: 503")
    assert pause.until(lambda found: found["c/r"].state == "failure")["c/r"].streak == -2
    assert len(server.asked) >= 4


def test_a_probe_asks_an_ipv6_address(pause: Pause):
    server = Server("::1")
    http, tcp = (http_check(f"c/{name}", "::1", server.port, period_s=0.1, failure=1) for name in "ht")
    pause.declare(http, {**{key: value for key, value in tcp.items() if key != "http"}, "tcp": tcp["http"]})
    pause.until(lambda found: {one.state for one in found.values()} == {"success"})
    assert f"Host: [::1]:{server.port}\r\n".encode() in b"".join(server.asked)
    server.socket.shutdown(socket.SHUT_RDWR)
    server.socket.close()
    found = pause.until(lambda found: {one.state for one in found.values()} == {"failure"})
    assert found["c/t"].message == f"dial tcp [::1]:{server.port}: connect: connection refused"


def test_a_refused_connection_is_told_with_its_cause(pause: Pause, server: Server):
    server.socket.shutdown(socket.SHUT_RDWR)
    server.socket.close()
    tcp = http_check("c/l", "127.0.0.1", server.port, period_s=0.1)
    pause.declare({**{key: value for key, value in tcp.items() if key != "http"}, "tcp": tcp["http"]})
    found = pause.until(lambda found: found["c/l"].state == "failure")["c/l"]
    assert found.message == f"dial tcp 127.0.0.1:{server.port}: connect: connection refused"


def test_a_silent_server_is_a_timeout(pause: Pause, server: Server):
    server.answer = None
    pause.declare(http_check("c/l", "127.0.0.1", server.port, timeout_s=0.2, period_s=0.3, failure=1))
    assert "context deadline exceeded" in pause.until(lambda found: found["c/l"].state == "failure")["c/l"].message


def test_nonsense_is_malformed(pause: Pause, server: Server):
    server.answer = b"SSH-2.0-OpenSSH_9.2\r\n"
    pause.declare(http_check("c/l", "127.0.0.1", server.port, failure=1))
    assert "malformed" in pause.until(lambda found: found["c/l"].state == "failure")["c/l"].message


def test_grpc_health_is_read(pause: Pause, server: Server):
    server.answer = SERVING + b"\x01"
    check = {key: value for key, value in http_check("c/l", "127.0.0.1", server.port).items() if key != "http"}
    check |= {"grpc": {"host": "127.0.0.1", "port": server.port, "service": ""}, "period_s": 0.1, "failure": 1}
    pause.declare(check)
    pause.until(lambda found: found["c/l"].state == "success")
    server.answer = SERVING + b"\x02"
    found = pause.until(lambda found: found["c/l"].state == "failure")["c/l"]
    assert found.message == 'service unhealthy (responded with "NOT_SERVING")'


def test_the_first_probe_waits_for_its_delay(pause: Pause, server: Server):
    began = time.monotonic()
    pause.declare(http_check("c/r", "127.0.0.1", server.port), delay_s=0.3)
    pause.until(lambda found: found["c/r"].state == "success")
    assert time.monotonic() - began > 0.29  # it counts milliseconds


def test_a_check_goes_on_when_the_table_is_sent_again_and_ends_when_it_is_not_in_it(pause: Pause, server: Server):
    check = http_check("c/r", "127.0.0.1", server.port)
    pause.declare(check)
    pause.until(lambda found: found["c/r"].state == "success")
    pause.declare(check, http_check("d/r", "127.0.0.1", server.port))
    assert pause.state()["c/r"].state == "success"
    pause.until(lambda found: found["d/r"].state == "success")
    pause.declare(http_check("d/r", "127.0.0.1", server.port))
    assert pause.state() == {"d/r": Result("success", 1)}


def test_lines_that_are_none_are_passed_over(pause: Pause, server: Server):
    assert pause.process.stdin
    pause.process.stdin.write(b"hello\n+ too short\n+ a http nowhere 1 0 1 1 1 1 -\n" + b"x" * 70_000 + b"\n")
    pause.declare(http_check("c/r", "127.0.0.1", server.port))
    pause.until(lambda found: set(found) == {"c/r"} and found["c/r"].state == "success")


def test_it_ends_politely(pause: Pause):
    pause.declare()
    assert pause.state() == {}  # it is up: before that the signal would end it by force
    pause.process.terminate()
    assert pause.process.wait(WAIT_S) == 0
