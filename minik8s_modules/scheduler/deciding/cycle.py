"""The scheduling cycle up to the choice of a node: PreFilter, Filter, PostFilter, PreScore, Score.

Of many nodes not all are looked at (``percentageOfNodesToScore``): from where the last cycle stopped, until enough fit.
Source: kubernetes pkg/scheduler/schedule_one.go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.scheduler.deciding.profile import PluginFailed, Profile, Workbench
from minik8s_modules.scheduler.deciding.templates import YES, Template, template
from minik8s_modules.scheduler.framework import points
from minik8s_modules.scheduler.framework.infos import NodeInfo, PodInfo
from minik8s_modules.scheduler.framework.points import BEST, CycleState, Nomination
from minik8s_modules.scheduler.framework.snapshot import Snapshot
from minik8s_modules.scheduler.framework.statuses import Code, Status

_ALL_BELOW = 100  # nodes: fewer are all looked at
_STRIDE = 64  # nodes looked at together at least
_LEAST_PERCENT, _MOST_PERCENT, _PER_PERCENT = 5, 50, 125


class Decision(NamedTuple):
    """Either ``node``, or why there is none: ``message`` in Kubernetes' words, and the ``reasons`` of each node.

    Attributes:
        statuses: the answers behind the reasons, by node.
        nomination: where the pod is to run later and which pods have to go for it.
        state: what plugins keep for the rest of the attempt.
        looked_at: how many nodes were judged, ``fitting`` how many of them fitted.
        help: what PostFilter plugins said, such as why preemption does not help.
    """

    node: str
    message: str = ""
    reasons: Mapping[str, tuple[str, ...]] = {}
    statuses: Mapping[str, Status] = {}
    nomination: Nomination | None = None
    state: CycleState = CycleState()
    looked_at: int = 0
    fitting: int = 0
    help: str = ""

    @property
    def full_message(self) -> str:
        """The message, with what PostFilter plugins said."""
        return f"{self.message} {self.help}" if self.help else self.message

    @property
    def plugins(self) -> frozenset[str]:
        """Who refused the pod, here or there."""
        return frozenset(status.plugin for status in self.statuses.values())


class _Refused(Exception):
    def __init__(self, status: Status) -> None:
        super().__init__(status.message)
        self.status = status


def decide(pod: JsonObject, snapshot: Snapshot, bench: Workbench) -> Decision:
    """Return the node the bench's profile chooses for ``pod``.

    A pod that names its node stays there: nobody asks a scheduler for it.

    Raises:
        PluginFailed: a plugin failed; nothing can be said of the pod.
    """
    if given := objects.spec(pod).get("nodeName"):
        return Decision(str(given))
    try:
        return _decide(PodInfo.of(pod), snapshot, bench)
    except PluginFailed:
        raise
    except Exception as error:
        raise PluginFailed(*bench.running, f"{type(error).__name__}: {error}") from error


def _decide(pod: PodInfo, snapshot: Snapshot, bench: Workbench) -> Decision:
    profile = bench.profile
    assert profile is not None  # noqa: S101 - set when the profile is made
    bench.current, state = snapshot, CycleState()
    if not snapshot.nodes:
        return Decision("", "no nodes available to schedule pods", state=state)
    try:
        subset, left_out = _pre_filter(state, pod, snapshot, bench)
    except _Refused as refused:
        statuses = {node.name: refused.status for node in snapshot.nodes}
        return _unfit(state, pod, snapshot, bench, statuses, refused.status.message)
    found = template(profile, pod, snapshot, state.skipped_filters)
    search = _Search(state, pod, snapshot, bench, found)
    fitting = search.run(subset)
    if not fitting:
        absent = {node.name: left_out for node in snapshot.nodes} if subset is not None else {}
        return _unfit(state, pod, snapshot, bench, {**absent, **search.statuses})
    chosen = fitting[0] if len(fitting) == 1 else _best(search, fitting)
    return Decision(snapshot.nodes[chosen].name, state=state, looked_at=search.looked_at, fitting=len(fitting))


def _pre_filter(
    state: CycleState, pod: PodInfo, snapshot: Snapshot, bench: Workbench
) -> tuple[frozenset[str] | None, Status]:
    """Return the nodes that come into question (None: all), and why the others do not. Raises _Refused."""
    subset: frozenset[str] | None = None
    skipped = set()
    narrowing = []
    assert bench.profile is not None  # noqa: S101 - set when the profile is made
    for plugin in bench.profile.pre_filter:
        bench.running = (plugin.name, "PreFilter")
        answer: object = plugin.pre_filter(state, pod, snapshot)
        if not isinstance(answer, tuple) or len(answer) != 2:  # noqa: PLR2004 - nodes and status
            raise PluginFailed(plugin.name, "PreFilter", f"it answered {answer!r} instead of nodes and a Status")
        names, status = answer
        status = bench.checked(status)
        if status is not None and status.code is Code.SKIP:
            skipped.add(plugin.name)
        elif status is not None:
            raise _Refused(status)
        if names is not None:
            subset = frozenset(names) if subset is None else subset & names
            narrowing.append(plugin.name)
    state.skipped_filters = frozenset(skipped)
    # several together: no event of one alone can tell that a node has come into question
    by = narrowing[0] if len(narrowing) == 1 else ""
    why = f"node(s) didn't satisfy plugin(s) [{' '.join(sorted(narrowing))}]"
    return subset, Status(Code.UNRESOLVABLE, (why,), by)


class _Search:
    """Looks for nodes that fit, and remembers why others do not."""

    def __init__(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, bench: Workbench, found: Template) -> None:
        self.state, self.pod, self.snapshot, self.bench, self.template = state, pod, snapshot, bench, found
        self.statuses: dict[str, Status] = {}
        self.looked_at = 0
        profile = bench.profile
        assert profile is not None  # noqa: S101 - set when the profile is made
        self.profile: Profile = profile
        local = {one.name for one in found.filters}
        self._others = [one for one in profile.filter if one.name not in local | state.skipped_filters
                        and not getattr(one, "local", False)]  # fmt: skip

    def run(self, subset: frozenset[str] | None) -> list[int]:
        """Return the positions of nodes that fit, enough of them."""
        size = len(self.snapshot.nodes)
        # preemption has made room for it there: others may be looked at only if that room was taken
        nominated = self.snapshot.index.get(str(objects.status(self.pod.pod).get("nominatedNodeName") or ""))
        if nominated is not None and self._fitting([nominated], 1):
            return [nominated]
        if subset is not None:
            places = sorted(self.snapshot.index[name] for name in subset if name in self.snapshot.index)
            return self._fitting(places, len(places))
        enough = enough_nodes(size, self.profile.percentage)
        return self._around(size, enough)

    def _around(self, size: int, enough: int) -> list[int]:
        """Return enough positions from where the last cycle stopped."""
        fitting: list[int] = []
        # nodes get their turn even where enough others before them fit (schedule_one.go, nextStartNodeIndex)
        start, seen = self.snapshot.start % size, 0
        while seen < size and len(fitting) < enough:
            first = (start + seen) % size
            end = min(first + min(max(enough - len(fitting), _STRIDE), size - seen), size)
            fitting += self._fitting(range(first, end), enough)
            seen += end - first
        self.looked_at = seen
        self.snapshot.start = (start + seen) % size
        return fitting

    def _fitting(self, places: Sequence[int], enough: int) -> list[int]:
        """Return those of ``places`` that fit; the statuses of the others are kept."""
        if not places:
            return []
        found, statuses, nodes = self.template, self.template.statuses, self.snapshot.nodes
        if isinstance(places, range):
            found.judge(self.state, self.pod, self.snapshot, self.bench, places.start, places.stop)
        else:
            for place in places:
                found.judge(self.state, self.pod, self.snapshot, self.bench, place, place + 1)
        fits = found.fits
        fitting = [place for place in places if fits[place] == YES]
        if len(fitting) < len(places):
            for place in places:
                if fits[place] != YES and (why := statuses[place]) is not None:
                    self.statuses[nodes[place].name] = why
        return self._also(fitting, enough) if self._others or self.snapshot.nominated else fitting

    def _also(self, places: Sequence[int], enough: int) -> list[int]:
        """Return those that fit by the plugins that look further than the node, too."""
        fitting, nodes, nominated = [], self.snapshot.nodes, self.snapshot.nominated
        state, pod, bench = self.state, self.pod, self.bench
        for place in places:
            node = nodes[place]
            why: Status | None = None
            # judged with the pods that were promised room there, which what is shared by shape knows nothing of
            if node.name in nominated:
                why = bench.run_filters(state, pod, node)
            else:
                for plugin in self._others:
                    why = bench.ask(plugin, state, pod, node)
                    if why is not None:
                        break
            if why is None:
                fitting.append(place)
                if len(fitting) >= enough:
                    break
            else:
                self.statuses[node.name] = why
        return fitting

    def scores(self, fitting: Sequence[int]) -> dict[str, tuple[int, Sequence[int]]]:
        """Return weight and scores by plugin that needs all nodes at once, or is not shared."""
        state, pod, bench, found = self.state, self.pod, self.bench, self.template
        nodes = [self.snapshot.nodes[place] for place in fitting]
        skipped = self._pre_score(nodes)
        scored: dict[str, tuple[int, Sequence[int]]] = {}
        for plugin, weight in self.profile.score:
            if plugin.name in skipped:
                continue
            raws = found.raws.get(plugin.name)
            if raws is None and getattr(plugin, "local", False):
                continue
            bench.running = (plugin.name, "Score")
            if raws is not None:
                scores = [raws[place] for place in fitting]
            elif (score_all := getattr(plugin, "score_all", None)) is not None:
                scores = score_all(state, pod, nodes)
            else:
                scores = [plugin.score(state, pod, node) for node in nodes]
            scored[plugin.name] = (weight, _normalized(plugin, state, pod, scores, bench))
        return scored

    def _pre_score(self, nodes: Sequence[NodeInfo]) -> set[str]:
        skipped = set()
        for plugin in self.profile.pre_score:
            self.bench.running = (plugin.name, "PreScore")
            status = self.bench.checked(plugin.pre_score(self.state, self.pod, nodes))
            if status is not None and status.code is not Code.SKIP:
                raise PluginFailed(plugin.name, "PreScore", status.message)
            if status is not None:
                skipped.add(plugin.name)
        return skipped


def _normalized(
    plugin: points.ScorePlugin, state: CycleState, pod: PodInfo, scores: list[int], bench: Workbench
) -> Sequence[int]:
    # asked for by name: a protocol's isinstance costs as much as the scores of 50 nodes
    normalize = getattr(plugin, "normalize", None)
    found: Sequence[int] = scores if normalize is None else normalize(state, pod, scores)
    # types and not isinstance: True is an int to Python, and would count as a score of 1
    if not {*map(type, found)} <= {int} or min(found, default=0) < 0 or max(found, default=0) > BEST:
        wrong = next(score for score in found if type(score) is not int or not 0 <= score <= BEST)
        raise PluginFailed(*bench.running, f"its score {wrong!r} is not an integer between 0 and {BEST}")
    if len(found) != len(scores):
        raise PluginFailed(*bench.running, f"it gave {len(found)} scores for {len(scores)} nodes")
    return found


def _best(search: _Search, fitting: Sequence[int]) -> int:
    """Return the position with the highest sum; among equal ones nodes take turns."""
    fixed = search.template.fixed
    totals = [fixed[place] for place in fitting]
    for weight, scores in search.scores(fitting).values():
        totals = [total + weight * score for total, score in zip(totals, scores, strict=True)]
    most, turn = max(totals), search.snapshot.turn % len(totals)
    try:
        return fitting[totals.index(most, turn)]
    except ValueError:
        return fitting[totals.index(most)]


def enough_nodes(size: int, percentage: int) -> int:
    """Return how many fitting nodes are enough (schedule_one.go, numFeasibleNodesToFind)."""
    if size < _ALL_BELOW:
        return size
    percent = percentage or max(_MOST_PERCENT - size // _PER_PERCENT, _LEAST_PERCENT)
    return max(size * percent // 100, _ALL_BELOW) if percent < 100 else size  # noqa: PLR2004 - percent


def _unfit(
    state: CycleState,
    pod: PodInfo,
    snapshot: Snapshot,
    bench: Workbench,
    statuses: Mapping[str, Status],
    reasons_shown: str = "",
) -> Decision:
    """Return that no node fits, and what PostFilter plugins say to that."""
    reasons = {name: status.reasons for name, status in statuses.items()}
    message = unschedulable_message(reasons, len(snapshot.nodes), reasons_shown)
    nomination: Nomination | None = None
    helped = ""
    assert bench.profile is not None  # noqa: S101 - set when the profile is made
    for plugin in bench.profile.post_filter:
        bench.running = (plugin.name, "PostFilter")
        found, status = plugin.post_filter(state, pod, statuses)
        status = bench.checked(status)
        nomination = found or nomination
        if status is None:
            break
        helped = f"{helped} {status.message}".strip()
    return Decision("", message, reasons, statuses, nomination, state, len(snapshot.nodes), help=helped)


def unschedulable_message(reasons: Mapping[str, Sequence[str]], total: int, reasons_shown: str = "") -> str:
    """Return Kubernetes' words for "no node fits" (scheduler/framework/types.go, FitError)."""
    counts = Counter(reason for of_node in reasons.values() for reason in of_node)
    listed = reasons_shown or ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
    return f"0/{total} nodes are available: {listed}."


