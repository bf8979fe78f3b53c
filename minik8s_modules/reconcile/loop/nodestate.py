"""Everything remembered of one node between two moments; what is lost with it is observed again.

Holds what was observed (``NodeObservations``), what the node confirmed to have (``changes.Confirmed`` per
section), the pods' last decisions and the moments at which something must be looked at again. No input or
output, no thread, no clock of its own: ``loop.py`` calls it under its lock and carries out what it answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.backoff import Backoff
from minik8s_modules.module_utils.minik8s.network.attachment import link_name
from minik8s_modules.reconcile.loop import section_changes as changes
from minik8s_modules.reconcile.loop.drift_holds import NO_HOLD, Holds
from minik8s_modules.reconcile.loop.drifts import Difference, Realized, without_network
from minik8s_modules.reconcile.loop.probe_state import Checking
from minik8s_modules.reconcile.loop.retries import made_again, with_what_it_needs
from minik8s_modules.reconcile.loop.section_changes import Confirmed, Request
from minik8s_modules.reconcile.pods.observed import NodeObservations, ObservedContainer, ObservedPod, observation
from minik8s_modules.reconcile.values.images import normalized
from minik8s_modules.reconcile.values.items import SECTIONS, Outcome
from minik8s_modules.reconcile.values.values import NodeDocument, PodDecision, PullState

Happened = Callable[[str, ObservedPod, ObservedPod], None]
"""Called with a pod's UID and its observations before and after a change."""

ITEM_RETRY = Backoff(initial_s=0.5, maximum_s=30.0)
KEY_RETRY = Backoff(initial_s=0.5, maximum_s=30.0)
SETTLE_S = 30.0
"""A node that is back is observed once more after this: what starts there later than sshd, as Docker, changes rules."""
FRESH_S = 3.0
"""A list of the gateway may be this much older than what a module just told."""
GATHER_S = 1.0
"""Changes come in bursts; one look serves all that are told within this time."""
LOOK_EVERY_S = 15.0
"""Between two looks for what the kernel told: a pod can take its own link up and down all day."""
OWN_S = 0.5
"""What is told this soon after an item that changed something is its own echo (a line is here after 0.1 s).

An echo that is later costs one look, which changes nothing and so has no echo.
"""
LATE_S = 3.0
"""What is told this soon after such an item makes no pod unready: it may be of a sandbox that the item replaced."""
_ANSWERED_BY_DECISION = frozenset({"RunContainerError", "ImageMissing"})
_OBSERVING = frozenset({"sandboxes", "containers"})
_OF_PODS = ("secrets", "volumes", "sandboxes", "containers")
"""Sections whose keys tell a pod; of these, errors and changes are looked at pod by pod."""


class Sent(NamedTuple):
    """The item a node is working on."""

    id: str
    requests: Mapping[str, Request]
    facts: bool = False


