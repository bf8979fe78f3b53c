"""An intake that stops: who waits at a socket that closes with it is taken first."""

from __future__ import annotations

import socket
import ssl

from minik8s_modules.apiserver.http.settings import Limits
from minik8s_modules.apiserver.intake.connections import Answer
from minik8s_modules.apiserver.intake.intake import Intake
from minik8s_modules.apiserver.intake.limits import Admission
from minik8s_modules.base.metrics import Registry

WAITING = 200


def test_all_who_wait_at_a_workers_own_socket_are_taken_before_it_closes():
    own = socket.create_server(("127.0.0.1", 0), backlog=WAITING)
    clients = [socket.create_connection(own.getsockname(), timeout=60) for _ in range(WAITING)]
    intake = Intake(
        [own],
        lambda: ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER),
        Admission(Limits(), Registry()),
        1,
        lambda _connection, _whole: Answer([], keep=False),
    )
    intake.stop(0, [own])
    assert {client.recv(1) for client in clients} == {b""}  # one that nobody accepts is reset
    for client in clients:
        client.close()
