"""What plugins with ``local = True`` answered for a shape, node by node, for as long as the node is the same.

A position is judged when it is looked at, and again once its node has changed: a pod like the one before costs what has
changed since then.
"""

from __future__ import annotations

from minik8s_modules.scheduler.deciding.profile import Profile, Workbench
from minik8s_modules.scheduler.framework import points
from minik8s_modules.scheduler.framework.infos import PodInfo
from minik8s_modules.scheduler.framework.points import CycleState
from minik8s_modules.scheduler.framework.snapshot import Snapshot
from minik8s_modules.scheduler.framework.statuses import Status

_NO, YES, _UNKNOWN = range(3)


class Template:
    """Answers for one shape by position.

    Attributes:
        fits: 1 where the node fits, as far as local plugins are concerned.
        statuses: why not.
        fixed: sums of weighted scores that need no normalizing.
        raws: scores of the others, by name.
    """

    def __init__(self, profile: Profile, size: int, skipped: frozenset[str]) -> None:
        self.filters = [one for one in profile.filter if _is_local(one) and one.name not in skipped]
        scores = [(one, weight) for one, weight in profile.score if _is_local(one)]
        self.plain = [(one, weight) for one, weight in scores if not isinstance(one, points.NormalizePlugin)]
        self.raw = [(one, weight) for one, weight in scores if isinstance(one, points.NormalizePlugin)]
        self.fits = bytearray([_UNKNOWN]) * size
        self.statuses: list[Status | None] = [None] * size
        self.fixed = [0] * size
        self.raws: dict[str, list[int]] = {one.name: [0] * size for one, _ in self.raw}
        self._version = 0

    def follow(self, snapshot: Snapshot) -> None:
        """Forget what was said of nodes that have changed."""
        changes = snapshot.since(self._version)
        if changes is None:
            self.fits[:] = bytes([_UNKNOWN]) * len(self.fits)
        else:
            for change in changes:
                self.fits[change.position] = _UNKNOWN
        self._version = snapshot.version

    def judge(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, bench: Workbench, first: int, end: int
    ) -> None:
        """Judge the positions from ``first`` to ``end`` that are not judged yet."""
        position = self.fits.find(_UNKNOWN, first, end)
        while position >= 0:
            self._judge(state, pod, snapshot, bench, position)
            position = self.fits.find(_UNKNOWN, position + 1, end)

    def _judge(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, bench: Workbench, position: int) -> None:
        node = snapshot.nodes[position]
        for plugin in self.filters:
            why = bench.ask(plugin, state, pod, node)
            if why is not None:
                self.fits[position], self.statuses[position] = _NO, why
                return
        total = 0
        for scorer, weight in self.plain:
            bench.running = (scorer.name, "Score")
            total += weight * scorer.score(state, pod, node)
        self.fixed[position] = total
        for scorer, _ in self.raw:
            bench.running = (scorer.name, "Score")
            self.raws[scorer.name][position] = scorer.score(state, pod, node)
        self.fits[position], self.statuses[position] = YES, None


def _is_local(plugin: object) -> bool:
    return bool(getattr(plugin, "local", False))


def template(profile: Profile, pod: PodInfo, snapshot: Snapshot, skipped: frozenset[str]) -> Template:
    """Return the template of the pod's shape, up to date with the snapshot."""
    found = snapshot.memo(
        (id(profile), pod.shape.key, snapshot.epoch), lambda: Template(profile, len(snapshot.nodes), skipped)
    )
    found.follow(snapshot)
    return found
