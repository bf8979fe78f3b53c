"""The socket: who may connect, who is cut off, and what a stale one is worth."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.gateway.messages import Relist, Request
from minik8s_modules.gateway.server import WAITING_LINES, SocketServer


@pytest.fixture
def requests() -> queue.Queue[Request]:
    return queue.Queue()


@pytest.fixture
def server(tmp_path: Path, requests: queue.Queue[Request]) -> Iterator[SocketServer]:
    server = SocketServer(tmp_path / "s.sock", requests.put, lambda publish: publish({"op": "hello"}))
    server.start()
    yield server
    server.stop()


@contextlib.contextmanager
def client(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(60)
        connection.connect(str(tmp_path / "s.sock"))
        yield connection


def test_a_client_is_greeted_and_heard_and_told(server, tmp_path, requests):
    with client(tmp_path) as one, client(tmp_path) as two, one.makefile("rb") as lines, two.makefile("rb") as others:
        assert orjson.loads(lines.readline()) == orjson.loads(others.readline()) == {"op": "hello"}
        one.sendall(b'{"op":"relist","node":"n"}\n')
        assert requests.get(timeout=60) == Relist("n")
        server.publish({"op": "images", "node": "n"})
        assert orjson.loads(lines.readline()) == orjson.loads(others.readline()) == {"op": "images", "node": "n"}


def test_a_client_that_sends_nonsense_is_told_and_cut_off_alone(server, tmp_path, requests):
    with client(tmp_path) as bad, client(tmp_path) as good, bad.makefile("rb") as result:
        result.readline()
        bad.sendall(b"nonsense\n")
        assert orjson.loads(result.readline())["op"] == "error"
        assert result.readline() == b""
        good.sendall(b'{"op":"relist","node":"n"}\n')
        assert requests.get(timeout=60) == Relist("n")


def test_a_client_that_does_not_read_is_cut_off_and_blocks_nobody(server, tmp_path):
    with client(tmp_path) as lazy, client(tmp_path) as good, good.makefile("rb") as lines:
        lines.readline()
        message = {"op": "x", "fill": "y" * 2000}
        read = threading.Thread(target=lambda: [lines.readline() for _ in range(WAITING_LINES + 500)])
        read.start()
        began = time.monotonic()
        for number in range(WAITING_LINES + 500):
            server.publish(message)
            if number % 500 == 0:
                time.sleep(0.01)
        read.join(120)
        assert not read.is_alive()
        assert time.monotonic() - began < 120
        with contextlib.suppress(ConnectionError):
            while lazy.recv(1 << 20):
                pass
        good.sendall(b'{"op":"relist","node":"n"}\n')


def test_only_its_own_user_and_group_may_connect(server, tmp_path):
    assert (tmp_path / "s.sock").stat().st_mode & 0o777 == 0o660


def test_a_stale_socket_is_replaced_and_a_living_one_is_not(tmp_path):
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(tmp_path / "s.sock"))
    first = SocketServer(tmp_path / "s.sock", lambda _: None, lambda _: None)
    first.start()
    with pytest.raises(ConfigurationError, match="another gateway"):
        SocketServer(tmp_path / "s.sock", lambda _: None, lambda _: None)
    with client(tmp_path):
        pass
    first.stop()
    assert not (tmp_path / "s.sock").exists()
    second = SocketServer(tmp_path / "s.sock", lambda _: None, lambda _: None)
    second.start()
    second.stop()


def test_a_directory_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match="missing"):
        SocketServer(tmp_path / "missing" / "s.sock", lambda _: None, lambda _: None)
