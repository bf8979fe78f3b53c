"""Short writes that the intake's loop makes as errands: it serves others meanwhile, and what goes wrong is theirs."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from minik8s_modules.apiserver.http.settings import Limits, TlsFiles
from minik8s_modules.apiserver.intake import in_loop
from minik8s_modules.apiserver.intake.connections import Answer, Connection
from minik8s_modules.apiserver.intake.framing import Whole
from minik8s_modules.apiserver.intake.in_loop import ERRANDS, Answering
from minik8s_modules.apiserver.intake.intake import Intake
from minik8s_modules.apiserver.intake.limits import USER, Admission
from minik8s_modules.apiserver.intake.turns import OF_ONE
from minik8s_modules.apiserver.serving.server import make_context
from minik8s_modules.base import errands
from minik8s_modules.base.errands import Pause
from minik8s_modules.base.metrics import Registry
from tests.support.pki import Authority
from tests.support.waiting import until

THREADS = 64
SHARE = int(OF_ONE[USER] * THREADS)
DAEMON = "system:kube-scheduler"
POST = b"POST /%s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"
BY_THREAD, BY_ERRAND, ENDED = HEAD + b"later", HEAD + b"short", HEAD + b"ended"


class Served:
    """An intake whose errands wait until ``go_on``; what asks for /thread is left to threads, which wait, too."""

    def __init__(self, authority: Authority) -> None:
        self.authority = authority
        self.listener = socket.create_server(("127.0.0.1", 0))
        serving = authority.issue("server", "server")
        context = make_context(TlsFiles(serving.cert, serving.key, authority.ca))
        self._end, self._going_on = threading.Event(), threading.Event()
        self.pauses: list[Pause] = []
        self.begun: list[int] = []
        self._clients: list[ssl.SSLSocket] = []
        self._turns = 0
        admission = Admission(Limits(), Registry())
        self.intake = Intake([self.listener], lambda: context, admission, THREADS, self._answer, errand=self._errand)
        self._loop = threading.Thread(target=self._run)
        self._loop.start()

    def _run(self) -> None:
        while not self._end.is_set():
            self._turns += 1
            self.intake.turn()
        self.intake.stop(0)

    def _answer(self, _connection: Connection, _whole: Whole) -> Answer:
        self._going_on.wait(60)
        return Answer([BY_THREAD], keep=True)

    def _errand(self, _connection: Connection, whole: Whole) -> Answering | None:
        return None if whole.head.startswith(b"POST /thread") else self._short

    def _short(self, _connection: Connection, whole: Whole) -> Answer:
        self.begun.append(self._turns)
        if whole.head.startswith(b"POST /defect"):
            raise RuntimeError("a defect")
        here = errands.current()
        assert here is not None
        pause = Pause(here)
        self.pauses.append(pause)
        if self._going_on.is_set() or pause.wait(60):
            return Answer([BY_ERRAND], keep=True)
        return Answer([ENDED], keep=True)

    def go_on(self) -> None:
        """Let all go on that wait, and all that come."""
        self._going_on.set()
        for each in self.pauses:
            each.end()

    def connect(self, user: str) -> ssl.SSLSocket:
        """Connect as ``user``."""
        context = ssl.create_default_context(cafile=self.authority.ca)
        context.check_hostname = False
        certificate = self.authority.issue(f"user-{user.replace(':', '-')}", user)
        context.load_cert_chain(certificate.cert, certificate.key)
        plain = socket.create_connection(self.listener.getsockname(), timeout=60)
        self._clients.append(context.wrap_socket(plain))
        return self._clients[-1]

    def stop(self) -> None:
        """End the loop, and let nobody go on before."""
        self._end.set()
        self.intake.wake()
        self._loop.join(60)
        assert not self._loop.is_alive()

    def close(self) -> None:
        """End it, and all connections."""
        self._going_on.set()
        self.stop()
        for client in self._clients:
            client.close()
        self.listener.close()


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setattr(in_loop, "BEGINNING_S", 60.0)  # on a busy machine a turn may take longer: the rest has threads
    served = Served(Authority(tmp_path, "cluster"))
    yield served
    served.close()


def answered(client: ssl.SSLSocket, size: int = len(HEAD) + 5) -> bytes:
    data = b""
    while len(data) < size and (piece := client.recv(4096)):
        data += piece
    return data


def test_the_loop_serves_others_while_a_write_waits(served: Served):
    slow, other = served.connect("jane"), served.connect("joe")
    slow.sendall(POST % b"short")
    until(lambda: served.pauses)
    other.sendall(POST % b"short")
    until(lambda: len(served.pauses) == 2)
    served.pauses[1].end()
    assert answered(other) == BY_ERRAND
    served.pauses[0].end()
    assert answered(slow) == BY_ERRAND
    served.go_on()
    for _ in range(3):  # the connection is as good as new
        slow.sendall(POST % b"short")
        assert answered(slow) == BY_ERRAND


def test_a_flood_of_one_account_waits_in_line_and_others_come_in_between(served: Served):
    flood = [served.connect("jane") for _ in range(3 * SHARE)]
    for each in flood:
        each.sendall(POST % b"short")
    until(lambda: len(served.pauses) == SHARE)
    other = served.connect("joe")
    other.sendall(POST % b"short")
    until(lambda: len(served.pauses) == SHARE + 1)
    served.pauses[-1].end()
    assert answered(other) == BY_ERRAND
    assert len(served.pauses) == SHARE + 1
    served.go_on()
    found = [answered(each) for each in flood]
    assert found.count(BY_ERRAND) == SHARE
    assert found.count(BY_THREAD) == 2 * SHARE  # who stood in line has a thread
    flood[0].sendall(POST % b"short")
    assert answered(flood[0]) == BY_ERRAND


def test_few_begin_in_one_turn(served: Served):
    served.go_on()
    clients = [served.connect(DAEMON) for _ in range(3 * ERRANDS)]
    for _ in range(5):
        for each in clients:
            each.sendall(POST % b"short")
        for each in clients:
            assert answered(each) in {BY_ERRAND, BY_THREAD}
    assert 0 < max(served.begun.count(turn) for turn in served.begun) <= ERRANDS


def test_a_client_that_goes_while_its_write_waits_leaves_nothing_behind(served: Served):
    clients = [served.connect("jane") for _ in range(SHARE)]
    for each in clients:
        each.sendall(POST % b"short")
    until(lambda: len(served.pauses) == SHARE)
    for each in clients:
        each.close()
    served.go_on()
    until(lambda: served.intake.count() == 0)
    again = [served.connect("jane") for _ in range(SHARE)]  # there is room for as many as before
    for each in again:
        each.sendall(POST % b"short")
        assert answered(each) == BY_ERRAND


def test_a_defect_ends_the_connection_and_not_the_loop(served: Served):
    served.go_on()
    for _ in range(SHARE + 1):
        client = served.connect("jane")
        client.sendall(POST % b"defect")
        assert answered(client) == b""
    client = served.connect("jane")
    client.sendall(POST % b"short")
    assert answered(client) == BY_ERRAND


def test_a_server_that_stops_lets_writes_end_and_tells_their_clients(served: Served):
    client = served.connect("jane")
    client.sendall(POST % b"short")
    until(lambda: served.pauses)
    served.stop()
    assert answered(client) == ENDED
    assert client.recv(1) == b""


def test_requests_sent_together_are_answered_in_their_order(served: Served):
    served.go_on()
    client = served.connect("jane")
    client.sendall((POST % b"short" + POST % b"thread") * 20)
    data = answered(client, 40 * len(BY_ERRAND))
    assert data.replace(BY_ERRAND, b"e").replace(BY_THREAD, b"t") == b"et" * 20
