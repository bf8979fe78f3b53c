"""HOST:PORT with addresses of both families."""

from __future__ import annotations

import socket
import ssl

import pytest

from minik8s_modules.base.https import HttpsHandler, HttpsServer
from minik8s_modules.base.places import parse_place, place
from minik8s_modules.base.sockets import listening, way_out


@pytest.mark.parametrize("host", ["192.0.2.1", "2001:db8::1", "control1", "::"])
def test_what_was_written_is_read(host: str) -> None:
    assert parse_place(place(host, 6443)) == (host, "6443")


@pytest.mark.parametrize("text", ["2001:db8::1:6443", ":6443", "6443"])
def test_a_place_without_a_host_has_none(text: str) -> None:
    assert parse_place(text)[0] == ""


def test_the_way_to_an_address_of_either_family_leaves_from_one_of_that_family() -> None:
    assert (way_out("127.0.0.1", 1), way_out("::1", 1)) == ("127.0.0.1", "::1")


def test_what_a_listener_accepts_sends_at_once() -> None:
    for host in ("127.0.0.1", "::1"):
        with listening(host, 0) as listener, socket.create_connection(listener.getsockname()[:2]):
            accepted, _ = listener.accept()
            with accepted:
                assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_servers_of_daemons_listen_at_addresses_of_both_families() -> None:
    for host in ("127.0.0.1", "::1"):
        server = HttpsServer((host, 0), HttpsHandler, ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), "test")
        assert server.server_address[0] == host
        server.server_close()
