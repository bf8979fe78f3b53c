"""What the tests of controllers in one process have in common: a clock, an API in memory, copies of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from minik8s_modules.base.clock import FakeClock
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.runtime.controller import Context
from minik8s_modules.runtime.events import EventRecorder
from minik8s_modules.runtime.informers import Informers


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def api(clock: FakeClock) -> FakeApi:
    return FakeApi(clock)


@pytest.fixture
def context(api: FakeApi, clock: FakeClock) -> Iterator[Context]:
    context = Context(api, EventRecorder(api, "c", clock=clock), Informers(api), clock)
    yield context
    context.informers.stop()
    context.pool.shutdown()
