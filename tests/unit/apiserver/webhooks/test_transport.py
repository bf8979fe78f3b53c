"""Connections to webhooks and extensions."""

from __future__ import annotations

import socket
import time

from minik8s_modules.apiserver.webhooks.places import Address
from minik8s_modules.apiserver.webhooks.transport import direct
from minik8s_modules.base.sockets import SOCKET_OPTIONS


def test_a_peer_without_power_is_noticed_although_nobody_sends() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        direct(Address("127.0.0.1", server.getsockname()[1]), time.monotonic() + 60) as made,
    ):
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        found = [(level, option, made.getsockopt(level, option)) for level, option, _ in SOCKET_OPTIONS]
    assert found == [*SOCKET_OPTIONS]
