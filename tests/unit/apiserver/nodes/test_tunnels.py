"""Bytes through the API server: both ways, bounded, and to the last one."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from minik8s_modules.api.errors import TooManyRequests
from minik8s_modules.apiserver.http.settings import Limits
from minik8s_modules.apiserver.intake.limits import USER, Account, Admission, Holder
from minik8s_modules.apiserver.nodes import tunnels as tunnels_module
from minik8s_modules.apiserver.nodes.tunnels import BUFFER_BYTES, Tunnels
from minik8s_modules.base.clock import SystemClock
from minik8s_modules.base.metrics import Registry

JANE = Holder(Account("jane", USER), "192.0.2.1")


class Ends(NamedTuple):
    """What the client and the gateway hold of a tunnel."""

    client: socket.socket
    gateway: socket.socket


@pytest.fixture
def tunnels() -> Iterator[Tunnels]:
    made = Tunnels(SystemClock(), Admission(Limits(streams_per_user=2), Registry()))
    made.start()
    yield made
    made.stop()
    assert made.count() == 0


def joined(tunnels: Tunnels) -> Ends:
    client, ours = socket.socketpair()
    gateway, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.settimeout(0)
    for end in (client, gateway):
        end.settimeout(60)
    tunnels.join(ours, theirs, JANE)
    return Ends(client, gateway)


def wait_until_none(tunnels: Tunnels) -> None:
    end = time.monotonic() + 60
    while tunnels.count():
        assert time.monotonic() < end
        time.sleep(0.01)


def read_all(end: socket.socket) -> bytes:
    found = b""
    while piece := end.recv(65536):
        found += piece
    return found


def test_bytes_go_both_ways(tunnels: Tunnels) -> None:
    ends = joined(tunnels)
    ends.client.sendall(b"question")
    assert ends.gateway.recv(100) == b"question"
    ends.gateway.sendall(b"answer")
    assert ends.client.recv(100) == b"answer"
    ends.client.close()
    assert ends.gateway.recv(1) == b""
    ends.gateway.close()
    wait_until_none(tunnels)


def test_the_gateways_end_comes_after_all_it_said(tunnels: Tunnels) -> None:
    ends = joined(tunnels)
    data = bytes(range(256)) * 20_000

    def send() -> None:
        ends.gateway.sendall(data)
        ends.gateway.close()

    sender = threading.Thread(target=send)
    sender.start()
    ends.client.sendall(b"nobody reads this")
    time.sleep(0.1)  # a slow reader
    assert read_all(ends.client) == data
    sender.join()
    ends.client.sendall(b"nor this")
    ends.client.close()
    wait_until_none(tunnels)


@pytest.mark.parametrize("said", [b"enough", bytes(3 * BUFFER_BYTES)])
def test_a_gateway_that_stops_reading_is_heard_to_its_end(tunnels: Tunnels, said: bytes) -> None:
    ends = joined(tunnels)

    def speak() -> None:
        ends.gateway.sendall(said)
        ends.gateway.close()

    speaker = threading.Thread(target=speak)
    sender = threading.Thread(target=ends.client.sendall, args=(bytes(4 * BUFFER_BYTES),))
    for each in (speaker, sender):
        each.start()
    assert read_all(ends.client) == said
    for each in (speaker, sender):
        each.join()
    ends.client.close()
    wait_until_none(tunnels)


def test_a_client_that_does_not_go_is_left_after_a_while(tunnels: Tunnels, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tunnels_module, "LINGER_S", 0.2)
    ends = joined(tunnels)
    ends.gateway.close()
    assert read_all(ends.client) == b""
    wait_until_none(tunnels)
    ends.client.close()


def test_a_slow_reader_holds_up_its_writer_and_nobody_else(tunnels: Tunnels) -> None:
    slow, quick = joined(tunnels), joined(tunnels)
    slow.gateway.settimeout(0)
    sent = 0
    quiet_since = time.monotonic()
    while time.monotonic() - quiet_since < 0.3:
        try:
            sent += slow.gateway.send(bytes(65536))
            quiet_since = time.monotonic()
        except BlockingIOError:
            time.sleep(0.01)
    assert sent < BUFFER_BYTES + 2_000_000  # what is held, and the kernel's own buffers
    quick.gateway.sendall(b"quick")
    assert quick.client.recv(10) == b"quick"
    for end in (*slow, *quick):
        end.close()
    wait_until_none(tunnels)


def test_stop_cuts_all(tunnels: Tunnels) -> None:
    ends = joined(tunnels)
    tunnels.stop()
    assert ends.client.recv(1) == b""
    assert ends.gateway.recv(1) == b""
    for end in ends:
        end.close()
    assert tunnels.failure()


def test_there_is_a_most(tunnels: Tunnels, monkeypatch: pytest.MonkeyPatch) -> None:
    tunnels.admit(JANE)
    monkeypatch.setattr(tunnels_module, "MOST", 0)
    with pytest.raises(TooManyRequests):
        tunnels.admit(JANE)
