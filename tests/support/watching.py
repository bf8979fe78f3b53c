"""Collectors of what a store's watch yields and of what a cache's subscriber is given."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import orjson

from minik8s_modules.store.cache import CacheEvent
from minik8s_modules.store.interface import Change, Watch


class Recorder:
    """Iterates ``watch`` in a thread; ``error`` holds what ended it."""

    def __init__(self, watch: Watch) -> None:
        self.batches: list[list[Change]] = []
        self.error: Exception | None = None
        self._watch = watch
        self._arrived = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="recorder")
        self._thread.start()

    @property
    def changes(self) -> list[Change]:
        """Everything seen so far, in order."""
        return [change for batch in list(self.batches) for change in batch]

    def wait(self, count: int, timeout_s: float = 60.0) -> list[Change]:
        """Return all changes once there are ``count``; a moment later there must not be more."""
        with self._arrived:
            self._arrived.wait_for(lambda: len(self.changes) >= count or self.error, timeout_s)
        time.sleep(0.02)
        return self.changes

    def until_error(self, timeout_s: float = 60.0) -> None:
        """Wait for the error that ends the watch; without one, end the watch and leave ``error`` None."""
        with self._arrived:
            self._arrived.wait_for(lambda: self.error, timeout_s)
        self.stop()

    def nothing_for(self, seconds: float) -> bool:
        """Return whether nothing arrives within ``seconds``."""
        count = len(self.changes)
        time.sleep(seconds)
        return len(self.changes) == count

    def stop(self) -> None:
        """Cancel the watch and wait for the thread."""
        self._watch.cancel()
        self._thread.join(60)
        assert not self._thread.is_alive(), "the watch did not end"

    def _run(self) -> None:
        try:
            for batch in self._watch:
                with self._arrived:
                    self.batches.append(batch)
                    self._arrived.notify_all()
        except Exception as error:  # noqa: BLE001 - whatever it is, the test shall see it
            with self._arrived:
                self.error = error
                self._arrived.notify_all()


class Events:
    """A callback for a cache's events that remembers them."""

    def __init__(self) -> None:
        self.seen: list[CacheEvent] = []
        self._arrived = threading.Condition()

    def __call__(self, event: CacheEvent) -> None:
        """Remember ``event``."""
        with self._arrived:
            self.seen.append(event)
            self._arrived.notify_all()

    def wait(self, count: int, timeout_s: float = 60.0) -> list[CacheEvent]:
        """Return all events once there are ``count``; a moment later there must not be more."""
        with self._arrived:
            self._arrived.wait_for(lambda: len(self.seen) >= count, timeout_s)
        time.sleep(0.02)
        return list(self.seen)

    def until(self, condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
        """Wait until ``condition`` holds."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, "the condition did not come true"
            time.sleep(0.005)


def stored(name: str, labels: dict[str, str] | None = None) -> bytes:
    """Return a small object's bytes as the store holds them."""
    metadata = {"name": name, "labels": labels} if labels else {"name": name}
    return orjson.dumps({"metadata": metadata})