class NodeState:
    """One node; not thread-safe."""

    def __init__(self, name: str, full_every_s: Callable[[], float]) -> None:
        self.name = name
        self.alive = False
        self.silence = ""
        self.known = False
        self.observed = NodeObservations()
        self.images: frozenset[str] = frozenset()
        self.pulls: dict[str, PullState] = {}
        self.decisions: dict[str, PodDecision] = {}
        self.checking = Checking(name)
        self.errors: dict[str, JsonObject] = {}
        self.dirty: set[str] = set()
        self.sent: Sent | None = None
        self.realized = Realized()
        self.drift: list[Difference] = []
        self.detached: set[str] = set()
        """UIDs of the pods that are known to have no network, though their sandboxes run."""
        self.healing = False
        """Whether somebody asked that what is only reported is put right."""
        self._asked_meanwhile = False
        self._was_observed = self._back = False
        self.relist_wanted = False
        self.facts_wanted = True
        self.facts_at_s = 0.0
        self._full_every_s = full_every_s
        self._full_at_s = 0.0
        self._confirmed: dict[str, Confirmed | None] = dict.fromkeys(SECTIONS)
        self._again_at_s: dict[tuple[str, str], float] = {}
        self._failures: dict[tuple[str, str], int] = {}
        self._item_failures = 0
        self._look_at_s: dict[str, float] = {}
        self._looked_at_s = self._quiet_until_s = 0.0
        self._retry_at_s = 0.0

    def has_taken(self, uid: str) -> bool:
        """Return whether the node has a decision about a pod that is not to end it."""
        return uid in self.decisions and not self.decisions[uid].phase

    # what to send

    def next_item(self, wanted: NodeDocument, now_s: float) -> dict[str, Request]:
        """Return the sections to send now, {} for none; ``sent`` must be None."""
        if now_s < self._retry_at_s:
            return {}
        if now_s >= self._full_at_s:
            return {section: changes.full(wanted[section]) for section in SECTIONS}
        due = {key for key, at_s in self._again_at_s.items() if at_s <= now_s}
        found = {}
        for section in SECTIONS:
            confirmed = self._confirmed[section]
            again = frozenset(key for where, key in due if where == section)
            whole = confirmed is None or self._look_at_s.get(section, now_s + 1) <= now_s
            request = changes.full(wanted[section]) if whole else None
            if confirmed is not None and not whole:
                request = changes.delta(wanted[section], confirmed, again)
            if request is not None:
                found[section] = request
        return found

    def next_moment_s(self, now: datetime, now_s: float) -> float:
        """Return in how many seconds something is due without any event."""
        moments = [self._full_at_s - now_s, *(at_s - now_s for at_s in self._again_at_s.values())]
        moments += [at_s - now_s for at_s in self._look_at_s.values()]
        if self._retry_at_s > now_s:
            # nothing can be sent before
            moments = [max(moment, self._retry_at_s - now_s) for moment in moments] + [self._retry_at_s - now_s]
        wakes = (decision.wake_at for decision in self.decisions.values() if decision.wake_at is not None)
        moments += [(wake_at - now).total_seconds() for wake_at in wakes]
        return max(0.0, min(moments))

    def awake(self, now: datetime) -> set[str]:
        """Return the UIDs of pods whose decision time alone has changed."""
        return {
            uid for uid, decision in self.decisions.items() if decision.wake_at is not None and decision.wake_at <= now
        }

    def observe_fully(self) -> None:
        """Have the next item observe the whole node; one that is at work may have looked already."""
        self._full_at_s = 0.0
        self._asked_meanwhile = self.sent is not None

    def heal(self) -> None:
        """Have the whole node observed, and put right what a policy has reported only."""
        self.healing = True
        self.observe_fully()

    def on_holds(self, holds: Holds, now_s: float) -> None:
        """Have the sections looked at in which something is held no more that is known to differ."""
        for section, found in self.realized.held.items():
            if found.keys() - holds.get(section, NO_HOLD).keys:
                self._look_at_s.setdefault(section, now_s)

    def on_changed(self, sections: Iterable[str], now_s: float, link: str = "") -> bool:
        """The kernel tells of a change; return whether it is somebody else's and will be looked at.

        What is told while an item is at work, or shortly after one that changed something, is taken for ours. If it
        was not, the next full observation sees it. The pod of a ``link`` that is gone cannot be reached until then.
        """
        if (self.sent is not None and not self.sent.facts) or now_s < self._quiet_until_s:
            return False
        at_s = max(now_s + GATHER_S, self._looked_at_s + LOOK_EVERY_S)
        new = [section for section in sections if section not in self._look_at_s]
        self._look_at_s |= dict.fromkeys(new, at_s)
        cut = {uid for uid in self.decisions if link and link_name(uid) == link} - self.detached
        if now_s < self._quiet_until_s + LATE_S:
            cut = set()
        self.detached |= cut
        self.dirty |= cut
        return bool(new or cut)

    def on_return(self) -> None:
        """The node answers again: what failed meanwhile is no reason to wait, and what ran before may run no more."""
        self.known = False
        self._item_failures, self._retry_at_s, self._back = 0, 0.0, self._was_observed
        self.observe_fully()

    def taken_drift(self) -> list[Difference]:
        """Return the drift that passes found since the last call."""
        found, self.drift = self.drift, []
        return found

    def confirmed(self) -> dict[str, Confirmed | None]:
        """Return what the node confirmed, by section; None where it is not known."""
        return dict(self._confirmed)

    def holds(self, uid: str) -> bool:
        """Return whether the node has, or may be getting, anything of the pod."""
        if not self.observed.pod(uid).empty or any(self._confirmed[section] is None for section in _OBSERVING):
            return True
        return any(key == uid or key.startswith(f"{uid}/") for section in _OF_PODS for key in self._keys(section))

    def holds_sandbox(self, uid: str) -> bool:
        """Return whether the node has, or may be getting, a sandbox of the pod."""
        if self.observed.pod(uid).sandboxes or self._confirmed["sandboxes"] is None:
            return True
        return uid in self._keys("sandboxes")

    def works_on(self, uid: str) -> bool:
        """Return whether the item under way brings up containers of the pod; its outcome will tell more."""
        request = self.sent.requests.get("containers") if self.sent is not None else None
        return request is not None and any(key.startswith(f"{uid}/") for key in request.keys or request.entries)

    def _keys(self, section: str) -> set[str]:
        """Return the keys the node was or is being told of."""
        confirmed = self._confirmed[section]
        keys = set(confirmed.entries) if confirmed is not None else set()
        request = self.sent.requests.get(section) if self.sent is not None else None
        return keys | set(request.entries) if request is not None else keys

    def retained(self, document: NodeDocument) -> dict[str, JsonObject]:
        """Return confirmed volumes that are wanted no more but still used by live containers."""
        return retained_volumes(self._confirmed["volumes"], document, self.observed.pod)

    # what came back

    def on_outcome(self, outcome: Outcome, now: datetime, now_s: float, happened: Happened) -> set[str]:
        """Take over what became of the item; return the UIDs of pods it tells something about."""
        sent, self.sent = self.sent, None
        asked, self._asked_meanwhile = self._asked_meanwhile, False
        if sent is None:
            return set()
        touched: set[str] = set()
        if any(result.get("changed") for result in outcome.sections.values()):
            self._quiet_until_s = now_s + OWN_S
        for section, request in sent.requests.items():
            result = outcome.sections.get(section)
            if request.keys is None and self._look_at_s.pop(section, None) is not None:
                self._looked_at_s = now_s
            if result is None or result.get("failed") or result["base_mismatch"] or result["fenced"]:
                self._confirmed[section] = None
                continue
            self._confirmed[section] = Confirmed(result["digest"], request.entries)
            self.drift += self.realized.take(section, request, result, now)
            touched |= self._on_result(section, request, result, now, now_s, happened)
        failed = outcome.status != "ok"
        self._item_failures = self._item_failures + 1 if failed else 0
        self._retry_at_s = now_s + ITEM_RETRY.delay_s(self._item_failures) if failed else 0.0
        if (
            not failed
            and len(sent.requests) == len(SECTIONS)
            and all(one.keys is None for one in sent.requests.values())
        ):
            self._full_at_s = 0.0 if asked else now_s + (SETTLE_S if self._back else self._full_every_s())
            self._back, self._was_observed = asked and self._back, True
            self.healing = self.healing and asked
            self.relist_wanted = True
        return touched

    def _on_result(
        self, section: str, request: Request, result: JsonObject, now: datetime, now_s: float, happened: Happened
    ) -> set[str]:
        before = {key for key in self.errors if key.startswith(f"{section}/")}
        covered = before if request.keys is None else {f"{section}/{key}" for key in request.keys} & before
        for known in covered:
            del self.errors[known]
        touched = {known.split("/")[1] for known in covered} if section in _OF_PODS else set()
        if section in _OBSERVING:
            # every pod looked at is looked at again here: what waited for this outcome has it now
            touched |= {key.partition("/")[0] for key in (request.entries if request.keys is None else request.keys)}
        for key in [one for one in self._again_at_s if one[0] == section and _covers(request, one[1])]:
            del self._again_at_s[key]
        postponed = {str(due["key"]) for due in result["due"]}
        for due in result["due"]:
            self._again_at_s[section, str(due["key"])] = now_s + max(0.0, float(due["after_s"]))
        touched |= self._on_errors(section, request, result["errors"], now_s)
        if section == "sandboxes":
            looked = self.detached if request.keys is None else request.keys
            self.detached = (self.detached - looked) | without_network(result)
        if section in _OBSERVING:
            told = {key: seen for key, seen in result["status"].items() if seen or key not in postponed}
            told = {key: seen for key, seen in told.items() if seen or key not in result["errors"]}
            touched |= self._on_status(section, request, told, now, now_s, happened)
        return touched

    def _on_errors(self, section: str, request: Request, errors: Mapping[str, JsonObject], now_s: float) -> set[str]:
        for failed in [one for one in self._failures if one[0] == section and _covers(request, one[1])]:
            if failed[1] not in errors:
                del self._failures[failed]
        for key, error in errors.items():
            self.errors[f"{section}/{key}"] = error
            if error.get("reason") == "ImageMissing":
                self.images -= _names(str(request.entries.get(key, {}).get("image") or ""))
            if error.get("reason") in _ANSWERED_BY_DECISION:
                continue
            reason = str(error.get("reason"))
            if (at_s := with_what_it_needs(self._again_at_s, key, reason)) is not None:
                self._again_at_s[section, key] = at_s
                continue
            failures = self._failures[section, key] = self._failures.get((section, key), 0) + 1
            at_s = self._again_at_s[section, key] = now_s + KEY_RETRY.delay_s(failures)
            if (confirmed := self._confirmed["volumes"]) is not None:
                self._again_at_s |= made_again(confirmed.entries, key, reason, at_s)
        return {key.partition("/")[0] for key in errors} if section in _OF_PODS else set()

    def _on_status(
        self,
        section: str,
        request: Request,
        status: Mapping[str, Any],
        now: datetime,
        now_s: float,
        happened: Happened,
    ) -> set[str]:
        touched = set()
        for key, raw in status.items():
            uid, _, name = key.partition("/")
            before = self.observed.pod(uid)
            if raw is not None:
                changed = self.observed.learn(observation(raw, now), now_s)
            else:
                attempt = request.entries.get(key, {}).get("attempt")
                changed = self.observed.forget_key(uid, section == "sandboxes", name, attempt)
            if changed:
                touched.add(uid)
                happened(uid, before, self.observed.pod(uid))
        return touched

    # what the gateway tells

    def on_state(self, seen: Iterable[ObservedContainer], images: Iterable[str], now_s: float) -> set[str]:
        """Take over the list of all containers and images; return the UIDs of pods that changed."""
        # a list made while an item is at work may lack what the item makes: it only adds, and another is asked for
        self.relist_wanted = self.sent is not None
        listed = list(seen)
        changed = self.observed.replace(listed, now_s, float("inf") if self.sent is not None else FRESH_S)
        if self.sent is None and not self.observed.ids() <= {one.id for one in listed}:
            # it was kept for being fresh, but its end may be what a dying dockerd never told: looked at once more
            self._full_at_s = min(self._full_at_s, now_s + FRESH_S)
        first, self.known = not self.known, True
        if self.on_images(images) or first:
            changed |= set(self.decisions)
        return changed

    def on_images(self, names: Iterable[str]) -> bool:
        """Take over the images the node has; return whether they changed."""
        images = frozenset(names)
        changed, self.images = images != self.images, images
        return changed

    def on_event(self, container_id: str, seen: ObservedContainer | None, now_s: float, happened: Happened) -> set[str]:
        """Take over what Docker told of one container (None: destroyed); return the UIDs of pods that changed."""
        if seen is None:
            uid = self.observed.forget(container_id)
            return {uid} if uid else set()
        before = self.observed.pod(seen.pod_uid)
        if not self.observed.learn(seen, now_s):
            return set()
        happened(seen.pod_uid, before, self.observed.pod(seen.pod_uid))
        return {seen.pod_uid}

    def on_pull_asked(self, key: str) -> None:
        """Remember that the gateway is asked to pull; ``key`` is the image with what it is pulled with."""
        known = self.pulls.get(key, PullState())
        self.pulls[key] = known._replace(active=True)

    def on_pulled(self, image: str, *, ok: bool, reason: str, message: str, now: datetime, key: str = "") -> None:
        """Take over the end of a pull; ``key`` is what it was asked by, the image if nothing else."""
        key = key or image
        known = self.pulls.get(key, PullState())
        if ok:
            self.images |= _names(image)
            self.pulls[key] = PullState(finished_at=now)
        else:
            self.pulls[key] = PullState(False, known.failures + 1, now, reason, message)  # noqa: FBT003

    def on_pull_dropped(self, key: str) -> None:
        """Forget that the gateway was asked to pull; who still wants the image asks again."""
        self.pulls[key] = self.pulls.get(key, PullState())._replace(active=False)
        self.dirty |= set(self.decisions)

    def on_gateway_lost(self) -> None:
        """The gateway is away: what it told may be outdated, its pulls are broken off."""
        self.known = False
        self.pulls = {image: pull._replace(active=False) for image, pull in self.pulls.items()}
        self.checking.lost()
        self.observe_fully()


def retained_volumes(
    confirmed: Confirmed | None, document: NodeDocument, observed: Callable[[str], ObservedPod]
) -> dict[str, JsonObject]:
    """Return the confirmed volumes that ``document`` lacks but live containers still use; ``observed`` by pod UID."""
    return {
        key: dict(entry)
        for key, entry in (confirmed.entries.items() if confirmed else ())
        if key not in document["volumes"] and any(one.alive for one in observed(key.partition("/")[0]).attempts())
    }


def _covers(request: Request, key: str) -> bool:
    return request.keys is None or key in request.keys


def _names(image: str) -> frozenset[str]:
    try:
        return frozenset({normalized(image)})
    except ValueError:
        return frozenset()
