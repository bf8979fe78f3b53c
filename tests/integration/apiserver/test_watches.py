"""Watches over real connections: beginnings, resumption, selectors, bookmarks, forms, ends."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from tests.integration.apiserver.conftest import Namespace, pod
from tests.support.api_watch import ApiWatch

TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}


@pytest.fixture
def watches() -> Iterator[list[ApiWatch]]:
    opened: list[ApiWatch] = []
    yield opened
    for watch in opened:
        watch.close()


def _watch(namespace: Namespace, watches: list[ApiWatch], query: str = "", plural: str = "configmaps", **headers):
    watch = ApiWatch(namespace.server, namespace.path(plural) + query, headers or None)
    watches.append(watch)
    return watch


def _revision(namespace: Namespace) -> str:
    listed = namespace.server.request("GET", namespace.path("configmaps")).json
    return str(listed["metadata"]["resourceVersion"])


def test_the_head_comes_before_the_first_event(namespace: Namespace, watches):
    watch = _watch(namespace, watches, f"?resourceVersion={_revision(namespace)}")
    assert watch.response.status == 200
    assert watch.head_s < 8.0  # with no event, it would come when its client gives up, after 10 s


def test_without_a_revision_the_present_objects_come_first(namespace: Namespace, watches):
    namespace.create("a")
    namespace.create("b")
    watch = _watch(namespace, watches)
    assert watch.names(2) == [("ADDED", "a"), ("ADDED", "b")]
    namespace.create("c")
    assert watch.names(1) == [("ADDED", "c")]


def test_a_watch_resumes_after_a_revision_and_loses_nothing(namespace: Namespace, watches):
    path = namespace.path("configmaps", "a")
    revision = namespace.create("a").json["metadata"]["resourceVersion"]
    headers = {"Content-Type": "application/merge-patch+json"}
    namespace.server.request("PATCH", path, {"data": {"k": "v"}}, headers=headers)
    namespace.server.request("DELETE", path)
    watch = _watch(namespace, watches, f"?resourceVersion={revision}")
    (_, modified), (kind, deleted) = watch.next(), watch.next()
    assert modified["data"] == {"k": "v"}
    assert kind == "DELETED"
    assert int(deleted["metadata"]["resourceVersion"]) > int(modified["metadata"]["resourceVersion"])


def test_a_second_watcher_of_a_watched_resource_is_brought_up_to_date(namespace: Namespace, watches):
    revision = _revision(namespace)
    first = _watch(namespace, watches, f"?resourceVersion={revision}")
    namespace.create("a")
    assert first.names(1) == [("ADDED", "a")]
    second = _watch(namespace, watches, f"?resourceVersion={revision}")
    namespace.create("b")
    assert second.names(2) == [("ADDED", "a"), ("ADDED", "b")]
    assert first.names(1) == [("ADDED", "b")]


def test_other_namespaces_are_not_seen(namespace: Namespace, watches):
    watch = _watch(namespace, watches)
    namespace.server.request("POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": namespace.name}})
    namespace.create("mine")
    assert watch.names(1) == [("ADDED", "mine")]


def test_an_object_enters_and_leaves_a_selection(namespace: Namespace, watches):
    watch = _watch(namespace, watches, "?labelSelector=app%3Dweb")
    headers = {"Content-Type": "application/merge-patch+json"}
    path = namespace.path("configmaps", "a")
    namespace.create("a")
    for labels in ({"app": "web"}, {"app": "web", "x": "y"}, {"app": None}):
        namespace.server.request("PATCH", path, {"metadata": {"labels": labels}}, headers=headers)
    assert watch.names(3) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]


def test_one_object_is_watched_by_field_selector(namespace: Namespace, watches):
    watch = _watch(namespace, watches, "?fieldSelector=metadata.name%3Db")
    namespace.create("a")
    namespace.create("b")
    assert watch.names(1) == [("ADDED", "b")]


def test_initial_events_end_with_their_bookmark(namespace: Namespace, watches):
    namespace.create("a")
    query = "?sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"
    watch = _watch(namespace, watches, query)
    assert watch.names(1) == [("ADDED", "a")]
    kind, bookmark = watch.next()
    assert kind == "BOOKMARK"
    assert bookmark["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert bookmark["kind"] == "ConfigMap"


def test_a_revision_that_is_gone_answers_an_error_event(namespace: Namespace, watches):
    watch = _watch(namespace, watches, "?resourceVersion=1")
    kind, status = watch.next()
    assert (kind, status["code"], status["reason"]) == ("ERROR", 410, "Expired")
    assert watch.ended()


def test_a_revision_in_the_future_is_a_timeout_clients_know(namespace: Namespace, watches):
    watch = _watch(namespace, watches, "?resourceVersion=99999999")
    assert watch.response.status == 504
    assert b"ResourceVersionTooLarge" in watch.response.read()


def test_a_watch_ends_cleanly_after_its_timeout(namespace: Namespace, watches):
    began = time.monotonic()
    watch = _watch(namespace, watches, "?timeoutSeconds=1")
    assert watch.ended()  # its client gives up after 10 s without a word; unasked, a watch goes on for half an hour
    assert time.monotonic() - began > 0.9


def test_table_events(namespace: Namespace, watches):
    namespace.server.request("POST", namespace.path("pods"), pod("p"))
    watch = _watch(namespace, watches, plural="pods", **TABLE)
    kind, table = watch.next()
    assert (kind, table["kind"]) == ("ADDED", "Table")
    assert table["rows"][0]["cells"][0] == "p"


def test_events_come_through_both_event_groups(namespace: Namespace, watches):
    path = f"/apis/events.k8s.io/v1/namespaces/{namespace.name}/events"
    watch = ApiWatch(namespace.server, path)
    watches.append(watch)
    involved = {"kind": "Pod", "namespace": namespace.name, "name": "p"}
    event = {"metadata": {"name": "e"}, "involvedObject": involved, "message": "told", "type": "Normal"}
    assert namespace.server.request("POST", namespace.path("events"), event).code == 201
    kind, seen = watch.next()
    assert (kind, seen["note"], seen["apiVersion"]) == ("ADDED", "told", "events.k8s.io/v1")


def test_a_watcher_that_does_not_read_holds_nobody_up(namespace: Namespace, watches):
    sock = socket.create_connection(("127.0.0.1", namespace.server.port))
    deaf = namespace.server.context(namespace.server.admin).wrap_socket(sock, server_hostname="localhost")
    deaf.sendall(f"GET {namespace.path('configmaps')}?watch=1 HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    watch = _watch(namespace, watches)
    for index in range(30):
        namespace.create(f"big{index}", data={"k": "x" * 200_000})
    assert watch.names(30)[-1] == ("ADDED", "big29")
    deaf.close()


def test_a_list_and_a_watch_from_its_revision_miss_nothing(namespace: Namespace, watches):
    for round_number in range(10):
        namespace.create(f"a{round_number}")
        watch = _watch(namespace, watches, f"?resourceVersion={_revision(namespace)}")
        namespace.create(f"b{round_number}")
        assert watch.names(1) == [("ADDED", f"b{round_number}")]
