"""A client that knows several API servers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from minik8s_modules.api.kinds import POD, Kind
from minik8s_modules.base.clock import FakeClock
from minik8s_modules.base.config import Configuration
from minik8s_modules.base.errors import ConfigurationError
from minik8s_modules.client.api import ApiClient
from minik8s_modules.client.configured import access_of
from minik8s_modules.client.errors import ApiUnreachable
from minik8s_modules.client.kubeconfig import Access
from minik8s_modules.client.servers import RETURN_S, Servers
from tests.support.etcd import free_port
from tests.unit.client.scripted_server import Handler, Server, serving

HANGING = Kind("e.io", "v1", "Thing", "things", "")
BODY = {"metadata": {"name": "a", "namespace": "default"}}
PATIENCE_S = 1.5


def client(*servers: str, timeout_s: float = 0.0) -> ApiClient:
    return ApiClient.of(Access(servers[0], b"", b"", b"", others=servers[1:]), timeout_s=timeout_s)


def nobody() -> str:
    return f"http://127.0.0.1:{free_port()}"


def asked(server: Server) -> list[str]:
    return [method for method, *_ in server.requests]


def test_the_first_is_asked_again_after_a_while():
    clock = FakeClock()
    servers = Servers(3, clock)
    servers.failed(0)
    assert servers.current() == 1
    servers.failed(0)  # a slower call's
    assert servers.current() == 1
    servers.failed(1)
    assert servers.current() == 2
    clock.advance(RETURN_S)
    assert servers.current() == 0


def test_of_one_server_there_is_no_other():
    servers = Servers(1, FakeClock())
    servers.failed(0)
    assert servers.current() == 0


def test_reads_and_writes_go_to_the_next_server_when_one_is_not_there():
    with serving(lambda h: h.json(BODY)) as second:
        api = client(nobody(), nobody(), second.url)
        assert api.get(POD, "a", "default")["metadata"]["name"] == "a"
        api.create(POD, BODY)
        api.watch(POD, resource_version="1").close()
    assert asked(second) == ["GET", "POST", "GET"]


def test_nobody_there_is_told_with_the_last_address():
    servers = [nobody(), nobody()]
    with pytest.raises(ApiUnreachable, match=servers[1]):
        client(*servers).get(POD, "a", "default")


def test_a_write_that_may_have_been_done_is_not_made_elsewhere():
    def hang_up(handler: Handler) -> None:
        handler.connection.shutdown(socket.SHUT_RDWR)
        handler.close_connection = True

    with serving(hang_up) as first, serving(lambda h: h.json(BODY)) as second:
        with pytest.raises(ApiUnreachable):
            client(first.url, second.url).create(POD, BODY)
        assert second.requests == []


def test_a_server_that_keeps_silent_is_passed_over():
    with socket.create_server(("127.0.0.1", 0)) as silent, serving(lambda h: h.json(BODY)) as second:
        api = client(f"http://127.0.0.1:{silent.getsockname()[1]}", second.url, timeout_s=PATIENCE_S)
        with pytest.raises(ApiUnreachable):
            api.create(POD, BODY)  # nobody knows whether it was taken
        api.create(POD, BODY)
    assert asked(second) == ["POST"]


def test_a_watch_is_not_awaited_longer_than_other_answers_and_asked_elsewhere():
    release = threading.Event()

    def late(handler: Handler) -> None:
        release.wait(20)
        handler.json(BODY)

    with serving(late) as first, serving(lambda h: h.json(BODY)) as second:
        client(first.url, second.url, timeout_s=PATIENCE_S).watch(POD, resource_version="1", timeout_s=60).close()
        release.set()
    assert asked(second) == ["GET"]


@pytest.mark.parametrize(("ready", "elsewhere"), [(200, False), (500, True)])
def test_a_server_that_waits_for_somebody_else_stays_unless_it_is_not_ready(ready, elsewhere):
    release = threading.Event()

    def waits(handler: Handler) -> None:
        """Pass on what an extension, a webhook or a node does not answer."""
        if handler.path == "/readyz":
            handler.json({}, ready)
        elif handler.path.startswith("/apis/e.io/") or handler.command == "POST":
            release.wait(20)
        else:
            handler.json(BODY)

    with serving(waits) as first, serving(lambda h: h.json(BODY)) as second:
        calls: list[Callable[[ApiClient], object]] = [
            lambda api: api.get(HANGING, "a", "default"),
            lambda api: api.watch(HANGING, resource_version="1").close(),
            lambda api: api.create(POD, BODY),
        ]
        for call in calls:
            api = client(first.url, second.url, timeout_s=PATIENCE_S)
            with nullcontext() if elsewhere and call is not calls[2] else pytest.raises(ApiUnreachable):
                call(api)
            api.get(POD, "a", "default")
        release.set()
    assert asked(second) == (["GET", "GET", "GET", "GET", "GET"] if elsewhere else [])
    assert [path for _, path, *_ in first.requests].count("/readyz") == len(calls)


@pytest.mark.parametrize(("timeout_s", "elsewhere_s"), [(3600, 600), (1800, 300), (1000, 300), (20, 20)])
def test_watches_elsewhere_end_sooner_so_that_they_return_to_the_first(timeout_s: int, elsewhere_s: int):
    with serving(lambda h: h.json(BODY)) as server:
        for servers in ((server.url, nobody()), (nobody(), server.url)):
            api = client(*servers)
            api.watch(POD, resource_version="1", timeout_s=timeout_s).close()
            api.watch(POD, resource_version="1", timeout_s=timeout_s).close()
    asked_for = [parse_qs(path.partition("?")[2])["timeoutSeconds"] for _, path, *_ in server.requests]
    assert asked_for == [[str(each)] for each in (timeout_s, timeout_s, elsewhere_s, elsewhere_s)]


def test_thousands_are_deleted_by_many_short_requests():
    tokens = iter(["a b", "old", "", None])

    def some(handler: Handler) -> None:
        if handler.path.endswith("continue=old"):
            next(tokens)
            handler.json({"kind": "Status", "reason": "Expired", "code": 410}, 410)
            return
        handler.json({"kind": "PodList", "items": [], "metadata": {"continue": next(tokens)}})

    with serving(some) as server:
        client(server.url).delete_collection(POD, "default")
    asked_for = [path.partition("?")[2] for _, path, *_ in server.requests]
    assert asked_for == ["limit=100", "limit=100&continue=a+b", "limit=100&continue=old", "limit=100"]


KUBECONFIG = """
current-context: c
contexts: [{name: c, context: {cluster: k, user: u}}]
clusters: [{name: k, cluster: {server: "https://127.0.0.1:6443"}}]
users: [{name: u, user: {token: t}}]
"""


def configuration(folder: Path, **keys: object) -> Configuration:
    path = folder / "kubeconfig"
    path.write_text(KUBECONFIG)
    return Configuration({"kubeconfig": str(path), **keys}, "scheduler.yml")


def test_a_configuration_may_name_servers_beside_the_kubeconfig(tmp_path: Path):
    alone = access_of(configuration(tmp_path))
    assert (alone.server, alone.others) == ("https://127.0.0.1:6443", ())
    named = access_of(configuration(tmp_path, servers=["https://127.0.0.1:6443", "https://192.0.2.2:6443/"]))
    assert (named.server, named.others) == ("https://127.0.0.1:6443", ("https://192.0.2.2:6443",))


def test_a_server_must_be_a_url(tmp_path: Path):
    with pytest.raises(ConfigurationError, match=r"192\.0\.2\.2"):
        access_of(configuration(tmp_path, servers=["192.0.2.2:6443"]))
