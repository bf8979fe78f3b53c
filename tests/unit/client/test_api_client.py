"""Requests and answers of the client, against real sockets."""

from __future__ import annotations

import socket
import threading
import time
from dataclasses import replace
from typing import Any

import orjson
import pytest

from minik8s_modules.api.errors import Conflict, Expired, NotFound, ServiceUnavailable
from minik8s_modules.api.kinds import LEASE, NODE, POD
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.client import api as api_module
from minik8s_modules.client.api import ApiClient, resource_path
from minik8s_modules.client.errors import ApiUnreachable
from tests.unit.client.scripted_server import Handler, serving

STATUS = {"kind": "Status", "apiVersion": "v1", "status": "Failure"}


def pod(name: str, revision: str = "1") -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default", "resourceVersion": revision}}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (resource_path(POD), "/api/v1/pods"),
        (resource_path(POD, "default"), "/api/v1/namespaces/default/pods"),
        (resource_path(POD, "default", "a", "status"), "/api/v1/namespaces/default/pods/a/status"),
        (resource_path(NODE, "ignored", "n"), "/api/v1/nodes/n"),
        (resource_path(LEASE, "x", "l"), "/apis/coordination.k8s.io/v1/namespaces/x/leases/l"),
        (resource_path(POD, "default", "../../nodes"), "/api/v1/namespaces/default/pods/..%2F..%2Fnodes"),
    ],
)
def test_paths_follow_the_kind_and_names_cannot_leave_them(path: str, expected: str):
    assert path == expected


def test_a_list_reads_every_page_and_names_each_items_kind():
    pages = {
        "": {"metadata": {"continue": "next", "resourceVersion": "5"}, "items": [pod("a")]},
        "next": {"metadata": {"resourceVersion": "5"}, "items": [pod("b")]},
    }
    with serving(lambda h: h.json(pages["next" if "continue=next" in h.path else ""])) as server:
        found = ApiClient(server.url).list(POD, "default", label_selector="a in (b)", limit=1)
    assert [item["metadata"]["name"] for item in found.items] == ["a", "b"]
    assert {(item["apiVersion"], item["kind"]) for item in found.items} == {("v1", "Pod")}
    assert found.resource_version == "5"
    assert "labelSelector=a+in+%28b%29" in server.requests[0][1]
    assert "limit=1" in server.requests[0][1]


def test_a_list_keeps_of_each_page_what_is_wanted_before_it_asks_for_the_next():
    told: list[str] = []

    def page(handler: Handler) -> None:
        told.append(handler.path.partition("?")[2])
        more = "" if "continue" in handler.path else "next"
        handler.json({"metadata": {"continue": more, "resourceVersion": "5"}, "items": [pod("a"), pod("b")]})

    def keep(obj: JsonObject) -> JsonObject:
        told.append(obj["kind"])
        return {"small": True}

    with serving(page) as server:
        found = ApiClient(server.url).list(POD, limit=2, keep=keep)
    assert found.items == [{"small": True}] * 4
    assert told == ["limit=2", "Pod", "Pod", "limit=2&continue=next", "Pod", "Pod"]


def test_a_client_of_a_person_is_told_warnings_and_has_unknown_fields_refused(tmp_path):
    def answer(handler: Handler) -> None:
        handler.send_response(201)
        handler.send_header("Warning", '299 - "spec.x: \\"odd\\""')
        handler.send_header("Warning", '299 - "second"')
        handler.send_header("Content-Length", "2")
        handler.end_headers()
        handler.wfile.write(b"{}")

    with serving(answer) as server:
        file = tmp_path / "kubeconfig"
        cluster, context = {"server": server.url}, {"cluster": "c", "user": "u"}
        named = {"clusters": [{"name": "c", "cluster": cluster}], "contexts": [{"name": "x", "context": context}]}
        file.write_bytes(orjson.dumps({**named, "users": [{"name": "u", "user": {}}], "current-context": "x"}))
        collected: list[str] = []
        ApiClient.from_kubeconfig(file, warn=collected.append).create(POD, pod("a"))
        ApiClient.from_kubeconfig(file).create(POD, pod("a"))
    assert collected == ['spec.x: "odd"', "second"]
    assert ["fieldValidation=Strict" in path for _, path, *_ in server.requests] == [True, False]


