"""What becomes of bindings that wait for a thread when their scheduler no longer leads."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

from minik8s_modules.base.clock import SystemClock
from minik8s_modules.scheduler.running.binding import BINDERS, Binder
from tests.support.waiting import until

MORE = 5


class Slow:
    """A Bind plugin that waits until it is let go on."""

    name = "slow"

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.go_on = threading.Event()

    def bind(self, _state: Any, pod: Any, _node: str) -> None:
        """Bind."""
        self.begun.append(pod.key)
        self.go_on.wait(60)


def test_what_waits_for_a_thread_is_taken_back_and_not_bound():
    plugin, forgotten, again = Slow(), [], []
    cache: Any = SimpleNamespace(forget=lambda pod: forgotten.append(pod.key))
    queue: Any = SimpleNamespace(
        placed=lambda _entry: None, freed=lambda *_: None, again=lambda entry: again.append(entry.key)
    )
    effects: Any = SimpleNamespace(tell_bound=lambda *_: None, refuse=lambda *_, **__: None)
    counts: Any = SimpleNamespace(bound=lambda *_: None, attempt=lambda *_: None)
    waiting: Any = SimpleNamespace(list=list)
    profile = SimpleNamespace(reserve=[], permit=[], pre_bind=[], bind=[plugin], post_bind=[], foreign=frozenset())
    binder = Binder(cache, queue, effects, waiting, None, counts, SystemClock())  # type: ignore[arg-type]
    for number in range(BINDERS + MORE):
        pod = SimpleNamespace(key=f"p{number}", pod={"spec": {}})
        entry: Any = SimpleNamespace(key=pod.key, pod=pod, attempts=1, since=0.0)
        binder.begin(entry, "n", None, SimpleNamespace(profile=profile))  # type: ignore[arg-type]
    until(lambda: len(plugin.begun) == BINDERS)
    stopping = threading.Thread(target=binder.stop)
    stopping.start()
    until(lambda: binder.ended)
    plugin.go_on.set()
    stopping.join(60)
    assert len(plugin.begun) == BINDERS
    assert sorted(forgotten) == sorted(again) == sorted(f"p{number}" for number in range(BINDERS, BINDERS + MORE))
