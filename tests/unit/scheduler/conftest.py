"""A scheduler at work on an API in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from minik8s_modules.client.fake import FakeApi
from minik8s_modules.runtime.events import EventRecorder
from minik8s_modules.runtime.leader import Token
from minik8s_modules.scheduler.deciding.guard import Guard
from minik8s_modules.scheduler.profiles.configuration import Settings
from minik8s_modules.scheduler.running.scheduler import Scheduler

Start = Callable[..., Scheduler]


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
def start(api: FakeApi) -> Iterator[Start]:
    """Start a scheduler with settings of its own."""
    running: list[Callable[[], None]] = []

    def begin(settings: Settings | None = None, limit_s: float = 60.0) -> Scheduler:
        recorder = EventRecorder(api, "default-scheduler")
        made = Scheduler(api, recorder, settings=settings, guard=Guard(limit_s))
        recorder.start()
        made.start()
        lost = threading.Event()
        leading = threading.Thread(target=made.lead, args=(Token(0, 1), lost))
        leading.start()

        def end() -> None:
            lost.set()
            leading.join(60)
            made.stop()
            recorder.stop()
            assert not leading.is_alive()

        running.append(end)
        return made

    yield begin
    for end in running:
        end()


@pytest.fixture
def scheduler(start: Start) -> Scheduler:
    return start()
