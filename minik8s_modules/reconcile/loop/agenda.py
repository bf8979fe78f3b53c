"""When a node is due again: after failures, for what its kernel told, and for a full observation.

Pure: no clock of its own, seconds are monotonic. ``nodestate.py`` tells what happened and asks what is due.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.backoff import Backoff
from minik8s_modules.reconcile.loop.section_changes import Request
from minik8s_modules.reconcile.pods.pod_context import RULES_MISSING, SANDBOX_MISSING, VOLUME_MISSING

ITEM_RETRY = Backoff(initial_s=0.5, maximum_s=30.0)
KEY_RETRY = Backoff(initial_s=0.5, maximum_s=30.0)
SETTLE_S = 30.0
"""A node that is back is observed once more after this: what starts there later than sshd, as Docker, changes rules."""
GATHER_S = 1.0
"""Changes come in bursts; one look serves all that are told within this time."""
LOOK_EVERY_S = 15.0
"""Between two looks for what the kernel told: a pod can take its own link up and down all day."""
OWN_S = 0.5
"""What is told this soon after an item that changed something is its own echo (a line is here after 0.1 s).

An echo that is later costs one look, which changes nothing and so has no echo.
"""
_NEEDS = {SANDBOX_MISSING: "sandboxes", RULES_MISSING: "sidecars", VOLUME_MISSING: "volumes"}
_ANSWERED_BY_DECISION = frozenset({"RunContainerError", "ImageMissing"})


class Agenda:
    """The moments at which one node is due; not thread-safe."""

    def __init__(self, full_every_s: Callable[[], float]) -> None:
        self._full_every_s = full_every_s
        self._full_at_s = 0.0
        self._asked_meanwhile = False
        self._was_observed = self._back = False
        self._again_at_s: dict[tuple[str, str], float] = {}
        self._failures: dict[tuple[str, str], int] = {}
        self._item_failures = 0
        self._retry_at_s = 0.0
        self._look_at_s: dict[str, float] = {}
        self._looked_at_s = self._quiet_until_s = 0.0

    # what is due

    def may_send(self, now_s: float) -> bool:
        """Return whether no failed item keeps the next one waiting."""
        return now_s >= self._retry_at_s

    def full_due(self, now_s: float) -> bool:
        """Return whether the whole node is to be observed."""
        return now_s >= self._full_at_s

    def look_due(self, section: str, now_s: float) -> bool:
        """Return whether a whole section is to be looked at."""
        return self._look_at_s.get(section, now_s + 1) <= now_s

    def keys_due(self, section: str, now_s: float) -> frozenset[str]:
        """Return the keys of a section that are to be tried again."""
        return frozenset(key for (where, key), at_s in self._again_at_s.items() if where == section and at_s <= now_s)

    def next_s(self, now_s: float) -> float:
        """Return in how many seconds something is due; what is due already is below zero."""
        if self._retry_at_s > now_s:
            return self._retry_at_s - now_s  # nothing can be sent before
        return min([self._full_at_s, *self._again_at_s.values(), *self._look_at_s.values()]) - now_s

    # what is asked for

    def observe_fully(self, *, at_work: bool) -> None:
        """Have the whole node observed; an item that is at work may have looked already."""
        self._full_at_s = 0.0
        self._asked_meanwhile = at_work

    def observe_fully_by(self, at_s: float) -> None:
        """Have the whole node observed at ``at_s`` at the latest."""
        self._full_at_s = min(self._full_at_s, at_s)

    def look(self, section: str, now_s: float) -> None:
        """Have a section looked at, soon or when that is planned anyway."""
        self._look_at_s.setdefault(section, now_s)

    def look_for_changes(self, sections: Iterable[str], now_s: float) -> bool:
        """Have sections looked at in which the kernel told of changes; return whether one of them was not to be yet."""
        at_s = max(now_s + GATHER_S, self._looked_at_s + LOOK_EVERY_S)
        new = [section for section in sections if section not in self._look_at_s]
        self._look_at_s |= dict.fromkeys(new, at_s)
        return bool(new)

    def may_be_own(self, now_s: float, late_s: float = 0.0) -> bool:
        """Return whether a change that is told now may be one of our own; ``late_s`` allows for slower news."""
        return now_s < self._quiet_until_s + late_s

    def on_return(self) -> None:
        """The node answers again: what failed meanwhile is no reason to wait, and what ran before may run no more."""
        self._item_failures, self._retry_at_s, self._back = 0, 0.0, self._was_observed

    def may_have_booted(self) -> None:
        """The node did not answer for a moment: it is observed when it does, and again when its services are up."""
        self._full_at_s, self._back = 0.0, self._was_observed

    # what came back

    def on_end(self, now_s: float, *, failed: bool, changed: bool, whole: bool) -> bool:
        """Take over the end of an item, ``whole`` if it was of the whole node.

        Returns whether somebody asked for a full observation after it had begun.
        """
        asked, self._asked_meanwhile = self._asked_meanwhile, False
        if changed:
            self._quiet_until_s = now_s + OWN_S
        self._item_failures = self._item_failures + 1 if failed else 0
        self._retry_at_s = now_s + ITEM_RETRY.delay_s(self._item_failures) if failed else 0.0
        if whole and not failed:
            self._full_at_s = 0.0 if asked else now_s + (SETTLE_S if self._back else self._full_every_s())
            self._back, self._was_observed = asked and self._back, True
        return asked

    def on_looked(self, section: str, now_s: float) -> None:
        """A whole section was looked at."""
        if self._look_at_s.pop(section, None) is not None:
            self._looked_at_s = now_s

    def on_result(
        self, section: str, request: Request, result: JsonObject, volumes: Collection[str], now_s: float
    ) -> None:
        """Plan what a section's result says is due, and its failed keys; ``volumes`` are those that the node has."""
        for moment in [one for one in self._again_at_s if one[0] == section and _covers(request, one[1])]:
            del self._again_at_s[moment]
        for due in result["due"]:
            self._again_at_s[section, str(due["key"])] = now_s + max(0.0, float(due["after_s"]))
        errors = result["errors"]
        for failed in [one for one in self._failures if one[0] == section and _covers(request, one[1])]:
            if failed[1] not in errors:
                del self._failures[failed]
        for key, error in errors.items():
            if (reason := str(error.get("reason"))) not in _ANSWERED_BY_DECISION:
                self._on_failed(section, key, reason, volumes, now_s)

    def _on_failed(self, section: str, key: str, reason: str, volumes: Iterable[str], now_s: float) -> None:
        # a container whose sandbox or volume the pass did not get to is tried again together with it
        needed = (one for one in self._again_at_s if one[0] == _NEEDS.get(reason) and _pod(one[1]) == _pod(key))
        if (at_s := min((self._again_at_s[one] for one in needed), default=None)) is not None:
            self._again_at_s[section, key] = at_s
            return
        failures = self._failures[section, key] = self._failures.get((section, key), 0) + 1
        at_s = self._again_at_s[section, key] = now_s + KEY_RETRY.delay_s(failures)
        if reason == VOLUME_MISSING:
            # it was made: who removed it by hand is not waited for
            self._again_at_s |= {("volumes", each): at_s for each in volumes if _pod(each) == _pod(key)}


def _covers(request: Request, key: str) -> bool:
    """Return whether a request looks at a key."""
    return request.keys is None or key in request.keys


def _pod(key: str) -> str:
    return key.partition("/")[0]
