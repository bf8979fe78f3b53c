"""Which requests the intake answers itself: none that might wait for somebody."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from minik8s_modules.api.kinds import API_SERVICE
from minik8s_modules.apiserver.aggregation.directory import Directory
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.board import Board, Place
from minik8s_modules.apiserver.http.incoming import Options
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.intake.framing import Whole
from minik8s_modules.apiserver.intake.heads import environ_of
from minik8s_modules.apiserver.serving.quick import Quick
from minik8s_modules.apiserver.verbs import writing
from minik8s_modules.store.cache import WatchCache

POD = "/api/v1/namespaces/default/pods/web"
KUBELET_PORT = 10250


@pytest.fixture
def quick(backend: Backend) -> Quick:
    return Quick(backend, Directory(backend.cache), KUBELET_PORT)


def environ(path: str, *headers: str, method: str = "GET", host: str = "localhost:6443") -> dict[str, Any]:
    head = "\r\n".join((f"{method} {path} HTTP/1.1", f"Host: {host}", *headers, "", ""))
    return environ_of(Whole(head.encode("latin-1"), b""), ("192.0.2.1", 40_000), ("192.0.2.2", 6443))


@pytest.mark.parametrize(
    "path",
    [
        POD,
        "/api/v1/nodes/n1",
        "/api/v1/namespaces/default",
        "/apis/apps/v1/namespaces/default/deployments/web",
        f"{POD}/",
    ],
)
def test_one_object_is_read_at_once(quick: Quick, path: str):
    assert quick(environ(path))


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/api/v1/pods", {}),
        ("/api/v1/namespaces/default/pods", {}),
        (f"{POD}?resourceVersion=99999999", {}),  # waits until that is known
        (f"{POD}?watch=true", {}),
        (f"{POD}/log", {}),  # asks the node
        (f"{POD}/proxy", {}),
        (f"{POD}/proxy/api/v1/namespaces/default/pods/web", {}),
        ("/api/v1/nodes/n1/proxy/metrics", {}),
        (f"{POD}/status", {}),
        ("/apis/metrics.k8s.io/v1beta1/nodes/n1", {}),  # asks gateways
        ("/apis/wardle.example.com/v1/flunders/x", {}),
        ("/api/v1/namespaces/default/pods/%C3%A4", {}),
        ("/api/v1/no-such-kind/x", {}),
        ("/readyz", {}),  # asks etcd
        ("/metrics", {}),
        ("//api/v1/nodes/n1", {}),
        (POD, {"method": "DELETE"}),
        (POD, {"method": "PUT"}),
        (POD, {"host": f"192.0.2.9:{KUBELET_PORT}"}),  # a node's address: its gateway is asked
    ],
)
def test_what_may_wait_for_somebody_is_left_to_a_thread(quick: Quick, path: str, fields: dict[str, str]):
    assert not quick(environ(path, **fields))


def test_an_upgrade_is_left_to_a_thread(quick: Quick):
    assert not quick(environ(POD, "Connection: Upgrade", "Upgrade: websocket"))


def test_what_an_extension_answers_is_left_to_a_thread_also_where_the_kind_is_known_here(backend: Backend):
    path = "/apis/apps/v1/namespaces/default/deployments/web"
    directory = Directory(backend.cache)
    quick = Quick(backend, directory, KUBELET_PORT)
    assert quick(environ(path))
    spec = {
        "group": "apps", "version": "v1", "groupPriorityMinimum": 2000, "versionPriority": 10,
        "service": {"namespace": "other", "name": "api"},
    }  # fmt: skip
    options = Options(dry_run=False, validation="Strict", warnings=[])
    made = {"metadata": {"name": "v1.apps"}, "spec": spec}
    writing.create(backend, Target(API_SERVICE), made, options)
    assert quick(environ(path)) is (directory.of(path) is None)


def test_a_worker_that_does_not_know_yet_what_another_has_written_leaves_it_to_a_thread(backend: Backend):
    board = Board(2)
    quick = Quick(replace(backend, place=Place(board, 0)), Directory(backend.cache), KUBELET_PORT)
    other = Place(board, 1)
    other.tell(backend.cache.revision)
    assert quick(environ(POD))
    other.tell(backend.cache.revision + 1)
    assert not quick(environ(POD))
    board.close()


def test_a_server_that_has_not_loaded_its_objects_leaves_it_to_a_thread(backend: Backend):
    cache = WatchCache(backend.store)
    assert not Quick(replace(backend, cache=cache), Directory(cache), KUBELET_PORT)(environ(POD))
