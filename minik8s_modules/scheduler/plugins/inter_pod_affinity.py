"""Pods that are to be near others, or far from them; what those that are there already want holds for new ones too.

Counts by domain (topology key and value) are kept for all pods of a shape and follow the cluster by its changes,
instead of being counted again for each pod. Source: pkg/scheduler/framework/plugins/interpodaffinity.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.scheduler.framework.infos import NodeInfo, PodInfo
from minik8s_modules.scheduler.framework.points import BEST, CycleState, Event, Handle, Wake
from minik8s_modules.scheduler.framework.snapshot import Snapshot
from minik8s_modules.scheduler.framework.statuses import SKIP, Status, unresolvable, unschedulable
from minik8s_modules.scheduler.framework.terms import Namespaces, Term
from minik8s_modules.scheduler.plugins.base import Arguments, InTree

Domain = tuple[str, str]  # topology key, the node's value
_NO_PODS_NEAR = unresolvable("node(s) didn't match pod affinity rules")
_PODS_TOO_NEAR = unschedulable("node(s) didn't match pod anti-affinity rules")
_REPELLED = unschedulable("node(s) didn't satisfy existing pods anti-affinity rules")


class _Counts:
    """For one shape, by domain: pods it is to be near or far from, pods that repel it, and what others weigh."""

    def __init__(self, pod: PodInfo, namespaces: Namespaces, hard_weight: int, *, ignore: bool) -> None:
        self.pod, self.namespaces = pod, namespaces
        self.hard_weight, self.ignore = hard_weight, ignore
        self.near: Counter[Domain] = Counter()
        self.far: Counter[Domain] = Counter()
        self.repelling: Counter[Domain] = Counter()
        self.liking: Counter[Domain] = Counter()
        self.epoch, self.version = -1, 0

    def clone(self) -> _Counts:
        """Return counts of their own."""
        other = _Counts(self.pod, self.namespaces, self.hard_weight, ignore=self.ignore)
        other.near, other.far, other.repelling = self.near.copy(), self.far.copy(), self.repelling.copy()
        other.liking = self.liking
        return other

    def follow(self, snapshot: Snapshot) -> _Counts:
        """Take in what has changed since last time."""
        changes = snapshot.since(self.version) if self.epoch == snapshot.epoch else None
        if changes is None:
            self._count(snapshot)
        else:
            for change in changes:
                same = change.old.labels == change.new.labels
                self._add(change.gone if same else change.old.pods, change.old.labels, -1)
                self._add(change.come if same else change.new.pods, change.new.labels, 1)
        self.epoch, self.version = snapshot.epoch, snapshot.version
        return self

    def _count(self, snapshot: Snapshot) -> None:
        for counts in (self.near, self.far, self.repelling, self.liking):
            counts.clear()
        all_pods = self.pod.shape.terms.social
        for node in snapshot.nodes:
            self._add(node.pods if all_pods else node.social, node.labels, 1)

    def _add(self, pods: Iterable[PodInfo], labels: Mapping[str, str], sign: int) -> None:
        own = self.pod.shape.terms.social
        for other in pods:
            if own or other.shape.terms.social:
                self.take(other, labels, sign)
                self._like(other, labels, sign)

    def take(self, other: PodInfo, labels: Mapping[str, str], sign: int) -> None:
        """Count what is required of one pod more or less."""
        mine, theirs = self.pod.shape.terms, other.shape.terms
        if mine.near and all(term.matches(other.pod, self.namespaces) for term in mine.near):
            for term in mine.near:
                _raise(self.near, term.key, labels, sign)
        for term in mine.far:
            if term.matches(other.pod, self.namespaces):
                _raise(self.far, term.key, labels, sign)
        for term in theirs.far:
            if term.matches(self.pod.pod, self.namespaces):
                _raise(self.repelling, term.key, labels, sign)

    def _like(self, other: PodInfo, labels: Mapping[str, str], sign: int) -> None:
        mine, theirs = self.pod.shape.terms, other.shape.terms
        if self.ignore and not mine.preferred:
            return
        self._weigh(mine.preferred, other.pod, labels, sign)
        self._weigh(theirs.preferred, self.pod.pod, labels, sign)
        if self.hard_weight:
            for term in theirs.near:
                if term.matches(self.pod.pod, self.namespaces):
                    _raise(self.liking, term.key, labels, sign * self.hard_weight)

    def _weigh(self, terms: Iterable[Term], pod: JsonObject, labels: Mapping[str, str], sign: int) -> None:
        for term in terms:
            if term.matches(pod, self.namespaces):
                _raise(self.liking, term.key, labels, sign * term.weight)


def _raise(counts: Counter[Domain], key: str, labels: Mapping[str, str], by: int) -> None:
    value = labels.get(key)
    if value is not None:
        domain = (key, value)
        counts[domain] += by
        if not counts[domain]:
            del counts[domain]


class InterPodAffinity(InTree):
    """Judges nodes by the pods that are near."""

    name = "InterPodAffinity"

    def __init__(self, arguments: Arguments | None = None, handle: Handle | None = None) -> None:
        super().__init__(arguments, handle)
        weight = self.arguments.get("hardPodAffinityWeight")
        self._hard_weight = 1 if weight is None else int(weight)
        self._ignore = bool(self.arguments.get("ignorePreferredTermsOfExistingPods"))

    def _counts(self, pod: PodInfo, snapshot: Snapshot) -> _Counts:
        kept = snapshot.memo(
            (id(self), pod.shape.key),
            lambda: _Counts(pod, snapshot.namespaces, self._hard_weight, ignore=self._ignore),
        )
        return kept.follow(snapshot)

    def pre_filter(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot
    ) -> tuple[frozenset[str] | None, Status | None]:
        """Take the counts; skip a pod that neither wants nor is unwanted."""
        counts = self._counts(pod, snapshot)
        state[self.name] = counts
        terms = pod.shape.terms
        return None, None if terms.near or terms.far or counts.repelling else SKIP

    def add_pod(self, state: CycleState, _pod: PodInfo, other: PodInfo, node: NodeInfo) -> Status | None:
        """Count one pod more."""
        state[self.name].take(other, node.labels, 1)
        return None

    def remove_pod(self, state: CycleState, _pod: PodInfo, other: PodInfo, node: NodeInfo) -> Status | None:
        """Count one pod less."""
        state[self.name].take(other, node.labels, -1)
        return None

    def filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Return what speaks against the node; the first of pods that want each other may go anywhere."""
        counts: _Counts = state[self.name]
        terms, labels = pod.shape.terms, node.labels
        if terms.near and not _has_near(counts, labels):
            return _NO_PODS_NEAR
        if counts.far and any(counts.far.get((term.key, labels.get(term.key, ""))) for term in terms.far):
            return _PODS_TOO_NEAR
        if counts.repelling and any(counts.repelling.get(domain) for domain in labels.items()):
            return _REPELLED
        return None

    def pre_score(self, state: CycleState, pod: PodInfo, _nodes: Sequence[NodeInfo]) -> Status | None:
        """Skip where nobody prefers anything."""
        if self.name not in state:
            state[self.name] = self._counts(pod, self.handle.snapshot())
        counts: _Counts = state[self.name]
        state[f"{self.name}/keys"] = {key for key, _ in counts.liking}
        return None if counts.liking else SKIP

    def score(self, state: CycleState, _pod: PodInfo, node: NodeInfo) -> int:
        """Return the sum of the weights in the node's domains."""
        liking, labels = state[self.name].liking, node.labels
        return sum(liking.get((key, labels[key]), 0) for key in state[f"{self.name}/keys"] if key in labels)

    def normalize(self, _state: CycleState, _pod: PodInfo, scores: list[int]) -> Sequence[int]:
        """Return the least as 0, the largest as 100; equal ones as 0."""
        least, span = min(scores), max(scores) - min(scores)
        return [int(BEST * ((each - least) / span)) if span else 0 for each in scores]

    def wakes(self) -> Sequence[Wake]:
        """Return when pods near by, or nodes, may have changed."""
        own = self._speaks_of

        def came(pod: PodInfo, _old: JsonObject | None, new: JsonObject | None) -> bool:
            return new is not None and own(pod.shape.terms.near, new)

        def went(pod: PodInfo, old: JsonObject | None, _new: JsonObject | None) -> bool:
            if old is None:
                return False
            theirs = PodInfo.of(old).shape.terms.far
            return own(pod.shape.terms.far, old) or own(theirs, pod.pod)

        def either(pod: PodInfo, old: JsonObject | None, new: JsonObject | None) -> bool:
            return came(pod, old, new) or went(pod, old, new)

        return (
            Wake(Event("AssignedPod", "Add"), came),
            Wake(Event("AssignedPod", "Delete"), went),
            Wake(Event("AssignedPod", "UpdateLabel"), either),
            Wake(Event("Node", "Add")),
            Wake(Event("Node", "UpdateLabel")),
            Wake(Event("Namespace", "*")),
        )

    def _speaks_of(self, terms: Iterable[Term], pod: JsonObject) -> bool:
        namespaces = self._handle.snapshot().namespaces if self._handle is not None else {}
        return any(term.matches(pod, namespaces) for term in terms)


def _has_near(counts: _Counts, labels: Mapping[str, str]) -> bool:
    terms = counts.pod.shape.terms.near
    if any(term.key not in labels for term in terms):
        return False
    if all(counts.near.get((term.key, labels[term.key]), 0) > 0 for term in terms):
        return True
    return not counts.near and all(term.matches(counts.pod.pod, counts.namespaces) for term in terms)
