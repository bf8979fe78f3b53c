"""Which webhooks could not be asked, or were slow: kept until Events are made of it (serving/webhook_events.py)."""

from __future__ import annotations

import threading
from typing import NamedTuple, Protocol

from minik8s_modules.api.kind import Kind

FAILED, SLOW = "FailedCallingWebhook", "SlowWebhook"
SLOW_S = 1.0


class Subject(Protocol):
    """A webhook: one of an admission configuration, or the converter of a definition."""

    @property
    def key(self) -> tuple[str, str]:
        """Return the uid of the object that names it, and its name there."""

    @property
    def about(self) -> Kind:
        """Return the kind of that object."""

    @property
    def configuration(self) -> str:
        """Return the object's name."""


class Trouble(NamedTuple):
    """What happened to a webhook, how often since it was last told, and the last message."""

    hook: Subject
    reason: str
    message: str
    times: int


class Troubles:
    """At most one of a kind for each webhook, however many writes it holds up."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._noted: dict[tuple[tuple[str, str], str], Trouble] = {}

    def note(self, hook: Subject, reason: str, message: str) -> None:
        """Remember that it happened once more."""
        key = (hook.key, reason)
        with self._lock:
            before = self._noted[key].times if key in self._noted else 0
            self._noted[key] = Trouble(hook, reason, message, before + 1)

    def take(self) -> list[Trouble]:
        """Return what was noted since the last time."""
        with self._lock:
            found, self._noted = self._noted, {}
        return list(found.values())
