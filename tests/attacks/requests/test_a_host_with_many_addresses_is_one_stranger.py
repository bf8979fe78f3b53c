"""A host takes no more of the server by coming from each of the 2^64 addresses of its IPv6 network.

The attack: one connection from each of them. Each was a stranger of its own, held less than any user, and so displaced
the users' connections one after the other. The very connections of an intake, without the packets.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator

import pytest

from minik8s_modules.apiserver.http.settings import Limits
from minik8s_modules.apiserver.intake.charging import Charging
from minik8s_modules.apiserver.intake.connections import Connection
from minik8s_modules.apiserver.intake.limits import USER, Account, Admission
from minik8s_modules.base.metrics import Registry

JANE = Account("jane", USER)


class Served:
    """Charges connections and notes those that give way."""

    def __init__(self) -> None:
        self.closed: list[Connection] = []
        self._epoll = select.epoll()
        self._sock = socket.socket()
        self._charging = Charging(Admission(Limits(connections=100), Registry()), self._close, lambda *_: None)

    def connect(self, address: str, account: Account | None = None) -> Connection:
        """Connect from ``address``; with a certificate, as ``account``."""
        connection = Connection(self._sock, (address, 40_000), self._epoll, 0)
        self._charging.enter(connection)
        if account is not None:
            self._charging.move(connection, account)
        return connection

    def _close(self, connection: Connection) -> None:
        self.closed.append(connection)
        self._charging.leave(connection)

    def end(self) -> None:
        """Close the socket."""
        self._epoll.close()
        self._sock.close()


@pytest.fixture
def served() -> Iterator[Served]:
    made = Served()
    yield made
    made.end()


@pytest.mark.parametrize("pattern", ["2001:db8::{:x}", "2001:db8::{:x}:1:2:3", "fe80::{:x}%eth0", "::ffff:192.0.2.1"])
def test_its_connections_displace_each_other_and_no_users(served: Served, pattern: str):
    users = [served.connect("192.0.2.9", JANE), *(served.connect(f"2001:db8:1::{n}", JANE) for n in range(2))]
    for n in range(1, 300):
        served.connect(pattern.format(n))
    assert len(served.closed) == 302 - 100
    assert not set(users) & set(served.closed)