@pytest.mark.parametrize(
    ("body", "code", "error", "message"),
    [
        (
            {**STATUS, "reason": "NotFound", "code": 404, "message": 'pods "a" not found'},
            404,
            NotFound,
            "pods",
        ),
        ({**STATUS, "reason": "Conflict", "code": 409, "message": "modified"}, 409, Conflict, "modified"),
        (b"upstream is down", 503, ServiceUnavailable, "upstream is down"),
    ],
)
def test_failures_are_raised_as_the_class_the_server_meant(body, code, error, message):
    with serving(lambda h: h.json(body, code)) as server, pytest.raises(error, match=message):
        ApiClient(server.url).get(POD, "a", "default")


def test_a_delete_carries_grace_and_preconditions():
    with serving(lambda h: h.json({})) as server:
        ApiClient(server.url).delete(POD, "a", "default", grace_s=0, uid="u", resource_version="7")
    method, path, body, _ = server.requests[0]
    assert (method, path) == ("DELETE", "/api/v1/namespaces/default/pods/a")
    options = orjson.loads(body)
    assert options["gracePeriodSeconds"] == 0
    assert options["preconditions"] == {"uid": "u", "resourceVersion": "7"}


def test_a_patch_names_its_type_and_its_manager():
    with serving(lambda h: h.json({})) as server:
        client = ApiClient(server.url, user_agent="tester")
        client.patch(POD, "a", "default", [], patch_type="json", subresource="status", dry_run=True)
    _, path, _, headers = server.requests[0]
    assert path == "/api/v1/namespaces/default/pods/a/status?fieldManager=tester&dryRun=All"
    assert headers["Content-Type"] == "application/json-patch+json"


def test_one_connection_serves_many_requests():
    peers = set()

    def answer(handler: Handler) -> None:
        peers.add(handler.client_address)
        handler.json({"metadata": {}})

    with serving(answer) as server:
        client = ApiClient(server.url)
        for _ in range(5):
            client.get(POD, "a", "default")
        client.close()
    assert len(peers) == 1


def test_head_and_body_of_a_write_come_at_once():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = ApiClient(f"http://127.0.0.1:{listening.getsockname()[1]}")
        asking = threading.Thread(target=lambda: client.create(POD, pod("a")))
        asking.start()
        connection, _ = listening.accept()
        with connection:
            head, _, body = connection.recv(65_536).partition(b"\r\n\r\n")
            connection.sendall(b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}")
        asking.join()
        client.close()
    assert head.startswith(b"POST /api/v1/namespaces/default/pods")
    assert orjson.loads(body) == pod("a")


def test_a_read_is_repeated_on_a_dropped_connection_and_a_write_is_not():
    def drop_first_of_each(handler: Handler) -> None:
        if [request[0] for request in handler.script.requests].count(handler.command) == 1:
            handler.close_connection = True
        else:
            handler.json({"metadata": {}})

    with serving(drop_first_of_each) as server:
        client = ApiClient(server.url)
        assert client.get(POD, "a", "default") == {"metadata": {}}
        with pytest.raises(ApiUnreachable, match="POST"):
            client.create(POD, pod("a"))
        assert [request[0] for request in server.requests] == ["GET", "GET", "POST"]


def test_a_refused_connection_and_a_cut_body_are_unreachable():
    def cut(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "100")
        handler.end_headers()
        handler.wfile.write(b'{"metadata"')
        handler.close_connection = True

    with serving(cut) as server, pytest.raises(ApiUnreachable):
        ApiClient(server.url).get(POD, "a", "default")
    with pytest.raises(ApiUnreachable) as refused:
        ApiClient(server.url).get(POD, "a", "default")
    told = f"GET {server.url}/api/v1/namespaces/default/pods/a: Failed to establish a new connection: "
    assert str(refused.value).startswith(told)