class Judged(NamedTuple):
    """One node in an explanation: why not, or each plugin's score and weight."""

    node: str
    status: Status | None
    scores: Mapping[str, tuple[int, int]]
    total: int


def explain(pod: JsonObject, snapshot: Snapshot, bench: Workbench) -> list[Judged]:
    """Return what every node came to, the best first, then those that do not fit. Raises PluginFailed."""
    info, state = PodInfo.of(pod), CycleState()
    bench.current = snapshot
    try:
        subset, left_out = _pre_filter(state, info, snapshot, bench)
    except _Refused as refused:
        return [Judged(node.name, refused.status, {}, 0) for node in snapshot.nodes]
    assert bench.profile is not None  # noqa: S101 - set when the profile is made
    found = template(bench.profile, info, snapshot, state.skipped_filters)
    search = _Search(state, info, snapshot, bench, found)
    places = [place for place, node in enumerate(snapshot.nodes) if subset is None or node.name in subset]
    fitting = search._fitting(places, len(places))  # noqa: SLF001 - all nodes, not only enough of them
    nodes = [snapshot.nodes[place] for place in fitting]
    rows: list[dict[str, tuple[int, int]]] = [{} for _ in fitting]
    for plugin, weight in search.template.plain:
        for row, node in zip(rows, nodes, strict=True):
            row[plugin.name] = (plugin.score(state, info, node), weight)
    for name, (weight, scores) in (search.scores(fitting) if fitting else {}).items():
        for row, score in zip(rows, scores, strict=True):
            row[name] = (score, weight)
    judged = [
        Judged(node.name, None, row, sum(score * weight for score, weight in row.values()))
        for node, row in zip(nodes, rows, strict=True)
    ]
    fit = {node.name for node in nodes}
    rest = [
        Judged(node.name, search.statuses.get(node.name, left_out), {}, 0)
        for node in snapshot.nodes if node.name not in fit
    ]  # fmt: skip
    return [*sorted(judged, key=lambda one: (-one.total, one.node)), *rest]
