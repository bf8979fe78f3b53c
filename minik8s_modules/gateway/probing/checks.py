"""A check of a container as the reconciler declares it, and its result. Pure.

A check repeats (a probe: results count by thresholds) or runs once (a hook). It names one action: ``exec``, ``http``,
``tcp``, ``grpc`` or ``sleep``. Source of thresholds and words: pkg/kubelet/prober/worker.go, prober.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, NamedTuple

from minik8s_modules.api.objects import JsonObject

State = Literal["unknown", "success", "failure"]
ACTIONS = ("exec", "http", "tcp", "grpc", "sleep")
_SPACES = frozenset(" \t\r\n:")


class BadCheck(ValueError):
    """A check that cannot be read; the message says why."""


class Check(NamedTuple):
    """What to do to ``container`` (Docker id), how often, and when its result counts. Seconds are from its start.

    ``kind`` is one of ``ACTIONS``, ``action`` its parameters as ``gateway/messages.py`` lists them.
    """

    id: str
    container: str
    kind: str
    action: Any
    once: bool
    started_at: datetime | None
    initial_delay_s: float
    period_s: float
    timeout_s: float
    success: int
    failure: int

    def delay_s(self, now: datetime) -> float:
        """Return how long to wait before the first run; clocks of nodes may differ, so never more than declared."""
        if self.started_at is None:
            return self.initial_delay_s
        passed_s = max(0.0, (now - self.started_at).total_seconds())
        return max(0.0, self.initial_delay_s - passed_s)


class Result(NamedTuple):
    """What is known of a check; ``streak`` counts equal results in a row, ``took_s`` is of a check that ran once."""

    state: State = "unknown"
    streak: int = 0
    message: str = ""
    took_s: float = 0.0

    def to_json(self) -> JsonObject:
        """Return it as the socket carries it."""
        return self._asdict()


def parse(raw: Any) -> Check:
    """Return the check a message declares.

    Raises:
        BadCheck: it is none.
    """
    try:
        kinds = [kind for kind in ACTIONS if kind in raw]
        if len(kinds) != 1:
            raise BadCheck(f"a check must name one of {', '.join(ACTIONS)}, not {kinds or 'none'}")
        started_at = raw.get("started_at")
        check = Check(
            id=str(raw["id"]),
            container=str(raw["container"]),
            kind=kinds[0],
            action=_action(kinds[0], raw[kinds[0]]),
            once=bool(raw.get("once")),
            started_at=datetime.fromisoformat(started_at) if started_at else None,
            initial_delay_s=float(raw.get("initial_delay_s") or 0),
            period_s=float(raw.get("period_s") or 10),
            timeout_s=float(raw.get("timeout_s") or 1),
            success=int(raw.get("success") or 1),
            failure=int(raw.get("failure") or 3),
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise BadCheck(f"a check cannot be read: {error!r}") from error
    if not check.id or _SPACES & set(check.id):
        raise BadCheck(f"the id of a check is a word without colons, not {check.id!r}")
    return check


def _action(kind: str, given: Any) -> Any:
    if kind == "exec":
        return [str(word) for word in given]
    if kind == "sleep":
        return float(given)
    port = int(given["port"])
    if not 0 < port < 1 << 16:
        raise BadCheck(f"{port} is not a port")
    found = {"host": str(given["host"]), "port": port}
    if kind == "grpc":
        found["service"] = str(given.get("service") or "")
    if kind == "http":
        headers = [(str(name), str(value)) for name, value in given.get("headers") or []]
        scheme = str(given.get("scheme") or "HTTP").lower()
        found |= {"path": str(given.get("path") or "/"), "scheme": scheme, "headers": headers}
    return found


def counted(check: Check, before: Result, *, good: bool, message: str) -> Result:
    """Return the result after one more run, by the check's thresholds."""
    was_good = before.streak > 0
    streak = abs(before.streak) + 1 if was_good == good and before.streak else 1
    state: State = before.state
    if streak >= (check.success if good else check.failure):
        state = "success" if good else "failure"
    return Result(state, streak if good else -streak, "" if good else message)


def worth_telling(before: Result, after: Result, check: Check) -> bool:
    """Return whether a change of a result matters to anybody: each of the first failures does, later ones do not."""
    if before.state != after.state:
        return True
    return after.streak < 0 and (before.message != after.message or -after.streak <= check.failure)


def results_of(results: Mapping[str, Result]) -> JsonObject:
    """Return results as the socket carries them."""
    return {name: result.to_json() for name, result in results.items()}
