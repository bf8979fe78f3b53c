"""Looking after APIServices: what is deleted, what wakes, and who is waited for."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from typing import Any

import orjson
import pytest

from minik8s_modules.api.access import api_services
from minik8s_modules.api.errors import NotFound
from minik8s_modules.api.kinds import API_SERVICE, LEASE
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.apiserver.aggregation import keeping as keepings
from minik8s_modules.apiserver.aggregation.directory import Directory
from minik8s_modules.apiserver.aggregation.keeping import Keeping
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.incoming import Options
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.verbs import deleting, writing
from minik8s_modules.store.cached import CachedObject, CacheEvent
from tests.support.waiting import until

OPTIONS = Options(dry_run=False, validation="Strict", warnings=[])


class Silent:
    """Extensions that do not answer until they are ``released``."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.answers: list[Future[tuple[int, bytes]]] = []

    def fetch(self, *_: Any) -> Future[tuple[int, bytes]]:
        """Return an answer to come."""
        self.answers.append(Future())
        self.asked.set()
        return self.answers[-1]

    def release(self) -> None:
        """Answer."""
        for each in self.answers:
            each.set_result((503, b""))


@pytest.fixture
def silent() -> Silent:
    return Silent()


@pytest.fixture
def keeping(backend: Backend, silent: Silent) -> Keeping:
    return Keeping(backend, Directory(backend.cache), silent, "192.0.2.1:6443")  # type: ignore[arg-type]


def make(backend: Backend, obj: JsonObject) -> None:
    writing.create(backend, Target(API_SERVICE), obj, OPTIONS)
    until(lambda: backend.cache.get(API_SERVICE.key("", obj["metadata"]["name"])))


def exists(backend: Backend, name: str) -> bool:
    try:
        backend.get(Target(API_SERVICE, "", name))
    except NotFound:
        return False
    return True


def test_servers_of_two_releases_leave_each_other_their_groups(backend: Backend, keeping: Keeping) -> None:
    old, new = (api_services.local("old.k8s.io", version, custom=False) for version in ("v1", "v2"))
    make(backend, old)
    keeping.look()
    until(lambda: backend.cache.get(API_SERVICE.key("", "v1.apps")))
    assert not exists(backend, "v1.old.k8s.io")  # left by a release that had it
    make(backend, old)  # but a server of that release still runs
    make(backend, new)
    custom = api_services.local("gone.example.com", "v1", custom=True)
    make(backend, custom)
    keeping.look()
    assert exists(backend, "v1.old.k8s.io")
    assert exists(backend, "v2.old.k8s.io")
    assert not exists(backend, "v1.gone.example.com")  # of a CustomResourceDefinition that was deleted


def test_discovery_does_not_wait_for_an_extension(
    backend: Backend, keeping: Keeping, silent: Silent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Keeping, "_missing", lambda *_: None)  # its Service and endpoints are all there
    service = {"namespace": "wardle", "name": "api"}
    spec = {"group": "g.example.com", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1}
    make(backend, {"metadata": {"name": "v1.g.example.com"}, "spec": {**spec, "service": service}})
    looking = threading.Thread(target=keeping.look)
    looking.start()
    assert silent.asked.wait(60)
    collected: list[Any] = []
    reader = threading.Thread(target=lambda: collected.append(keeping.offers()))
    reader.start()
    reader.join(60)
    assert [each.remote.name for each in collected[0]] == ["v1.g.example.com"]
    assert looking.is_alive()
    silent.release()
    looking.join(60)
    assert not looking.is_alive()


class Answering:
    """Extensions that offer what they should."""

    def fetch(self, *_: Any) -> Future[tuple[int, bytes]]:
        """Return an answer."""
        listed = {"kind": "APIResourceList", "groupVersion": "g.example.com/v1", "resources": []}
        answer: Future[tuple[int, bytes]] = Future()
        answer.set_result((200, orjson.dumps(listed)))
        return answer


def test_a_server_looks_on_until_the_condition_is_what_it_found(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Keeping, "_missing", lambda *_: None)  # its Service and endpoints are all there
    keeping = Keeping(backend, Directory(backend.cache), Answering(), "192.0.2.2")  # type: ignore[arg-type]
    lease = Target(LEASE, "kube-system", "apiserver-192.0.2.1")
    writing.create(backend, lease, {"metadata": {"name": lease.name, "namespace": lease.namespace}}, OPTIONS)
    until(lambda: backend.cache.get(LEASE.key(lease.namespace, lease.name)))
    service = {"namespace": "wardle", "name": "api"}
    spec = {"group": "g.example.com", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1}
    make(backend, {"metadata": {"name": "v1.g.example.com"}, "spec": {**spec, "service": service}})

    def available() -> bool:
        return [each.available for each in Directory(backend.cache).remotes.values()] == [True]

    assert not keeping.look()
    assert not available()  # another server writes that
    deleting.delete(backend, lease, {}, OPTIONS)
    until(lambda: not backend.cache.get(LEASE.key(lease.namespace, lease.name)))
    keeping.look()
    until(available)
    assert keeping.look()


def event(before: JsonObject | None, now: JsonObject) -> CacheEvent:
    def cached(obj: JsonObject) -> CachedObject:
        key = f"{API_SERVICE.prefix}v1.g"
        return CachedObject(key, orjson.dumps(obj), 1, (obj.get("metadata") or {}).get("labels") or {})

    previous = cached(before) if before is not None else None
    return CacheEvent("MODIFIED" if before else "ADDED", f"{API_SERVICE.prefix}v1.g", 2, cached(now), previous)


@pytest.mark.parametrize(
    ("before", "now", "wakes"),
    [
        (None, {"spec": {"a": 1}}, True),
        ({"spec": {"a": 1}}, {"spec": {"a": 2}}, True),
        ({"spec": {"a": 1}}, {"spec": {"a": 1}, "metadata": {"labels": {"x": "y"}}}, True),
        ({"spec": {"a": 1}}, {"spec": {"a": 1}, "status": {"conditions": [{"status": "True"}]}}, False),
    ],
)
def test_a_status_alone_wakes_nobody(
    keeping: Keeping, before: JsonObject | None, now: JsonObject, *, wakes: bool
) -> None:
    keeping._on_event(event(before, now))
    assert keeping._wake.is_set() is wakes


def test_changes_without_end_have_extensions_asked_now_and_then(
    backend: Backend, keeping: Keeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keepings, "AGAIN_S", 0.2)
    keeping._wake.set()
    began = time.monotonic()
    keeping._rest(30.0)
    assert time.monotonic() - began >= 0.2
