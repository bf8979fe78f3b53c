"""Calls that may never return: of plugins that nobody here wrote.

A call that has not returned in time is left behind with its thread; it goes on holding nothing that others need.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

from minik8s_modules.scheduler.deciding.profile import PluginFailed, PluginHangs

LIMIT_S = 10.0
_MOST_STUCK = 8
T = TypeVar("T")


class Guard:
    """Calls with a limit."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self.limit_s = limit_s
        self._lock = threading.Lock()
        self._stuck: dict[str, list[threading.Thread]] = {}

    def call(self, what: Callable[[], T], who: Callable[[], tuple[str, str]], among: Iterable[str]) -> T:
        """Return what the call returns; ``among`` names the plugins that it may ask.

        Raises:
            PluginHangs: it did not return in time; ``who`` says of which plugin at which point.
            PluginFailed: too many calls of one of the plugins have not returned yet.
        """
        plugin, point = who()
        with self._lock:
            for name in among:
                self._stuck[name] = alive = [one for one in self._stuck.get(name, ()) if one.is_alive()]
                if len(alive) >= _MOST_STUCK:
                    raise PluginFailed(name, point or "Filter", f"{len(alive)} earlier calls have not returned yet")
        answers: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()

        def run() -> None:
            try:
                answers.put((what(), None))
            except BaseException as error:  # noqa: BLE001 - raised again where the answer is awaited
                answers.put((None, error))

        thread = threading.Thread(target=run, name=f"plugin-{plugin}", daemon=True)
        thread.start()
        try:
            answer, error = answers.get(timeout=self.limit_s)
        except queue.Empty:
            plugin, point = who()
            with self._lock:
                self._stuck.setdefault(plugin, []).append(thread)
            raise PluginHangs(plugin, point, f"it did not return within {self.limit_s:g} s") from None
        if error is not None:
            raise error
        return answer  # type: ignore[return-value]  # no error: the call's own answer
