"""An API in memory that refuses one write in ten and loses the answer of another; controllers that may be killed."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

from minik8s_modules.api import objects
from minik8s_modules.api.errors import StatusError
from minik8s_modules.api.kinds import EVENT, POD, Kind
from minik8s_modules.base.clock import SystemClock, rfc3339
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.client.errors import ApiUnreachable
from minik8s_modules.client.fake import FakeApi, passing_error
from minik8s_modules.runtime.controller import Context
from minik8s_modules.runtime.events import EventRecorder
from minik8s_modules.runtime.informers import Informers

WRITES = ("create", "update", "patch", "delete")
READS_TOO = ("get", "update", "patch", "delete")


class Controller(Protocol):
    """What a manager starts and stops."""

    def start(self) -> None:
        """Begin."""

    def stop(self) -> None:
        """End."""


class Readier:
    """Plays the nodes: makes pods ready, in a thread of its own."""

    def __init__(self, api: FakeApi) -> None:
        self._api = api
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._over.set()
        self._thread.join(60)

    def _run(self) -> None:
        while not self._over.wait(0.01):
            for pod in self._api.list(POD).items:
                if objects.status(pod) or objects.is_deleting(pod):
                    continue
                ready = {"type": "Ready", "status": "True", "lastTransitionTime": rfc3339(SystemClock().now())}
                body = {"status": {"phase": "Running", "conditions": [ready]}}
                with contextlib.suppress(StatusError, TemporaryError):
                    self._api.patch(POD, objects.name(pod), objects.namespace(pod), body, subresource="status")


class StormyApi(FakeApi):
    """One call in five of ``verbs`` fails while ``stormy``: half of them before, half of them after it was made.

    ``seen`` is called with kind and verb of each that was made. Changes of Pods come ``late_s`` late, one by one.
    """

    def __init__(self, seed: int, *, verbs: Iterable[str] = WRITES, stormy: bool = True, late_s: float = 0.0) -> None:
        super().__init__(SystemClock())
        self._dice = random.Random(seed)
        self._late_s = late_s
        self.stormy = stormy
        self.seen: Callable[[Kind, str], None] = lambda _kind, _verb: None
        for verb in verbs:
            setattr(self, verb, self._unreliable(verb, getattr(self, verb)))

    def watch(self, kind: Kind, namespace: str = "", **options: Any) -> Any:
        """Return the changes as ``FakeApi`` does."""
        changes = super().watch(kind, namespace, **options)
        return _Late(changes, self._late_s) if kind == POD and self._late_s else changes

    def _unreliable(self, verb: str, call: Any) -> Any:
        def attempt(kind: Kind, *arguments: Any, **options: Any) -> Any:
            luck = self._dice.random() if self.stormy and kind != EVENT else 1.0
            if luck < 0.1:
                raise passing_error() if luck < 0.05 else ApiUnreachable("refused")
            answer = call(kind, *arguments, **options)
            self.seen(kind, verb)
            if luck < 0.2:
                raise ApiUnreachable("the answer was lost")
            return answer

        return attempt


class _Late:
    """Changes that each come late."""

    def __init__(self, changes: Any, late_s: float) -> None:
        self._changes = changes
        self._late_s = late_s

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        change = next(self._changes)
        time.sleep(self._late_s)
        return change

    def close(self) -> None:
        """End the changes."""
        self._changes.close()


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
