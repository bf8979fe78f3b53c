"""No lock is kept while an errand waits, but those made for it: another errand would stop the loop for ever."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, ClassVar

import pytest

from minik8s_modules.api.kinds import (
    CONFIG_MAP,
    CONTROLLER_REVISION,
    ENDPOINT_SLICE,
    EVENT,
    EVENTS_EVENT,
    JOB,
    LEASE,
    NAMESPACE,
    POD,
    POD_ADDRESS,
    REPLICA_SET,
    RESOURCE_QUOTA,
    Kind,
)
from minik8s_modules.apiserver.http.backend import Backend
from minik8s_modules.apiserver.http.incoming import Options
from minik8s_modules.apiserver.http.target import Target
from minik8s_modules.apiserver.serving.quick import SHORT
from minik8s_modules.apiserver.serving.startup import RequiredObject, ensure
from minik8s_modules.apiserver.verbs import writing
from minik8s_modules.base import errands
from minik8s_modules.base.clock import SystemClock
from minik8s_modules.base.errands import Pause
from minik8s_modules.store.cache import WatchCache
from minik8s_modules.store.interface import Entry, Put
from minik8s_modules.store.memory import MemoryStore
from tests.support.looped import Looped

TEMPLATE: dict[str, Any] = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
ONCE: dict[str, Any] = {**TEMPLATE, "spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}
ABOUT = {"kind": "Pod", "namespace": "default", "name": "web"}
NEW: dict[Kind, dict[str, Any]] = {
    POD: {"spec": TEMPLATE["spec"]},
    CONFIG_MAP: {"data": {"a": "b"}},
    LEASE: {"spec": {"holderIdentity": "me"}},
    EVENT: {"involvedObject": ABOUT, "reason": "R", "message": "m", "type": "Normal"},
    EVENTS_EVENT: {
        "regarding": ABOUT, "reason": "R", "note": "m", "type": "Normal", "action": "A",
        "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "e.io/c", "reportingInstance": "i",
    },
    ENDPOINT_SLICE: {"addressType": "IPv4", "endpoints": [], "ports": []},
    REPLICA_SET: {"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}},
    CONTROLLER_REVISION: {"revision": 1, "data": {"a": 1}},
    JOB: {"spec": {"template": ONCE}},
    POD_ADDRESS: {"spec": {"nodeName": "n1", "podUID": "u", "podNamespace": "default", "podName": "web"}},
}  # fmt: skip


class Watched:
    """A lock that says who has it."""

    held: ClassVar[dict[int, list[str]]] = {}
    """By lock, where it was taken by the thread that watches."""
    thread = 0

    def __init__(self) -> None:
        self._lock = _LOCK()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:  # noqa: FBT001, FBT002 - as of threading.Lock
        """Take it, and note by whom."""
        got = self._lock.acquire(blocking, timeout)
        if got and threading.get_ident() == Watched.thread:
            Watched.held[id(self)] = [f"{each.filename}:{each.name}" for each in traceback.extract_stack(limit=8)]
        return got

    def release(self) -> None:
        """Give it back."""
        Watched.held.pop(id(self), None)
        self._lock.release()

    def locked(self) -> bool:
        """Return whether somebody has it."""
        return self._lock.locked()

    def __enter__(self) -> bool:
        """Take it."""
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        """Give it back."""
        self.release()


_LOCK = threading.Lock


class Waits(MemoryStore):
    """A store whose errands wait for each write, and each read, until the end of the turn."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[list[str]] = []
        self.waits = 0

    def _wait(self) -> None:
        here = errands.current()
        if here is None:
            return
        self.waits += 1
        self.kept += [where for where in Watched.held.values() if not any("errands.py:held" in each for each in where)]
        pause = Pause(here)
        here.at_last(pause.end)
        pause.wait(60)

    def write(self, puts: Sequence[Put]) -> int:
        """Wait, and write."""
        self._wait()
        return super().write(puts)

    def get(self, key: str) -> Entry | None:
        """Wait, and read."""
        self._wait()
        return super().get(key)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    """A backend all of whose own locks are watched."""
    store = Waits()
    monkeypatch.setattr(threading, "Lock", Watched)
    Watched.thread = threading.get_ident()
    Watched.held.clear()
    store.create("/x", b"")
    cache = WatchCache(store)
    made = Backend(store, cache, SystemClock())
    monkeypatch.setattr(threading, "Lock", _LOCK)
    cache.start()
    assert cache.wait_ready(60)
    ensure(made, RequiredObject(NAMESPACE, "", "default", {}))
    yield made
    cache.stop()
    store.close()


def create(backend: Backend, kind: Kind, name: str, fields: dict[str, Any]) -> Any:
    options = Options(dry_run=False, validation="Strict", warnings=[])
    target = Target(kind, "default" if kind.namespaced else "")
    return writing.create(backend, target, {"metadata": {"name": name}, **fields}, options)


@pytest.mark.parametrize("quota", ["", "with a quota"])
def test_creates_keep_no_lock_while_they_wait(watched: Backend, quota: str):
    assert set(NEW) == SHORT
    hard = {"pods": "100", "count/configmaps": "100", "count/jobs.batch": "100"}
    if quota:
        create(watched, RESOURCE_QUOTA, "q", {"spec": {"hard": hard}})
        target = Target(RESOURCE_QUOTA, "default", "q", "status")
        status = {"hard": hard, "used": dict.fromkeys(hard, "0")}
        options = Options(dry_run=False, validation="Strict", warnings=[])
        writing.change(watched, target, lambda old: {**old, "status": status}, options)
    loop = Looped()
    for kind, fields in NEW.items():
        for number in range(2):
            name = f"{kind.plural}-{kind.group.partition('.')[0]}-{number}" if kind.namespaced else f"10.0.0.{number}"
            loop.begin(name, partial(create, watched, kind, name, fields))
    loop.until(lambda: len(loop.ended) == 2 * len(NEW))
    assert not [each for each in loop.results.values() if isinstance(each, Exception)]
    store = watched.store
    assert isinstance(store, Waits)
    assert store.waits >= 2 * len(NEW)
    assert store.kept == []
    loop.close()


def test_a_lock_that_is_kept_would_be_found(watched: Backend):
    loop = Looped()
    cache, store = watched.cache, watched.store
    assert isinstance(store, Waits)

    def careless() -> None:
        with cache._lock:
            store.get("/x")

    loop.begin("a", careless)
    loop.until(lambda: loop.ended)
    assert any("careless" in each for each in store.kept[0])
    loop.close()
