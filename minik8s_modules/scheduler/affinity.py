"""Where a pod wants to be, or not: labels of nodes, other pods near by, an even spread over domains. Pure.

A plugin that looks at other pods is prepared once for a pod (``prepare``) and then asked about each node; the counts
it takes are by (topology key, value). Pods without such wishes, and nodes without pods that repel, cost one look at a
tuple. Source: kubernetes pkg/scheduler/framework/plugins/{nodeaffinity,interpodaffinity,podtopologyspread}.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from minik8s_modules.api import objects
from minik8s_modules.api.errors import BadRequest
from minik8s_modules.api.nodes.node_affinity import REQUIRED, matches_node, term_fits
from minik8s_modules.api.nodes.taints import untolerated
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.selectors import NOTHING, LabelSelector, Requirement, from_label_selector
from minik8s_modules.scheduler.framework import NodeInfo, PodInfo, Snapshot

Judge = Callable[[NodeInfo], Sequence[str]]
Domain = tuple[str, str]  # topology key, the node's value
_BEST = 100
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
NOT_HERE = "node(s) didn't match Pod's node affinity/selector"
_NO_PODS_NEAR = "node(s) didn't match pod affinity rules"
_PODS_TOO_NEAR = "node(s) didn't match pod anti-affinity rules"
_REPELLED = "node(s) didn't satisfy existing pods anti-affinity rules"
_UNEVEN = "node(s) didn't match pod topology spread constraints"
_NO_DOMAIN = f"{_UNEVEN} (missing required label)"


# --- nodes ----------------------------------------------------------------------------------------


class NodeAffinity:
    """``nodeSelector`` and required terms filter, preferred terms add their weights."""

    name = "NodeAffinity"

    def filter(self, pod: PodInfo, node: NodeInfo) -> Sequence[str]:
        """Return the reason unless the node fits."""
        return () if matches_node(pod.pod, node.node) else (NOT_HERE,)

    def score(self, pod: PodInfo, nodes: Sequence[NodeInfo], _snapshot: Snapshot) -> Sequence[int]:
        """Return the sums of the weights of the preferred terms, the largest as 100."""
        terms = objects.dig(pod.pod, "spec", "affinity", "nodeAffinity", _PREFERRED) or []
        sums = [sum(one["weight"] for one in terms if term_fits(one["preference"], node.node)) for node in nodes]
        return scaled(sums)


def scaled(sums: Sequence[float]) -> list[int]:
    """Return the sums between 0 and 100: the least as 0, the largest as 100; equal ones as 0."""
    least, span = min(sums), max(sums) - min(sums)
    return [int(_BEST * (each - least) / span) if span else 0 for each in sums]


class TaintPreference:
    """Nodes with fewer taints that would rather have no such pod are preferred."""

    name = "TaintToleration"

    def score(self, pod: PodInfo, nodes: Sequence[NodeInfo], _snapshot: Snapshot) -> Sequence[int]:
        """Return 100 for the nodes with the fewest PreferNoSchedule taints that the pod does not tolerate."""
        return scaled([-len(untolerated(pod.pod, node.node, {"PreferNoSchedule"})) for node in nodes])


# --- other pods -----------------------------------------------------------------------------------


def _terms(pod: JsonObject, kind: str) -> list[JsonObject]:
    return objects.dig(pod, "spec", "affinity", kind, REQUIRED) or []


def _weighted(pod: JsonObject) -> Iterator[tuple[int, JsonObject]]:
    for kind, sign in (("podAffinity", 1), ("podAntiAffinity", -1)):
        for one in objects.dig(pod, "spec", "affinity", kind, _PREFERRED) or []:
            yield sign * int(one["weight"]), one["podAffinityTerm"]


def _parsed(selector: JsonObject | None) -> LabelSelector:
    try:
        return from_label_selector(selector)
    except BadRequest:
        return NOTHING  # stored before it was checked


def _selector(owner: JsonObject, term: Mapping[str, Any]) -> LabelSelector:
    """Return a term's selector with what ``matchLabelKeys`` and ``mismatchLabelKeys`` take from the owner's labels."""
    selector, labels = _parsed(term.get("labelSelector")), objects.labels(owner)
    more = [
        Requirement(key, operator, frozenset({labels[key]}))
        for field, operator in (("matchLabelKeys", "in"), ("mismatchLabelKeys", "notin"))
        for key in term.get(field) or []
        if key in labels
    ]
    return LabelSelector((*selector.requirements, *more), selector.nothing)


class _Term:
    """An affinity term of ``owner``, ready to be asked about many pods."""

    def __init__(self, owner: JsonObject, term: Mapping[str, Any], namespaces: Mapping[str, Mapping[str, str]]) -> None:
        self.key = str(term.get("topologyKey") or "")
        self._selector = _selector(owner, term)
        self._named = set(term.get("namespaces") or ())
        spaces = term.get("namespaceSelector")
        if not self._named and spaces is None:
            self._named = {objects.namespace(owner)}
        self._spaces = _parsed(spaces) if spaces is not None else None
        self._namespaces = namespaces

    def matches(self, pod: JsonObject) -> bool:
        """Return whether the term speaks of ``pod``."""
        space = objects.namespace(pod)
        here = space in self._named
        if not here and self._spaces is not None:
            here = self._spaces.empty or self._spaces.matches(self._namespaces.get(space, {}))
        return here and self._selector.matches(objects.labels(pod))


def _domain(node: NodeInfo, key: str) -> Domain | None:
    value = objects.labels(node.node).get(key)
    return None if value is None else (key, value)


class InterPodAffinity:
    """Pods that are to be near others, or far from them; required anti-affinity of those there holds for new ones."""

    name = "InterPodAffinity"

    def prepare(self, pod: PodInfo, snapshot: Snapshot) -> Judge | None:
        """Return what judges a node for ``pod``; None when every node will do."""
        near = [_Term(pod.pod, term, snapshot.namespaces) for term in _terms(pod.pod, "podAffinity")]
        far = [_Term(pod.pod, term, snapshot.namespaces) for term in _terms(pod.pod, "podAntiAffinity")]
        repelling = set(_repelling(pod.pod, snapshot))
        if not near and not far and not repelling:
            return None
        crowded = set(_domains_with(far, snapshot, any))
        wanted = Counter(_domains_with(near, snapshot, all))
        first = not wanted and all(term.matches(pod.pod) for term in near)

        def judge(node: NodeInfo) -> Sequence[str]:
            if not all(_has_near(node, term, wanted, first=first) for term in near):
                return (_NO_PODS_NEAR,)
            if any(_domain(node, term.key) in crowded for term in far):
                return (_PODS_TOO_NEAR,)
            return (_REPELLED,) if any(_domain(node, key) == (key, value) for key, value in repelling) else ()

        return judge

    def score(self, pod: PodInfo, nodes: Sequence[NodeInfo], snapshot: Snapshot) -> Sequence[int]:
        """Return the sums of the preferred terms' weights, the new pod's about others and others' about the new one."""
        sums: Counter[Domain] = Counter()
        own = [(weight, _Term(pod.pod, term, snapshot.namespaces)) for weight, term in _weighted(pod.pod)]
        for node in snapshot.nodes:
            for other in node.pods if own else node.social:
                _weigh(sums, own, other.pod, node)
                theirs = (
                    (weight, _Term(other.pod, term, snapshot.namespaces)) for weight, term in _weighted(other.pod)
                )
                _weigh(sums, theirs, pod.pod, node)
        keys = {key for key, _ in sums}
        return scaled([sum(sums[key, objects.labels(node.node).get(key, "")] for key in keys) for node in nodes])


