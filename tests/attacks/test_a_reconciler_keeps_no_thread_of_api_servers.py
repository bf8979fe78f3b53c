"""Attack: a node's own reconciler tells what it counted so slowly that API servers have no threads left."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from pathlib import Path

import pytest

from minik8s_modules.apiserver.http.settings import TlsFiles
from minik8s_modules.apiserver.nodes import kubelets
from minik8s_modules.apiserver.nodes.reconcilers import Endpoint, HttpsReconcilers
from minik8s_modules.reconcile.planning.planserver import CALLER, PlanFiles, PlanServer
from tests.support.pki import Authority

GIVEN_UP_S = 30.0
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


def test_an_answer_without_end_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubelets, "ANSWER_S", 1.0)
    authority = Authority(tmp_path, "cluster")
    own = authority.issue("own", "own", names=(OWN,))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(own.cert, own.key)
    listener = socket.create_server(("127.0.0.1", 0))

    def dribble() -> None:
        with context.wrap_socket(listener.accept()[0], server_side=True) as connection:
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            until = time.monotonic() + GIVEN_UP_S
            while time.monotonic() < until:
                try:
                    connection.sendall(b"#")
                except OSError:
                    return
                time.sleep(0.1)

    threading.Thread(target=dribble, daemon=True).start()
    begun_s = time.monotonic()
    with listener, pytest.raises(OSError, match=r"was not complete|timed out"):
        asker(authority).metrics(Endpoint("l", f"https://127.0.0.1:{listener.getsockname()[1]}", "n1"), "n1")
    assert time.monotonic() - begun_s < GIVEN_UP_S / 2
