"""Our own client, informer and leader election against the real server."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from minik8s_modules.api.errors import AlreadyExists, Conflict, Forbidden, NotFound
from minik8s_modules.api.kinds import CONFIG_MAP, LEASE, SERVICE_ACCOUNT
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.client.api import ApiClient
from minik8s_modules.client.bearer import in_cluster
from minik8s_modules.client.informer import Informer
from minik8s_modules.runtime.leader import LeaderElector, Token
from tests.support.apiserver import ApiServerProcess
from tests.support.etcd import EtcdServer
from tests.support.pki import write_kubeconfig


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiServerProcess]:
    etcd = EtcdServer(tmp_path / "etcd").start()
    server = ApiServerProcess(tmp_path / "api", etcd.endpoint).start()
    yield server
    server.stop()
    etcd.stop()


@pytest.fixture
def client(api: ApiServerProcess) -> Iterator[ApiClient]:
    made = ApiClient.from_kubeconfig(api.kubeconfig)
    yield made
    made.close()


def _map(name: str, **data: str) -> JsonObject:
    return {"metadata": {"name": name, "namespace": "default"}, "data": data}


def test_the_errors_are_the_servers(client: ApiClient):
    made = client.create(CONFIG_MAP, _map("a"))
    with pytest.raises(AlreadyExists):
        client.create(CONFIG_MAP, _map("a"))
    client.update(CONFIG_MAP, {**made, "data": {"k": "v"}})
    with pytest.raises(Conflict):
        client.update(CONFIG_MAP, {**made, "data": {"k": "w"}})
    client.delete(CONFIG_MAP, "a", "default")
    with pytest.raises(NotFound):
        client.get(CONFIG_MAP, "a", "default")


def test_an_informer_misses_nothing_over_a_restart(api: ApiServerProcess, client: ApiClient):
    informer = Informer(client, CONFIG_MAP, "default")
    seen: list[tuple[str, str]] = []

    def note(old: JsonObject | None, new: JsonObject | None) -> None:
        obj = new or old
        assert obj is not None
        kind = "gone" if new is None else ("new" if old is None else "changed")
        seen.append((kind, obj["metadata"]["name"]))

    informer.add_handler(note)
    informer.start()
    assert informer.wait_synced(60)
    client.create(CONFIG_MAP, _map("a"))
    _until(lambda: ("new", "a") in seen)
    api.stop()
    api.start()
    client.create(CONFIG_MAP, _map("b"))
    client.delete(CONFIG_MAP, "a", "default")
    _until(lambda: ("gone", "a") in seen)
    informer.stop()
    assert seen == [("new", "a"), ("new", "b"), ("gone", "a")]
    assert informer.get("default", "b") is not None


def test_a_reconciler_leads_with_a_fencing_token(api: ApiServerProcess):
    path = write_kubeconfig(
        api.directory / "reconciler", api.url, api.authority.ca, api.identity("system:minik8s:reconciler")
    )
    client = ApiClient.from_kubeconfig(path)
    stop, tokens = threading.Event(), list[Token]()

    def lead(token: Token, lost: threading.Event) -> None:
        tokens.append(token)
        stop.set()
        lost.wait(10)

    LeaderElector(client, "minik8s-reconciler-default", fenced=True).run(stop, lead)
    (token,) = tokens
    assert token.epoch > 0
    assert token.revision > 0
    assert client.get(LEASE, "minik8s-reconciler-default", "kube-system")["spec"]
    client.close()


def _until(check, timeout_s: float = 15.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_pods_token_is_used_as_a_pod_would(api: ApiServerProcess, tmp_path: Path):
    url = urlsplit(api.url)
    account = {"metadata": {"name": "robot", "namespace": "default"}}
    admin = ApiClient.from_kubeconfig(api.kubeconfig)
    admin.create(SERVICE_ACCOUNT, account)
    asked = {**account, "spec": {"expirationSeconds": 600}}
    token = admin.create(SERVICE_ACCOUNT, asked, subresource="token")["status"]["token"]
    admin.close()
    (tmp_path / "token").write_text(token)
    (tmp_path / "ca.crt").write_bytes(api.authority.ca.read_bytes())
    environ = {"KUBERNETES_SERVICE_HOST": url.hostname or "", "KUBERNETES_SERVICE_PORT": str(url.port)}
    access = in_cluster(environ, tmp_path)
    assert access is not None
    client = ApiClient.of(access)
    try:
        with pytest.raises(Forbidden, match="system:serviceaccount:default:robot"):
            client.list(CONFIG_MAP, "default")
    finally:
        client.close()