def _weigh(sums: Counter[Domain], terms: Iterable[tuple[int, _Term]], pod: JsonObject, node: NodeInfo) -> None:
    for weight, term in terms:
        if (domain := _domain(node, term.key)) and term.matches(pod):
            sums[domain] += weight


def _has_near(node: NodeInfo, term: _Term, wanted: Counter[Domain], *, first: bool) -> bool:
    domain = _domain(node, term.key)
    return domain is not None and (first or wanted[domain] > 0)


def _domains_with(
    terms: Sequence[_Term], snapshot: Snapshot, how: Callable[[Iterable[bool]], bool]
) -> Iterator[Domain]:
    """Yield the domains of pods that match all terms, or (for ``any``) of each term the pods that match it."""
    for node in snapshot.nodes if terms else ():
        for other in node.pods:
            if how is any:
                met = [term for term in terms if term.matches(other.pod)]
            else:
                met = list(terms) if all(term.matches(other.pod) for term in terms) else []
            yield from (domain for term in met if (domain := _domain(node, term.key)))


def _repelling(pod: JsonObject, snapshot: Snapshot) -> Iterator[Domain]:
    for node in snapshot.nodes:
        for other in node.social:
            for term in _terms(other.pod, "podAntiAffinity"):
                if (domain := _domain(node, term["topologyKey"])) and _Term(
                    other.pod, term, snapshot.namespaces
                ).matches(pod):
                    yield domain


