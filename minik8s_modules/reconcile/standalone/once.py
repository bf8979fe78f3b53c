"""``minik8s reconciler --once --manifests FOLDER``: makes the pods of a folder on this machine and ends.

This is kubelet's ``runonce``: no API server, no certificate, nobody who stays. The pods are read as static pods are,
decided by the same function as everywhere, and made by the same modules. Docker is asked before each decision instead
of telling by events. The run is over when each pod runs, has succeeded, or cannot be brought to that.

What the folder declares is all that there is: pods of an earlier run whose file is gone go. A machine that belongs to a
cluster is left alone; its static pods are its own reconciler's. Here is what decides; ``once_run`` is what acts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import Clock
from minik8s_modules.reconcile.loop.nodestate import NodeState, Sent
from minik8s_modules.reconcile.loop.section_changes import Request
from minik8s_modules.reconcile.pods.desired import assemble, decide_pod
from minik8s_modules.reconcile.pods.observed import ObservedPod, observation
from minik8s_modules.reconcile.values.addresses import usable
from minik8s_modules.reconcile.values.items import Outcome, SectionRequest, WorkItem
from minik8s_modules.reconcile.values.sealing import blob
from minik8s_modules.reconcile.values.values import PodDecision, PodInputs, PullState, Settings

MOST_TRIES = 5
"""So often a container is started, or an image asked for, before its pod is given up."""


class Verdict(NamedTuple):
    """What has become of a pod; ``over`` says that waiting would change nothing."""

    word: str
    over: bool
    good: bool


class Round:
    """What is known between two turns; decides, and touches nothing."""

    def __init__(self, node: str, cidr: str, pods: Iterable[JsonObject], settings: Settings) -> None:
        self.state = NodeState(node, lambda: float("inf"))
        self.settings = settings
        self.node: JsonObject = {"metadata": {"name": node}, "spec": {"podCIDR": cidr}}
        self.pods = {objects.uid(pod): pod for pod in pods}
        self._addresses: dict[str, str] = {}
        self._others: set[str] = set()
        self._cidr = cidr

    def see(self, containers: Iterable[JsonObject], images: Iterable[str], clock: Clock) -> None:
        """Take over what Docker has."""
        seen = [observation(each, clock.now()) for each in containers]
        self.state.on_state(seen, images, clock.monotonic(), lambda *_: None)
        for one in seen:  # a pod of an earlier run keeps its address
            if one.pod_uid in self.pods and one.ip:
                self._addresses.setdefault(one.pod_uid, one.ip)
        # those of pods that go are nobody's before they have gone: what comes is made beside that
        self._others = {one.ip for one in seen if one.ip and one.pod_uid not in self.pods}

    def decide(self, clock: Clock) -> None:
        """Decide about each pod."""
        for uid, pod in self.pods.items():
            decision = decide_pod(pod, self.state.observed.pod(uid), self._inputs(uid), clock.now())
            if decision.phase:
                pod["status"] = {"phase": decision.phase}
            self.state.decisions[uid] = decision

    def pulls(self) -> set[str]:
        """Return the images that pods wait for."""
        wanted = set().union(*(one.pulls for one in self.state.decisions.values()))
        return {image for image in wanted if self.state.pulls.get(image, PullState()).failures < MOST_TRIES}

    def on_pulled(self, image: str, error: str, clock: Clock) -> None:
        """Take over what became of a pull."""
        before = self.state.pulls.get(image, PullState())
        reason = "ErrImagePull" if error else ""
        failures = before.failures + 1 if error else 0
        self.state.pulls[image] = PullState(failures=failures, finished_at=clock.now(), reason=reason, message=error)

    def item(self, number: int, clock: Clock) -> WorkItem | None:
        """Return what brings the machine nearer to the decisions, None for nothing to do."""
        document = assemble(self.node, self.state.decisions.values(), self.settings)
        requests = self.state.next_item(document, clock.monotonic())
        if not requests:
            return None
        if "secrets" in requests:
            sealed = {key: found for one in self.state.decisions.values() for key, found in one.sealed.items()}
            requests["secrets"].options["blob"] = blob(sealed)
        self.state.sent = Sent(f"once-{number}", requests)
        return WorkItem(f"once-{number}", self.state.name, False, (), _sections(requests))  # noqa: FBT003

    def take(self, outcome: Outcome, clock: Clock) -> None:
        """Take over what became of an item."""
        self.state.on_outcome(outcome, clock.now(), clock.monotonic(), lambda *_: None)

    def verdicts(self) -> dict[str, Verdict]:
        """Return what has become of each pod, by namespace and name."""
        return {
            "/".join(objects.key(pod)): verdict(
                pod, self.state.decisions[uid], self.state.observed.pod(uid), self.state.pulls, self._errors(uid)
            )
            for uid, pod in self.pods.items()
        }

    def _errors(self, uid: str) -> list[str]:
        return [
            str(why.get("message") or why.get("reason"))
            for key, why in self.state.errors.items()
            if key.split("/")[1] == uid
        ]

    def _inputs(self, uid: str) -> PodInputs:
        state, error = self.state, ""
        if uid not in self._addresses:
            taken = self._others | set(self._addresses.values())
            free = next((address for address in usable(self._cidr) if address not in taken), "")
            error = "" if free else "no address is left"
            if free:
                self._addresses[uid] = free
        return PodInputs(
            self.node, {}, {}, state.images, state.pulls, self._addresses.get(uid), state.errors, self.settings, error
        )


def _sections(requests: Mapping[str, Request]) -> dict[str, SectionRequest]:
    return {section: SectionRequest(request.options) for section, request in requests.items()}


def verdict(
    pod: JsonObject, decision: PodDecision, seen: ObservedPod, pulls: Mapping[str, PullState], errors: list[str]
) -> Verdict:
    """Return what has become of a pod, by its decision and what was seen of it."""
    if decision.phase:
        why = f": {decision.message}" if decision.message else ""
        return Verdict(decision.phase + why, over=True, good=decision.phase == "Succeeded")
    apps = [seen.last(one["name"]) for one in objects.containers(pod)]
    if not decision.waiting and all(one is not None and (one.alive or one.over) for one in apps):
        return Verdict("Running", over=True, good=True)
    for image in decision.pulls:
        if (pull := pulls.get(image)) is not None and pull.failures >= MOST_TRIES:
            return Verdict(f"{image} cannot be pulled: {pull.message}", over=True, good=False)
    tries = [one.attempt + 1 for container in seen.containers.values() for one in container if one.over]
    waiting = "; ".join(
        f"{name}: {why.reason}{' ' + why.message if why.message else ''}" for name, why in decision.waiting.items()
    )
    words = "; ".join([*([waiting] if waiting else []), *errors]) or "is being made"
    return Verdict(words, over=max(tries, default=0) >= MOST_TRIES, good=False)


def unfit(pod: JsonObject) -> str:
    """Return why a pod needs somebody who stays, "" where it does not."""
    for _, _, container in objects.all_containers(pod):
        name = container["name"]
        if container.get("lifecycle"):
            return f"container {name}: nobody stays to run lifecycle hooks"
        if probe := next(
            (one for one in ("startupProbe", "readinessProbe", "livenessProbe") if container.get(one)), ""
        ):
            return f"container {name}: nobody stays to run a {probe}"
    return ""
