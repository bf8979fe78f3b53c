"""Requests that the intake answers itself: while all threads are busy, in turns of accounts, and few at a time."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from minik8s_modules.apiserver.http.settings import Limits, TlsFiles
from minik8s_modules.apiserver.intake.connections import Answer, Connection
from minik8s_modules.apiserver.intake.framing import Whole
from minik8s_modules.apiserver.intake.in_loop import AT_ONCE
from minik8s_modules.apiserver.intake.intake import Intake
from minik8s_modules.apiserver.intake.limits import USER, Account, Admission
from minik8s_modules.apiserver.intake.turns import OF_ONE
from minik8s_modules.apiserver.serving.server import make_context
from minik8s_modules.base.metrics import Registry
from tests.support.pki import Authority
from tests.support.waiting import until

THREADS = 64
SHARE = int(OF_ONE[USER] * THREADS)
GET = b"GET /%s HTTP/1.1\r\nHost: localhost\r\n\r\n"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"
IN_A_THREAD, AT_ONCE_BODY = HEAD + b"later", HEAD + b"once."


class Served:
    """An intake whose threads answer when ``free`` is set; what asks for /slow is left to them."""

    def __init__(self, authority: Authority) -> None:
        self.authority = authority
        self.listener = socket.create_server(("127.0.0.1", 0))
        serving = authority.issue("server", "server")
        context = make_context(TlsFiles(serving.cert, serving.key, authority.ca))
        self.free, self._end = threading.Event(), threading.Event()
        self.at_once: list[int] = []
        self.begun: list[None] = []
        self._clients: list[ssl.SSLSocket] = []
        self._turns = 0
        admission = Admission(Limits(), Registry())
        self._intake = Intake([self.listener], lambda: context, admission, THREADS, self._answer, self._quick)
        self._loop = threading.Thread(target=self._run)
        self._loop.start()

    def _run(self) -> None:
        while not self._end.is_set():
            self._turns += 1
            self._intake.turn()
        self._intake.stop(0)

    def _answer(self, _connection: Connection, whole: Whole) -> Answer:
        self.begun.append(None)
        self.free.wait(60)
        return Answer([IN_A_THREAD], keep=True, account=Account("jane", USER) if b"Bearer good" in whole.head else None)

    def _quick(self, _connection: Connection, whole: Whole) -> Answer | None:
        if whole.head.startswith(b"GET /slow"):
            return None
        if whole.head.startswith(b"GET /defect"):
            raise RuntimeError("a defect")
        self.at_once.append(self._turns)
        return Answer([AT_ONCE_BODY], keep=True)

    def connect(self, user: str) -> ssl.SSLSocket:
        """Connect as ``user``; "" has no certificate."""
        context = ssl.create_default_context(cafile=self.authority.ca)
        context.check_hostname = False
        if user:
            certificate = self.authority.issue(f"user-{user.replace(':', '-')}", user)
            context.load_cert_chain(certificate.cert, certificate.key)
        plain = socket.create_connection(self.listener.getsockname(), timeout=60)
        self._clients.append(context.wrap_socket(plain))
        return self._clients[-1]

    def close(self) -> None:
        """End it, and all connections."""
        for client in self._clients:
            client.close()
        self.free.set()
        self._end.set()
        self._intake.wake()
        self._loop.join(60)
        self.listener.close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(Authority(tmp_path, "cluster"))
    yield served
    served.close()


def answered(client: ssl.SSLSocket, size: int = len(AT_ONCE_BODY)) -> bytes:
    data = b""
    while len(data) < size and (piece := client.recv(4096)):
        data += piece
    return data


def test_who_has_all_his_threads_waits_as_ever_and_others_are_answered_at_once(served: Served):
    busy = [served.connect("jane") for _ in range(SHARE)]
    for each in busy:
        each.sendall(GET % b"slow")
    until(lambda: len(served.begun) == SHARE)
    waiting, other = served.connect("jane"), served.connect("joe")
    waiting.sendall(GET % b"quick")
    for _ in range(3):  # jane's has been read by then
        other.sendall(GET % b"quick")
        assert answered(other) == AT_ONCE_BODY
    assert len(served.at_once) == 3
    served.free.set()
    for each in (*busy, waiting):
        assert answered(each) == IN_A_THREAD
    waiting.sendall(GET % b"quick")
    assert answered(waiting) == AT_ONCE_BODY
    waiting.sendall(GET % b"slow")
    assert answered(waiting) == IN_A_THREAD


def test_many_requests_sent_together_are_answered_in_their_order_and_few_of_them_in_one_turn(served: Served):
    served.free.set()
    client = served.connect("jane")
    client.sendall(GET % b"quick" * 40)
    data = answered(client, 40 * len(AT_ONCE_BODY))
    assert data.count(HEAD) == 40
    assert max(served.at_once.count(turn) for turn in served.at_once) <= AT_ONCE
    assert b"later" in data  # what is beyond that


def test_a_stranger_has_a_thread(served: Served):
    served.free.set()
    client = served.connect("")
    client.sendall(GET % b"quick")
    assert answered(client) == IN_A_THREAD
    assert not served.at_once


def test_each_request_with_a_token_has_a_thread_whosever_the_connection_has_been(served: Served):
    served.free.set()
    client = served.connect("")
    for token in ("good", "good", "unknown", "good"):
        client.sendall(b"GET /quick HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n" % token.encode())
        assert answered(client) == IN_A_THREAD
    assert not served.at_once


def test_a_defect_ends_the_connection_and_not_the_loop(served: Served):
    client = served.connect("jane")
    client.sendall(GET % b"defect")
    assert answered(client) == b""
    other = served.connect("joe")
    other.sendall(GET % b"quick")
    assert answered(other) == AT_ONCE_BODY
