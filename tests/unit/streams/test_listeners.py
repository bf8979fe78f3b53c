"""What the listeners do with the connections they accept."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from minik8s_modules.base.tls import server_context
from minik8s_modules.streams.connections import Connection
from minik8s_modules.streams.listener import StreamFiles, StreamServer
from minik8s_modules.streams.serving import Serving
from tests.support.pki import Authority
from tests.support.waiting import until

Answer = Callable[[Connection], Coroutine[Any, Any, None]]


def streams(files: StreamFiles, answer: Answer) -> StreamServer:
    made = StreamServer("127.0.0.1", 0, files, "/nowhere.sock")
    made._answer = answer  # type: ignore[assignment,method-assign]  # it asks a gateway
    return made


def serving(files: StreamFiles, answer: Answer) -> Serving:
    return Serving("test", "127.0.0.1", 0, server_context(*files), answer)


@pytest.mark.parametrize("make", [streams, serving])
def test_what_is_written_behind_other_bytes_is_sent_at_once(
    tmp_path: Path, make: Callable[[StreamFiles, Answer], StreamServer | Serving]
) -> None:
    authority, at_once = Authority(tmp_path, "ca"), list[int]()
    own = authority.issue("own", "minik8s-gateway")

    async def answer(client: Connection) -> None:
        accepted = client.writer.get_extra_info("socket")
        at_once.append(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    server = make(StreamFiles(own.cert, own.key, authority.ca), answer)
    server.start()
    try:
        context = ssl.create_default_context(cafile=str(authority.ca))
        context.load_cert_chain(own.cert, own.key)
        plain = socket.create_connection(("127.0.0.1", server.port), timeout=60)
        with context.wrap_socket(plain, server_hostname="localhost"):
            until(lambda: at_once)
    finally:
        server.stop()
    assert at_once == [1]
