"""Calls that never return: how many are left behind, and who pays for that."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from minik8s_modules.scheduler.deciding.guard import Guard
from minik8s_modules.scheduler.deciding.profile import PluginFailed


@pytest.fixture
def over() -> Iterator[threading.Event]:
    over = threading.Event()
    yield over
    over.set()


def test_a_plugin_that_hangs_is_asked_no_more_and_others_are(over: threading.Event):
    guard = Guard(0.01)
    for _ in range(8):
        with pytest.raises(PluginFailed, match="did not return within"):
            guard.call(over.wait, lambda: ("Hangs", "Filter"), ["Hangs"])
    with pytest.raises(PluginFailed, match="8 earlier calls have not returned yet"):
        guard.call(lambda: 1, lambda: ("Hangs", "Filter"), ["Other", "Hangs"])
    guard.limit_s = 60.0
    assert guard.call(lambda: 1, lambda: ("Other", "Filter"), ["Other"]) == 1
