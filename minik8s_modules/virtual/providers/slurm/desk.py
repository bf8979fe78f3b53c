"""Which jobs there shall be, what the next pass is to say, and what an answer means. Pure; time comes in.

The module keeps the declared set on the login machine; a pass tells it the difference, on the digest of the set that is
there (``base``). After a restart, or a lost answer, that digest does not fit: the next pass changes nothing and is told
what is there. A job that Slurm refuses is taken back, and declared again after a while, ever more rarely.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.backoff import Backoff

BATCH = 100
"""Jobs that are on their way to Slurm at once: with their sources and values, they travel in each pass."""
FOLLOWED_A_SECOND = 200
"""At most, while nothing changes: a pass over 2,000 jobs, once in 10 s, costs some 110 ms of CPU, half of it here. The
module ends with squeue's answer where that is the same (quiet.py); every third pass looks at folders as well."""
REFUSED = Backoff(initial_s=10.0, maximum_s=300.0)
SUBMIT_FAILED = "SubmitFailed"
_LARGEST = (1 << 63) - 1
INVALID = frozenset({SUBMIT_FAILED, "InvalidEntry", "InvalidName"})


class Refusal(NamedTuple):
    """A job that Slurm did not take."""

    until_s: float
    times: int


class DeclaredJob(NamedTuple):
    """A job that there shall be; without an entry it is one that was found after a restart."""

    entry: JsonObject | None
    values: JsonObject


class Order(NamedTuple):
    """What a pass says."""

    base: str
    upsert: dict[str, JsonObject]
    delete: list[str]
    values: dict[str, JsonObject]

    def blob(self) -> str:
        """Return the values as they travel, beside the entries."""
        return base64.b64encode(orjson.dumps(self.values)).decode()


@dataclass
class Desk:
    """See the top of this file."""

    wanted: dict[str, DeclaredJob] = field(default_factory=dict)
    reported: dict[str, Mapping[str, Any] | None] = field(default_factory=dict)
    errors: dict[str, tuple[str, str]] = field(default_factory=dict)
    seen: str = ""
    has_looked: bool = False
    """Whether it was ever told what is there."""
    _base: str = ""
    _fits: bool = False
    there: dict[str, JsonObject | None] = field(default_factory=dict)
    """The declared set as it was last known."""
    _refused: dict[str, Refusal] = field(default_factory=dict)

    def want(self, uid: str, entry: JsonObject, values: JsonObject) -> None:
        """Have a job."""
        self.wanted[uid] = DeclaredJob(entry, values)

    def drop(self, uid: str) -> None:
        """Have it cancelled, and forgotten."""
        self.wanted.pop(uid, None)
        self.reported.pop(uid, None)
        self.errors.pop(uid, None)
        self._refused.pop(uid, None)

    def order(self, now_s: float) -> Order:
        """Return what the next pass says."""
        if not self._fits:
            return Order(self._base, {}, [], {})
        room = BATCH - sum(1 for uid in self.there if uid in self.wanted and self.reported.get(uid) is None)
        upsert: dict[str, JsonObject] = {}
        for uid, one in self.wanted.items():
            if len(upsert) >= room:
                break
            if one.entry is None or self._waits(uid, now_s) or self.awaited(uid):
                continue
            if self.there.get(uid) != one.entry:
                upsert[uid] = one.entry
        delete = [uid for uid in self.there if uid not in self.wanted or self._waits(uid, now_s)]
        values = {
            uid: one.values
            for uid, one in self.wanted.items()
            if one.values and self.reported.get(uid) is None and (uid in upsert or uid in self.there)
        }
        return Order(self._base, upsert, delete, values)

    def awaited(self, uid: str) -> list[str]:
        """Return the uids of the jobs that one waits for and that are not submitted yet: it would only take room."""
        one = self.wanted.get(uid)
        if one is None or one.entry is None or self.reported.get(uid) is not None:
            return []
        return [other for other in one.entry.get("after") or {} if self.reported.get(other) is None]

    def _waits(self, uid: str, now_s: float) -> bool:
        refusal = self._refused.get(uid)
        return refusal is not None and now_s < refusal.until_s

    def answer(self, order: Order, result: Mapping[str, Any], now_s: float) -> set[str]:
        """Take the result of the pass that said ``order``; return the uids of which something else is known now."""
        if result.get("base_mismatch"):
            self._base, self._fits, self.seen = str(result["digest"]), False, ""
            self.there = {}
            return set()
        self._base, learns, self._fits = str(result["digest"]), not self._fits, True
        for uid in order.delete:
            self.there.pop(uid, None)
        self.there.update(order.upsert)
        before = (dict(self.reported), dict(self.errors))
        if not result.get("unchanged"):
            self._take_status(result["status"], recovers=learns and not self.has_looked)
        self.has_looked = True
        self.seen = str(result.get("seen") or "")
        self._take_errors(result.get("errors") or {}, now_s)
        uids = {*before[0], *self.reported, *before[1], *self.errors}
        return {
            uid
            for uid in uids
            if (before[0].get(uid), before[1].get(uid)) != (self.reported.get(uid), self.errors.get(uid))
        }

    def _take_status(self, status: Mapping[str, Any], *, recovers: bool) -> None:
        self.there = {uid: self.there.get(uid) for uid in status}
        if recovers:
            for uid in status:
                self.wanted.setdefault(uid, DeclaredJob(None, {}))
        self.reported = {uid: _scalars(reported) for uid, reported in status.items() if uid in self.wanted}
        for uid, reported in self.reported.items():
            if reported is not None:
                self._refused.pop(uid, None)

    def _take_errors(self, errors: Mapping[str, Any], now_s: float) -> None:
        waiting = {uid: said for uid, said in self.errors.items() if self._waits(uid, now_s)}
        self.errors = {**waiting, **{uid: (str(e["reason"]), str(e["message"])) for uid, e in errors.items()}}
        for uid, (reason, _) in self.errors.items():
            if uid in errors and reason in INVALID and uid in self.wanted:
                times = self._refused[uid].times + 1 if uid in self._refused else 1
                self._refused[uid] = Refusal(now_s + REFUSED.delay_s(times), times)

    def is_busy(self, now_s: float) -> bool:
        """Return whether the next pass has something to say."""
        order = self.order(now_s)
        return not self._fits or bool(order.upsert or order.delete)

    def quiet_s(self, period_s: float) -> float:
        """Return how long to pause while nothing changes: with thousands of jobs longer, as a pass costs more."""
        return max(period_s, len(self.wanted) / FOLLOWED_A_SECOND)

    def states(self) -> Mapping[str, int]:
        """Return how many jobs have each state; ``UNSUBMITTED`` where it is not yet. For any thread."""
        states = [self.reported.get(uid) for uid in list(self.wanted)]
        return Counter(str(one["state"]) if one else "UNSUBMITTED" for one in states)

    def next_try_s(self, now_s: float) -> float | None:
        """Return in how many seconds a refused job is tried again."""
        return min((max(0.0, one.until_s - now_s) for one in self._refused.values()), default=None)


def _scalars(reported: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return what can stand in a status: a program may have written into its folder what is told of its end."""
    if reported is None or not isinstance(reported.get("state"), str):
        return None
    return {
        name: value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
        for name, value in reported.items()
        if isinstance(value, str) or (isinstance(value, int) and abs(value) <= _LARGEST)
    }
