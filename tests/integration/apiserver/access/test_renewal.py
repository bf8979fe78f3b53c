"""New certificates, of the API server and towards etcd, are taken up while it runs, and no request fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from minik8s_modules.store.etcd import RANGE, EtcdStore
from minik8s_modules.store.etcd_watch import WATCH
from minik8s_modules.store.stubs import rpc
from minik8s_modules.store.wire.connection import LOOK_S, Connections, Tls
from tests.support.apiserver import ApiServerProcess
from tests.support.etcd import EtcdServer
from tests.support.pki import Authority


class Renewable(NamedTuple):
    """An API server over TLS to its etcd, and the authority of the latter."""

    server: ApiServerProcess
    etcd: EtcdServer
    authority: Authority
    tls: Tls


@pytest.fixture
def renewable(tmp_path: Path) -> Iterator[Renewable]:
    """All of them running."""
    authority = Authority(tmp_path / "pki", "etcd")
    pair = authority.issue("server", "localhost")
    arguments = ["--cert-file", str(pair.cert), "--key-file", str(pair.key)]
    arguments += ["--trusted-ca-file", str(authority.ca), "--client-cert-auth"]
    etcd = EtcdServer(tmp_path / "etcd", scheme="https", arguments=arguments).start()
    tls = Tls(authority.ca, *authority.issue("client", "apiserver"))
    settings = {"endpoints": [etcd.endpoint], **{key: str(path) for key, path in tls._asdict().items()}}
    server = ApiServerProcess(tmp_path / "api", etcd.endpoint, etcd=settings).start()
    yield Renewable(server, etcd, authority, tls)
    server.stop()
    etcd.stop()


def test_no_request_fails_while_certificates_are_renewed(renewable: Renewable):
    server, stop = renewable.server, threading.Event()
    codes: list[int] = []
    failures: list[BaseException] = []

    def ask() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            body = {"metadata": {"name": f"c-{number}"}}
            try:
                codes.append(server.request("POST", "/api/v1/namespaces/default/configmaps", body).code)
            except OSError as error:
                failures.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        server.authority.issue("apiserver", "minik8s-apiserver")
        renewable.authority.issue("server", "localhost")
        renewable.authority.issue("client", "apiserver")
        time.sleep(3 * LOOK_S)
    finally:
        stop.set()
        thread.join()
    assert failures == []
    assert len(codes) > 20
    assert set(codes) == {201}


def test_a_renewed_certificate_makes_a_new_connection_and_the_old_one_goes_on(
    renewable: Renewable, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("minik8s_modules.store.wire.connection.LOOK_S", 0.0)
    connections = Connections([renewable.etcd.endpoint], renewable.tls)
    ask = partial(connections.read, RANGE, rpc.RangeRequest(key=b"nothing").SerializeToString())
    _, watching = connections.watching({})
    create = rpc.WatchRequest(create_request=rpc.WatchCreateRequest(key=b"nothing"))
    answers = watching.stream(WATCH, create.SerializeToString())
    assert rpc.WatchResponse.FromString(next(answers)).created
    ask()
    (former,) = connections._open.keys() - {watching}
    ask()
    renewable.authority.issue("client", "apiserver")
    ask()
    assert connections._open.keys() == {watching, former}, "the pair may be half written"
    ask()
    (fresh,) = connections._open.keys() - {watching}
    assert fresh is not former
    store = EtcdStore([renewable.etcd.endpoint], renewable.tls)
    store.create("nothing", b"{}")
    assert rpc.WatchResponse.FromString(next(answers)).events
    connections.end(watching)
    for each in (store, connections):
        each.close()