# --- spread ---------------------------------------------------------------------------------------


class PodTopologySpread:
    """Pods of a kind are spread evenly over zones, nodes or whatever a label names."""

    name = "PodTopologySpread"

    def prepare(self, pod: PodInfo, snapshot: Snapshot) -> Judge | None:
        """Return what judges a node by the constraints with DoNotSchedule; None when there is none."""
        hard = [_Constraint(pod.pod, one) for one in _constraints(pod.pod, "DoNotSchedule")]
        if not hard:
            return None
        keys = {one.key for one in hard}
        for one in hard:
            one.count(snapshot.nodes, keys)

        def judge(node: NodeInfo) -> Sequence[str]:
            if any(_domain(node, key) is None for key in keys):
                return (_NO_DOMAIN,)
            return () if all(one.allows(node) for one in hard) else (_UNEVEN,)

        return judge

    def score(self, pod: PodInfo, nodes: Sequence[NodeInfo], snapshot: Snapshot) -> Sequence[int]:
        """Return 100 for the nodes whose domains have the fewest such pods, by the constraints with ScheduleAnyway."""
        soft = [_Constraint(pod.pod, one) for one in _constraints(pod.pod, "ScheduleAnyway")]
        if not soft:
            return [0] * len(nodes)
        keys = {one.key for one in soft}
        for one in soft:
            one.count(snapshot.nodes, keys)
        return scaled([-sum(one.cost(node) for one in soft) for node in nodes])


def _constraints(pod: JsonObject, kind: str) -> list[JsonObject]:
    given = objects.spec(pod).get("topologySpreadConstraints") or []
    return [one for one in given if (one.get("whenUnsatisfiable") or "DoNotSchedule") == kind]


class _Constraint:
    """One constraint with the counts of its domains."""

    def __init__(self, pod: JsonObject, declared: Mapping[str, Any]) -> None:
        self.key = str(declared["topologyKey"])
        self._pod, self._skew = pod, int(declared["maxSkew"])
        self._domains = int(declared.get("minDomains") or 1)
        self._selector = _selector(pod, declared)
        self._by_affinity = declared.get("nodeAffinityPolicy", "Honor") == "Honor"
        self._by_taints = declared.get("nodeTaintsPolicy", "Ignore") == "Honor"
        self._counts: Counter[str] = Counter()

    def count(self, nodes: Iterable[NodeInfo], keys: set[str]) -> None:
        """Count the pods by domain, on the nodes that have all ``keys`` and that the policies count."""
        for node in nodes:
            labels = objects.labels(node.node)
            if all(key in labels for key in keys) and self._counted(node.node):
                self._counts[labels[self.key]] += sum(self._selects(other.pod) for other in node.pods)

    def _counted(self, node: JsonObject) -> bool:
        if self._by_affinity and not matches_node(self._pod, node):
            return False
        return not (self._by_taints and untolerated(self._pod, node, {"NoSchedule", "NoExecute"}))

    def _selects(self, other: JsonObject) -> bool:
        same = objects.namespace(other) == objects.namespace(self._pod)
        return same and not objects.is_deleting(other) and self._selector.matches(objects.labels(other))

    def allows(self, node: NodeInfo) -> bool:
        """Return whether one more pod there keeps the skew."""
        least = min(self._counts.values(), default=0) if len(self._counts) >= self._domains else 0
        mine = int(self._selector.matches(objects.labels(self._pod)))
        return self._counts[objects.labels(node.node)[self.key]] + mine - least <= self._skew

    def cost(self, node: NodeInfo) -> int:
        """Return the pods in the node's domain; a node without one is as bad as the fullest."""
        value = objects.labels(node.node).get(self.key)
        return self._counts[value] if value is not None else max(self._counts.values(), default=0) + 1
