"""Everything remembered of one node between two moments; what is lost with it is observed again.

Holds what was observed (``NodeObservations``), what the node confirmed to have (``changes.Confirmed`` per
section), the pods' last decisions and, in ``Agenda``, when something must be looked at again. No input or
output, no thread, no clock of its own: ``loop.py`` calls it under its lock and carries out what it answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.module_utils.minik8s.core.sections import SECTIONS
from minik8s_modules.module_utils.minik8s.network.attachment import link_name
from minik8s_modules.reconcile.loop import section_changes as changes
from minik8s_modules.reconcile.loop.agenda import Agenda
from minik8s_modules.reconcile.loop.drift_holds import NO_HOLD, Holds
from minik8s_modules.reconcile.loop.drifts import Difference, Realized, without_network
from minik8s_modules.reconcile.loop.probe_state import Checking
from minik8s_modules.reconcile.loop.section_changes import Confirmed, Request
from minik8s_modules.reconcile.loop.volume_state import VolumeState
from minik8s_modules.reconcile.pods.observed import NodeObservations, ObservedContainer, ObservedPod, observation
from minik8s_modules.reconcile.values.images import normalized
from minik8s_modules.reconcile.values.items import Outcome
from minik8s_modules.reconcile.values.values import NodeDocument, PodDecision, PullState

Happened = Callable[[str, ObservedPod, ObservedPod], None]
"""Called with a pod's UID and its observations before and after a change."""

UNMOUNT = "FailedUnMount"
"""Reason of a volume that the node could not take away: its pod goes only when it could."""
FRESH_S = 3.0
"""A list of the gateway may be this much older than what a module just told."""
LATE_S = 3.0
"""What is told this soon after such an item makes no pod unready: it may be of a sandbox that the item replaced."""
_OBSERVING = frozenset({"sandboxes", "containers"})
_OF_PODS = ("secrets", "volumes", "sandboxes", "sidecars", "containers")
"""Sections whose keys tell a pod; of these, errors and changes are looked at pod by pod."""


