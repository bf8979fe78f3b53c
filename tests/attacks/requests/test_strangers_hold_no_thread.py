"""Who has shown no credentials can wait as long as he may, but not in a thread, and not in anybody's way.

The attack: connections that stop in the middle of a TLS handshake or of a request's head. Each held one of the server's
128 threads for ten seconds, so 135 of them kept everybody out, administrators and daemons too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import psutil
import pytest

from tests.support.apiserver import ApiServerProcess
from tests.support.load.raw_clients import Crowd, client_hello, read_answer

STRANGERS = 330
PATIENCE_S = 10.0  # for a handshake, and for a head
HALF_A_HEAD = b"GET /version HTTP/1.1\r\nHost: x\r\nX-Slow: "

ATTACKS: dict[str, Callable[[Crowd], object]] = {
    "connections that say nothing": lambda crowd: crowd.silent(STRANGERS),
    "half a ClientHello": lambda crowd: crowd.silent(STRANGERS, client_hello(crowd.context)[:100]),
    "a ClientHello and nothing after it": lambda crowd: crowd.silent(STRANGERS, client_hello(crowd.context)),
    "no request after the handshake": lambda crowd: crowd.speaking(STRANGERS, b""),
    "half a head": lambda crowd: crowd.speaking(STRANGERS, HALF_A_HEAD),
    "half a body": lambda crowd: crowd.speaking(
        STRANGERS, b"POST /api/v1/namespaces HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nx"
    ),
}


def worker(server: ApiServerProcess) -> psutil.Process:
    (found,) = psutil.Process(server.pid).children()
    return found


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_administrator_is_answered_while_they_all_wait(server: ApiServerProcess, attack: str):
    server.request("GET", "/api/v1/nodes")
    before = worker(server).num_threads()
    waiting = threads = 0
    for _ in range(10):
        begun = time.monotonic()
        with Crowd(server) as crowd:
            ATTACKS[attack](crowd)
            for _ in range(10):
                assert server.request("GET", "/api/v1/nodes").code == 200
            waiting, threads = crowd.still_open(), worker(server).num_threads()
        if time.monotonic() - begun < PATIENCE_S:  # a machine busy enough to take longer is asked again
            break
    # the answer came although they wait, not because the server had meanwhile lost patience with them
    assert waiting > STRANGERS - 10
    assert threads < before + 10


def test_heads_that_come_a_byte_at_a_time_are_given_up(server: ApiServerProcess):
    stop = threading.Event()
    with Crowd(server) as crowd:
        crowd.speaking(150, HALF_A_HEAD)

        def drip() -> None:
            while not stop.wait(0.5):
                for sock in crowd.socks:
                    try:
                        sock.sendall(b"x")
                    except OSError:
                        continue

        thread = threading.Thread(target=drip)
        thread.start()
        try:
            for _ in range(10):
                assert server.request("GET", "/api/v1/nodes").code == 200
            until = time.monotonic() + 120  # the server allows a head 10 s, whatever comes meanwhile
            while crowd.still_open() and time.monotonic() < until:
                time.sleep(0.5)
            assert crowd.still_open() == 0
        finally:
            stop.set()
            thread.join()


def test_a_request_that_stops_in_the_middle_is_told_so(server: ApiServerProcess):
    with Crowd(server) as crowd:
        (sock,) = crowd.speaking(1, HALF_A_HEAD)
        code, headers, body = read_answer(sock)
        assert (code, headers["connection"]) == (408, "close")
        assert b"within 10 s" in body
