"""Attack: a node's reconciler answers so slowly, plans or what it counted, that API servers have no threads left."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from minik8s_modules.apiserver.http.settings import TlsFiles
from minik8s_modules.apiserver.nodes import reconcilers
from minik8s_modules.apiserver.nodes.reconcilers import Endpoint, HttpsReconcilers
from minik8s_modules.reconcile.planning.planserver import CALLER, PlanFiles, PlanServer
from tests.support.pki import Authority

GIVEN_UP_S = 120.0
OWN = "n1.node.minik8s.internal"


def asker(authority: Authority) -> HttpsReconcilers:
    caller = authority.issue("caller", CALLER)
    return HttpsReconcilers(TlsFiles(caller.cert, caller.key, authority.ca))


def test_what_a_nodes_reconciler_counted_is_read_by_its_name_alone(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "cluster")
    own = authority.issue("own", "own", names=(OWN,))
    server = PlanServer("127.0.0.1", 0, PlanFiles(own.cert, own.key, authority.ca), lambda _: None, {"n1": "a 1\n"}.get)
    server.start()
    url = f"https://127.0.0.1:{server.port}"
    try:
        asked = asker(authority)
        assert asked.metrics(Endpoint("l", url, "n1"), "n1") == "a 1\n"
        assert asked.metrics(Endpoint("l", url, "n1"), "n2") is None
        with pytest.raises(OSError, match="certificate"):
            asked.metrics(Endpoint("l", url, "n2"), "n2")
    finally:
        server.stop()


@contextlib.contextmanager
def slow(tmp_path: Path, authority: Authority, serve: Callable[[ssl.SSLSocket], None]) -> Iterator[Endpoint]:
    """Yield a node's reconciler that answers as ``serve`` does, again and again."""
    own = authority.issue("own", "own", names=(OWN,))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(own.cert, own.key)
    over = threading.Event()

    def run(listener: socket.socket) -> None:
        with contextlib.suppress(OSError), context.wrap_socket(listener.accept()[0], server_side=True) as connection:
            while not over.wait(0.1):
                serve(connection)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=run, args=(listener,), daemon=True)
        thread.start()
        yield Endpoint("l", f"https://127.0.0.1:{listener.getsockname()[1]}", "n1")
        over.set()
        thread.join(GIVEN_UP_S)


def dribble(connection: ssl.SSLSocket) -> None:
    connection.sendall(b"H")


def answer_without_end(connection: ssl.SSLSocket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + b"#" * 1000)


def test_what_was_counted_without_end_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcilers, "METRICS_S", 1.0)
    authority, begun_s = Authority(tmp_path, "cluster"), time.monotonic()
    with (
        slow(tmp_path, authority, answer_without_end) as endpoint,
        pytest.raises(OSError, match=r"was not complete|timed out"),
    ):
        asker(authority).metrics(endpoint, "n1")
    assert time.monotonic() - begun_s < GIVEN_UP_S / 2


@pytest.mark.parametrize("serve", [dribble, answer_without_end])
def test_a_plan_without_end_is_given_up(tmp_path: Path, serve: Callable[[ssl.SSLSocket], None]) -> None:
    authority, begun_s = Authority(tmp_path, "cluster"), time.monotonic()
    with slow(tmp_path, authority, serve) as endpoint, pytest.raises(OSError, match=r"was not complete|timed out"):
        asker(authority).ask(endpoint, {"objects": [], "nodes": []}, 1.0)
    assert time.monotonic() - begun_s < GIVEN_UP_S / 2


def test_a_question_that_nobody_takes_is_given_up(tmp_path: Path) -> None:
    authority, begun_s = Authority(tmp_path, "cluster"), time.monotonic()
    large = {"objects": ["x" * (1 << 20)] * 24, "nodes": []}
    with slow(tmp_path, authority, lambda _: None) as endpoint, pytest.raises(OSError, match="timed out"):
        asker(authority).ask(endpoint, large, 1.0)
    assert time.monotonic() - begun_s < GIVEN_UP_S / 2