class Sent(NamedTuple):
    """The item a node is working on."""

    id: str
    requests: Mapping[str, Request]
    facts: bool = False

    @property
    def whole(self) -> bool:
        """Whether the item observes the whole node."""
        return len(self.requests) == len(SECTIONS) and all(one.keys is None for one in self.requests.values())


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
        self.unreadable: set[str] = set()
        self.checking = Checking(name)
        self.errors: dict[str, JsonObject] = {}
        self.volumes = VolumeState()
        self.dirty: set[str] = set()
        self.sent: Sent | None = None
        self.realized = Realized()
        self.drift: list[Difference] = []
        self.detached: set[str] = set()
        """UIDs of the pods that are known to have no network, though their sandboxes run."""
        self.healing = False
        """Whether somebody asked that what is only reported is put right."""
        self.relist_wanted = False
        self.facts_wanted = True
        self.facts_at_s = 0.0
        self._agenda = Agenda(full_every_s)
        self._confirmed: dict[str, Confirmed | None] = dict.fromkeys(SECTIONS)

    def has_taken(self, uid: str) -> bool:
        """Return whether the node has a decision about a pod that is not to end it."""
        return uid in self.decisions and not self.decisions[uid].phase

    def forget(self, uid: str) -> None:
        """Forget what a pod wants that is gone."""
        self.decisions.pop(uid, None)
        self.unreadable.discard(uid)
        self.volumes.forget(uid)

    # what to send

    def next_item(self, wanted: NodeDocument, now_s: float) -> dict[str, Request]:
        """Return the sections to send now, {} for none; ``sent`` must be None."""
        agenda = self._agenda
        if not agenda.may_send(now_s):
            return {}
        if agenda.full_due(now_s):
            return {section: changes.full(wanted[section]) for section in SECTIONS}
        found = {}
        for section in SECTIONS:
            confirmed = self._confirmed[section]
            # whole where nothing is confirmed: a delta would be refused, as its base is not known
            if confirmed is None or agenda.look_due(section, now_s):
                found[section] = changes.full(wanted[section])
            elif request := changes.delta(wanted[section], confirmed, agenda.keys_due(section, now_s)):
                found[section] = request
        return found

    def next_moment_s(self, now: datetime, now_s: float) -> float:
        """Return in how many seconds something is due without any event."""
        wakes = (decision.wake_at for decision in self.decisions.values() if decision.wake_at is not None)
        return max(0.0, min([self._agenda.next_s(now_s), *((wake_at - now).total_seconds() for wake_at in wakes)]))

    def awake(self, now: datetime) -> set[str]:
        """Return the UIDs of pods whose decision time alone has changed."""
        return {
            uid for uid, decision in self.decisions.items() if decision.wake_at is not None and decision.wake_at <= now
        }

    def observe_fully(self) -> None:
        """Have the next item observe the whole node; one that is at work may have looked already."""
        self._agenda.observe_fully(at_work=self.sent is not None)

    def heal(self) -> None:
        """Have the whole node observed, and put right what a policy has reported only."""
        self.healing = True
        self.observe_fully()

    def on_holds(self, holds: Holds, now_s: float) -> None:
        """Have the sections looked at in which something is held no more that is known to differ."""
        for section, found in self.realized.held.items():
            if found.keys() - holds.get(section, NO_HOLD).keys:
                self._agenda.look(section, now_s)

    def on_changed(self, sections: Iterable[str], now_s: float, link: str = "") -> bool:
        """The kernel tells of a change; return whether it is somebody else's and will be looked at.

        What is told while an item is at work, or shortly after one that changed something, is taken for ours. If it
        was not, the next full observation sees it. The pod of a ``link`` that is gone cannot be reached until then.
        """
        if (self.sent is not None and not self.sent.facts) or self._agenda.may_be_own(now_s):
            return False
        new = self._agenda.look_for_changes(sections, now_s)
        cut = {uid for uid in self.decisions if link and link_name(uid) == link} - self.detached
        if self._agenda.may_be_own(now_s, LATE_S):
            cut = set()
        self.detached |= cut
        self.dirty |= cut
        return new or bool(cut)

    def on_return(self) -> None:
        """The node answers again: what failed meanwhile is no reason to wait, and what ran before may run no more."""
        self.known = False
        self._agenda.on_return()
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
        if any(key.startswith(f"volumes/{uid}/") and why.get("reason") == UNMOUNT for key, why in self.errors.items()):
            return True  # its driver has the volume mounted still
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

    def volumes_in_use(self, listed: frozenset[str]) -> frozenset[str]:
        """Return the attached volumes that the node may have mounted by now, or soon; see ``VolumeState.in_use``."""
        sent, confirmed = self.sent and self.sent.requests.get("volumes"), self._confirmed["volumes"]
        entries = [one.entries for one in (sent, confirmed) if one is not None]
        entries += [decision.entries.get("volumes", {}) for decision in self.decisions.values()]
        return self.volumes.in_use(entries, listed, settled=sent is None and confirmed is not None)

    def retained(self, document: NodeDocument) -> dict[str, JsonObject]:
        """Return confirmed volumes that are wanted no more but still used by live containers."""
        return retained_volumes(self._confirmed["volumes"], document, self.observed.pod)

    # what came back

    def on_outcome(self, outcome: Outcome, now: datetime, now_s: float, happened: Happened) -> set[str]:
        """Take over what became of the item; return the UIDs of pods it tells something about."""
        sent, self.sent = self.sent, None
        if sent is None:
            return set()
        touched: set[str] = set()
        for section, request in sent.requests.items():
            result = outcome.sections.get(section)
            if request.keys is None:
                self._agenda.on_looked(section, now_s)
            if result is None or result.get("failed") or result["base_mismatch"] or result["fenced"]:
                # it may have been carried out in part: what the node has is known again after a whole pass
                self._confirmed[section] = None
                if section == "volumes":
                    self.volumes.take(None)
                continue
            if section == "volumes":
                touched |= self.volumes.take(result)
            self._confirmed[section] = Confirmed(result["digest"], request.entries)
            self.drift += self.realized.take(section, request, result, now)
            touched |= self._on_result(section, request, result, now, now_s, happened)
        failed, whole = outcome.status != "ok", sent.whole
        changed = any(result.get("changed") for result in outcome.sections.values())
        asked = self._agenda.on_end(now_s, failed=failed, changed=changed, whole=whole)
        if outcome.status == "unreachable":
            self._agenda.may_have_booted()  # a machine boots in less time than it takes to call it dead
        if whole and not failed:
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
        volumes = self._confirmed["volumes"]
        self._agenda.on_result(section, request, result, volumes.entries if volumes is not None else (), now_s)
        touched |= self._on_errors(section, request, result["errors"])
        if section == "sandboxes":
            looked = self.detached if request.keys is None else request.keys
            self.detached = (self.detached - looked) | without_network(result)
        if section in _OBSERVING:
            postponed = {str(due["key"]) for due in result["due"]}
            # null means that nothing is there, but not where a key was put off or failed: then it was not looked at
            # to the end
            reported = {key: seen for key, seen in result["status"].items() if seen or key not in postponed}
            reported = {key: seen for key, seen in reported.items() if seen or key not in result["errors"]}
            touched |= self._on_status(section, request, reported, now, now_s, happened)
        return touched

    def _on_errors(self, section: str, request: Request, errors: Mapping[str, JsonObject]) -> set[str]:
        for key, error in errors.items():
            self.errors[f"{section}/{key}"] = error
            if error.get("reason") == "ImageMissing":
                self.images -= _names(str(request.entries.get(key, {}).get("image") or ""))
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
                # only of the attempt that was asked about: the gateway may have told of a newer one meanwhile
                attempt = request.entries.get(key, {}).get("attempt")
                changed = self.observed.forget_key(uid, section == "sandboxes", name, attempt)
            if changed:
                touched.add(uid)
                happened(uid, before, self.observed.pod(uid))
        return touched

    # what the gateway tells

    def on_state(
        self, seen: Iterable[ObservedContainer], images: Iterable[str], now_s: float, happened: Happened
    ) -> set[str]:
        """Take over the list of all containers and images; return the UIDs of pods that changed.

        The first list tells how things are, a later one also what has happened: an end that no event told, say.
        """
        # a list made while an item is at work may lack what the item makes: it only adds, and another is asked for
        self.relist_wanted = self.sent is not None
        listed = list(seen)
        before = {one.pod_uid: self.observed.pod(one.pod_uid) for one in listed} if self.known else {}
        changed = self.observed.replace(listed, now_s, float("inf") if self.sent is not None else FRESH_S)
        if self.sent is None and not self.observed.ids() <= {one.id for one in listed}:
            # it was kept for being fresh, but its end may be what a dying dockerd never told: looked at once more
            self._agenda.observe_fully_by(now_s + FRESH_S)
        for uid in changed & before.keys():
            happened(uid, before[uid], self.observed.pod(uid))
            if self.sent is None and _lost_sandbox(before[uid], self.observed.pod(uid)):
                self._agenda.may_have_booted()
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


def _lost_sandbox(before: ObservedPod, after: ObservedPod) -> bool:
    """Return whether a sandbox ended that no event has told of."""
    return before.sandbox is not None and before.sandbox.alive and not (after.sandbox and after.sandbox.alive)


def _names(image: str) -> frozenset[str]:
    try:
        return frozenset({normalized(image)})
    except ValueError:
        return frozenset()
