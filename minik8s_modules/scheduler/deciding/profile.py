"""A profile: which plugins decide, point by point, each in its order; scores are multiplied by their weight."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from minik8s_modules.base.errors import Minik8sError
from minik8s_modules.scheduler.framework import points
from minik8s_modules.scheduler.framework.infos import NodeInfo, PodInfo
from minik8s_modules.scheduler.framework.points import CycleState, Wake
from minik8s_modules.scheduler.framework.snapshot import Snapshot
from minik8s_modules.scheduler.framework.statuses import Code, Status

log = logging.getLogger(__name__)
_EVERY = (Wake(points.Event("*", "*")),)
_MAY_SKIP = frozenset({"PreFilter", "PreScore"})


class PluginFailed(Minik8sError):
    """A plugin answered with an error, raised, or answered what makes no sense: the attempt is over."""

    def __init__(self, plugin: str, point: str, why: str) -> None:
        super().__init__(f'running "{plugin}" {point} plugin: {why}')
        self.plugin = plugin


class PluginHangs(PluginFailed):
    """A call did not return in time, and may still be reading and writing."""


@dataclass(frozen=True, eq=False)
class Profile:
    """The plugins of one scheduler name; ``foreign`` names those that are not in tree."""

    name: str
    queue_sort: points.QueueSortPlugin
    pre_enqueue: tuple[points.PreEnqueuePlugin, ...] = ()
    pre_filter: tuple[points.PreFilterPlugin, ...] = ()
    filter: tuple[points.FilterPlugin, ...] = ()
    post_filter: tuple[points.PostFilterPlugin, ...] = ()
    pre_score: tuple[points.PreScorePlugin, ...] = ()
    score: tuple[tuple[points.ScorePlugin, int], ...] = ()
    reserve: tuple[points.ReservePlugin, ...] = ()
    permit: tuple[points.PermitPlugin, ...] = ()
    pre_bind: tuple[points.PreBindPlugin, ...] = ()
    bind: tuple[points.BindPlugin, ...] = ()
    post_bind: tuple[points.PostBindPlugin, ...] = ()
    percentage: int = 0
    foreign: frozenset[str] = frozenset()
    _wakes: dict[str, Sequence[Wake]] = field(default_factory=dict, init=False)

    def wakes(self, plugin: str) -> Sequence[Wake]:
        """Return by which events a refusal of ``plugin`` may end."""
        return self._wakes.get(plugin, _EVERY)

    def __post_init__(self) -> None:
        """Ask the plugins once: whoever wants to know later holds locks."""
        refusing: list[Any] = [
            *self.pre_enqueue, *self.pre_filter, *self.filter, *self.reserve, *self.permit, *self.pre_bind
        ]  # fmt: skip
        self._wakes.update(
            {
                one.name: _of_foreign(one) if one.name in self.foreign else one.wakes()
                for one in {one.name: one for one in refusing}.values()
                if isinstance(one, points.WakingPlugin)
            }
        )


def _of_foreign(plugin: points.WakingPlugin) -> Sequence[Wake]:
    """Return the events without hints, which would run in the threads of informers; every event for what is none."""
    try:
        found: tuple[Any, ...] = tuple(plugin.wakes())
    except Exception as error:  # noqa: BLE001 - a plugin's mistake must lose no pod
        log.warning('running "%s" wakes: %s: %s; every event wakes', plugin.name, type(error).__name__, error)
        return _EVERY
    if all(isinstance(one, Wake) and isinstance(one.event, points.Event) for one in found):
        return tuple(Wake(one.event) for one in found)
    log.warning('running "%s" wakes: it answered %r instead of Wakes; every event wakes', plugin.name, found)
    return _EVERY


@dataclass(eq=False)
class Workbench:
    """What the plugins of one profile work with (``framework.points.Handle``).

    Attributes:
        api: a client of the API server.
        waits: returns the pods that wait for their permission.
    """

    api: Any = None
    waits: Callable[[], Sequence[points.WaitingPod]] = tuple
    profile: Profile | None = None
    current: Snapshot = field(default_factory=Snapshot)
    running: tuple[str, str] = ("", "")
    """Which plugin is at work, at which point."""

    def snapshot(self) -> Snapshot:
        """Return the cluster as the attempt under way sees it."""
        return self.current

    def waiting(self) -> Sequence[points.WaitingPod]:
        """Return the pods that wait for their permission."""
        return self.waits()

    def run_filters(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Return why the pod does not fit ``node``, also with the pods that are to come there before it."""
        beside = [
            other for other in self.current.nominated.get(node.name, ())
            if other.priority >= pod.priority and other.key != pod.key
        ]  # fmt: skip
        if beside:
            imagined, fuller = state.clone(), node
            for other in beside:
                fuller = fuller.with_pod(other)
                self.try_pod(imagined, pod, other, fuller, come=True)
            if why := self._filter(imagined, pod, fuller):
                return why
        return self._filter(state, pod, node)

    def _filter(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        assert self.profile is not None  # noqa: S101 - set when the profile is made
        skipped = state.skipped_filters
        for plugin in self.profile.filter:
            if plugin.name not in skipped and (why := self.ask(plugin, state, pod, node)) is not None:
                return why
        return None

    def is_local(self, state: CycleState) -> bool:
        """Return whether ``run_filters`` depends only on the pod's shape, the node and who is nominated to it."""
        assert self.profile is not None  # noqa: S101 - set when the profile is made
        asked = (one for one in self.profile.filter if one.name not in state.skipped_filters)
        return all(getattr(one, "local", False) for one in asked)

    def ask(self, plugin: points.FilterPlugin, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        """Return what one plugin says of a node. Raises PluginFailed."""
        self.running = (plugin.name, "Filter")
        why = plugin.filter(state, pod, node)
        return None if why is None else self.checked(why)

    def checked(self, answer: Any) -> Status | None:
        """Return the answer of the plugin at work, with its name. Raises PluginFailed for errors and nonsense."""
        if answer is None:
            return None
        plugin, point = self.running
        if not isinstance(answer, Status):
            raise PluginFailed(plugin, point, f"it answered {answer!r} instead of a Status")
        if answer.code is Code.SKIP and point in _MAY_SKIP:  # several in each attempt, and nobody asks whose they are
            return answer
        if answer.code is Code.ERROR:
            raise PluginFailed(plugin, point, answer.message)
        return None if answer.code is Code.SUCCESS else answer.by(plugin)

    def try_pod(self, state: CycleState, pod: PodInfo, other: PodInfo, node: NodeInfo, *, come: bool) -> None:
        """Tell all plugins in ``state`` that ``other`` came to ``node``, or left it."""
        assert self.profile is not None  # noqa: S101 - set when the profile is made
        for plugin in self.profile.pre_filter:
            if plugin.name not in state.skipped_filters and hasattr(plugin, "add_pod"):
                self.running = (plugin.name, "AddPod" if come else "RemovePod")
                extension = getattr(plugin, "add_pod" if come else "remove_pod")
                if (why := self.checked(extension(state, pod, other, node))) is not None:
                    raise PluginFailed(plugin.name, self.running[1], why.message)
