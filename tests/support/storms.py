"""An API in memory that refuses one write in ten and loses the answer of another; controllers that may be killed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from minik8s_modules.api.kinds import EVENT, Kind
from minik8s_modules.base.clock import SystemClock
from minik8s_modules.client.errors import ApiUnreachable
from minik8s_modules.client.fake import FakeApi, passing_error
from minik8s_modules.runtime.controller import Context
from minik8s_modules.runtime.events import EventRecorder
from minik8s_modules.runtime.informers import Informers

WRITES = ("create", "update", "patch", "delete")


class Controller(Protocol):
    """What a manager starts and stops."""

    def start(self) -> None:
        """Begin."""

    def stop(self) -> None:
        """End."""


class StormyApi(FakeApi):
    """One write in five fails while ``stormy``, before or after it was made; ``seen`` is called after each."""

    def __init__(self, seed: int) -> None:
        super().__init__(SystemClock())
        self._dice = random.Random(seed)
        self.stormy = True
        self.seen: Callable[[Kind], None] = lambda _kind: None
        for verb in WRITES:
            setattr(self, verb, self._unreliable(getattr(self, verb)))

    def _unreliable(self, call: Any) -> Any:
        def attempt(kind: Kind, *arguments: Any, **options: Any) -> Any:
            luck = self._dice.random() if self.stormy and kind != EVENT else 1.0
            if luck < 0.1:
                raise passing_error() if luck < 0.05 else ApiUnreachable("refused")
            answer = call(kind, *arguments, **options)
            self.seen(kind)
            if luck < 0.2:
                raise ApiUnreachable("the answer was lost")
            return answer

        return attempt


class Manager:
    """Controllers in one process, which may be killed and begun anew."""

    def __init__(self, api: FakeApi, *made: Callable[[Context], Controller]) -> None:
        self._api = api
        self._made = made
        self._recorder = EventRecorder(api, "test")
        self._running: Sequence[Controller] = ()

    def start(self) -> None:
        """Begin."""
        self.context = Context(self._api, self._recorder, Informers(self._api))
        self._running = [make(self.context) for make in self._made]
        self.context.informers.start()
        for each in self._running:
            each.start()

    def stop(self) -> None:
        """End."""
        for each in self._running:
            each.stop()
        self.context.informers.stop()
        self.context.pool.shutdown()
