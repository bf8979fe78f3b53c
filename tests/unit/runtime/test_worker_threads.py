"""Workers repeat what raised and never die of it; there are as many as have something to do."""

from __future__ import annotations

import threading

import pytest

from minik8s_modules.base.backoff import Backoff
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.client.fake import passing_error
from minik8s_modules.runtime.queue import WorkQueue
from minik8s_modules.runtime.workers import Workers


@pytest.mark.parametrize("error", [TemporaryError("away"), passing_error(), KeyError("a defect")])
def test_a_sync_that_raises_is_tried_again(error):
    queue: WorkQueue[str] = WorkQueue(backoff=Backoff(0.001, 0.01))
    done, tries = threading.Event(), []

    def sync(key: str) -> None:
        tries.append(key)
        if len(tries) < 3:
            raise error
        done.set()

    workers = Workers(queue, sync, "test", count=2)
    workers.start()
    queue.add("a")
    assert done.wait(60)
    workers.stop()
    assert tries == ["a"] * 3
    assert queue.failures("a") == 0


def test_threads_begin_as_they_are_needed_up_to_their_count():
    queue: WorkQueue[str] = WorkQueue()
    under_way, go_on = threading.Semaphore(0), threading.Event()

    def sync(_key: str) -> None:
        under_way.release()
        go_on.wait(60)

    def begun() -> int:
        return sum(thread.name.startswith("begun-") for thread in threading.enumerate())

    workers = Workers(queue, sync, "begun", count=3)
    workers.start()
    assert begun() == 1
    for key in "abcd":
        queue.add(key)
    assert all(under_way.acquire(timeout=60) for _ in range(3))
    assert not under_way.acquire(timeout=0.1)
    assert begun() == 3
    go_on.set()
    assert under_way.acquire(timeout=60)
    workers.stop()
    assert begun() == 0


def test_a_machine_without_room_for_a_thread_stops_no_controller(monkeypatch: pytest.MonkeyPatch):
    queue: WorkQueue[str] = WorkQueue()
    synced, refused = threading.Semaphore(0), threading.Event()
    go_on = threading.Event()
    real = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if thread.name == "full-1" and not refused.is_set():
            refused.set()
            raise RuntimeError("can't start new thread")
        real(thread)

    def sync(key: str) -> None:
        synced.release()
        if key != "a":
            go_on.wait(60)

    monkeypatch.setattr(threading.Thread, "start", start)
    workers = Workers(queue, sync, "full", count=2)
    workers.start()
    queue.add("a")
    assert synced.acquire(timeout=60)
    assert refused.is_set()
    queue.add("b")
    queue.add("c")
    assert all(synced.acquire(timeout=60) for _ in range(2)), "two threads: the second begins with the next key"
    go_on.set()
    workers.stop()


def test_a_controller_that_cannot_begin_says_so(monkeypatch: pytest.MonkeyPatch):
    def start(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    workers = Workers(WorkQueue[str](), print, "none")
    with pytest.raises(RuntimeError, match="can't start new thread"):
        workers.start()
    workers.stop()
