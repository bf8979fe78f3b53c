"""New certificates, of the API server and towards etcd, are taken up while it runs, and no request fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from minik8s_modules.store.connection import LOOK_S, Connections, Tls
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
    monkeypatch.setattr("minik8s_modules.store.connection.LOOK_S", 0.0)
    connections = Connections([renewable.etcd.endpoint], renewable.tls)
    _, former = connections.client()
    assert connections.client()[1] is former
    renewable.authority.issue("client", "apiserver")
    assert connections.client()[1] is former, "the pair may be half written"
    _, fresh = connections.client()
    assert fresh is not former
    for client in (former, fresh):
        assert client.get("nothing") == (None, None)
    connections.close()
