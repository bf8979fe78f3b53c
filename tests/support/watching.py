"""A thread that collects what a store's watch yields."""

from __future__ import annotations

import threading
import time

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

    def wait(self, count: int, timeout_s: float = 10.0) -> list[Change]:
        """Return all changes once there are ``count``; a moment later there must not be more."""
        with self._arrived:
            self._arrived.wait_for(lambda: len(self.changes) >= count or self.error, timeout_s)
        time.sleep(0.02)
        return self.changes

    def nothing_for(self, seconds: float) -> bool:
        """Return whether nothing arrives within ``seconds``."""
        count = len(self.changes)
        time.sleep(seconds)
        return len(self.changes) == count

    def stop(self) -> None:
        """Cancel the watch and wait for the thread."""
        self._watch.cancel()
        self._thread.join(10)
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
