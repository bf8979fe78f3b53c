"""Workers repeat what raised and never die of it."""

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
    assert done.wait(5)
    workers.stop()
    assert tries == ["a"] * 3
    assert queue.failures("a") == 0