def watch_events(*pieces: bytes):
    def answer(handler: Handler) -> None:
        handler.start_chunks()
        for piece in pieces:
            handler.chunk(piece)
        handler.chunk(b"")

    return answer


def line(kind: str, obj: dict[str, Any]) -> bytes:
    return orjson.dumps({"type": kind, "object": obj}) + b"\n"


def test_watch_events_are_split_from_whatever_chunks_arrive():
    data = line("ADDED", pod("a", "2")) + line("MODIFIED", pod("a", "3")) + line("BOOKMARK", pod("", "9"))
    pieces = [data[index : index + 7] for index in range(0, len(data), 7)]
    with serving(watch_events(*pieces)) as server:
        watch = ApiClient(server.url).watch(POD, resource_version="1")
        events = [(event.type, event.object["metadata"]["resourceVersion"]) for event in watch]
    assert events == [("ADDED", "2"), ("MODIFIED", "3"), ("BOOKMARK", "9")]
    assert "allowWatchBookmarks=true" in server.requests[0][1]


def test_an_error_event_is_raised_as_its_class():
    gone = {**STATUS, "reason": "Expired", "code": 410, "message": "too old"}
    with serving(watch_events(line("ADDED", pod("a")), line("ERROR", gone))) as server:
        watch = ApiClient(server.url).watch(POD, resource_version="1")
        next(watch)
        with pytest.raises(Expired, match="too old"):
            next(watch)


def test_a_refused_watch_raises_at_once():
    gone = {**STATUS, "reason": "Expired", "code": 410, "message": "too old"}
    with serving(lambda h: h.json(gone, 410)) as server, pytest.raises(Expired):
        ApiClient(server.url).watch(POD, resource_version="1")


@pytest.mark.parametrize("data", [b'{"type": "ADDED", "object"\n', b"[]\n", b'{"kind": "Status"}\n'])
def test_lines_that_are_no_events_end_the_watch_as_cut(data: bytes):
    with serving(watch_events(data)) as server:
        watch = ApiClient(server.url).watch(POD, resource_version="1")
        with pytest.raises(ApiUnreachable, match="cut"):
            next(watch)


# with it, as of the API server, the connection lets its socket go
@pytest.mark.parametrize("ends", [{}, {"Connection": "close"}])
def test_a_watch_that_is_silent_longer_than_bookmarks_are_is_cut(monkeypatch: pytest.MonkeyPatch, ends: dict[str, str]):
    release = threading.Event()

    def answer(handler: Handler) -> None:
        handler.start_chunks(**ends)
        handler.chunk(line("ADDED", pod("a")))
        release.wait(60)
        handler.chunk(b"")

    monkeypatch.setattr(api_module, "_BOOKMARKS_S", 1.0)  # nobody waits for the real ones
    with serving(answer) as server:
        watch = ApiClient(server.url).watch(POD, resource_version="1", timeout_s=60)
        assert next(watch).type == "ADDED"
        with pytest.raises(ApiUnreachable, match="timed out"):
            next(watch)
        without = ApiClient(server.url).watch(POD, resource_version="1", bookmarks=False, timeout_s=60)
        threading.Timer(2.5, release.set).start()
        extended = ApiClient(server.url).watch(replace(POD, definition=""), resource_version="1", timeout_s=60)
        assert [[event.type for event in each] for each in (without, extended)] == [["ADDED"], ["ADDED"]]


def test_another_thread_can_close_a_waiting_watch():
    release = threading.Event()

    def answer(handler: Handler) -> None:
        handler.start_chunks()
        handler.chunk(line("ADDED", pod("a")))
        release.wait(120)

    with serving(answer) as server:
        watch = ApiClient(server.url).watch(POD, resource_version="1")
        assert next(watch).type == "ADDED"
        threading.Timer(0.05, watch.close).start()
        began = time.monotonic()
        assert list(watch) == []
        assert time.monotonic() - began < 60
        watch.close()
        release.set()
