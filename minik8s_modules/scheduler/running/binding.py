"""Binding cycles: Reserve, Permit, PreBind, Bind, PostBind, beside the scheduling of other pods.

Reserve and Permit run in the scheduling thread, as upstream; a pod that has to wait for its permission, or for what
PreBind plugins have begun, holds no thread.
Any failure takes all reservations back, ends the assumption and puts the pod back into the queue.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from minik8s_modules.base.clock import Clock
from minik8s_modules.scheduler.cluster.cache import ClusterCache
from minik8s_modules.scheduler.deciding.guard import Guard
from minik8s_modules.scheduler.deciding.profile import PluginFailed, Profile, Workbench
from minik8s_modules.scheduler.framework.infos import scheduler_of
from minik8s_modules.scheduler.framework.points import CycleState
from minik8s_modules.scheduler.framework.statuses import Code, Status, unschedulable
from minik8s_modules.scheduler.queueing.queue import Entry, SchedulingQueue
from minik8s_modules.scheduler.running.effects import FAILED, UNSCHEDULABLE, Effects
from minik8s_modules.scheduler.running.metrics import Counts
from minik8s_modules.scheduler.running.waiting import WaitingPods

log = logging.getLogger(__name__)

BINDERS = 16  # they wait for the API server: with four, one that answers after 60 ms allows 66 Pods a second
_ASK_AGAIN_S = 0.5
_NO_LEADER = "this scheduler no longer leads"
_LONGEST_WAIT_S = 15 * 60.0  # framework/runtime/framework.go, maxTimeout
Step = Callable[..., Any]


class Binder:
    """Carries decisions out."""

    def __init__(
        self,
        cache: ClusterCache,
        queue: SchedulingQueue,
        effects: Effects,
        waiting: WaitingPods,
        guard: Guard,
        counts: Counts,
        clock: Clock,
    ) -> None:
        self._cache, self._queue, self._effects, self._waiting = cache, queue, effects, waiting
        self._guard, self._counts, self._clock = guard, counts, clock
        self._threads = ThreadPoolExecutor(BINDERS, thread_name_prefix="binder")
        self._unready: deque[tuple[float, _Cycle, int]] = deque()
        self.ended = False

    def stop(self) -> None:
        """End; of bindings, those under way are finished."""
        self.ended, why = True, _NO_LEADER
        for one in self._waiting.list():
            self._waiting.end(one, "", why)
        self._threads.shutdown()
        while self._unready:
            self._unready.popleft()[1].fail(_Stopped(unschedulable(why)))

    def run(self, what: Callable[[], None]) -> None:
        """Do something beside; a failure is logged."""

        def safely() -> None:
            try:
                what()
            except Exception as error:  # noqa: BLE001 - it is told again with the pod's next attempt
                log.info("%s", error)

        try:
            self._threads.submit(safely)
        except RuntimeError:
            log.debug("the binder has ended")

    def later(self, cycle: _Cycle, step: int) -> None:
        """Ask a PreBind plugin again in a while: the ``step``-th."""
        self._unready.append((self._clock.monotonic() + _ASK_AGAIN_S, cycle, step))

    def resume(self, now: float) -> None:
        """Go on with the pods whose PreBind plugins were not done; end the attempt of one that has gone."""
        while self._unready and self._unready[0][0] <= now:
            _, cycle, step = self._unready.popleft()
            if self._cache.is_assumed(cycle.entry.pod):
                self.run(partial(cycle.bind, step))
            else:
                self.run(partial(cycle.fail, _Stopped(unschedulable("it has gone"))))

    def begin(self, entry: Entry, node: str, state: CycleState, made: Workbench) -> None:
        """Reserve and ask for permission; then bind, at once or when it was given."""
        profile = made.profile
        assert profile is not None  # noqa: S101 - set when the profile is made
        cycle = _Cycle(entry, node, state, profile, self)
        try:
            for reserving in profile.reserve:
                cycle.ask(reserving, "Reserve", reserving.reserve)
            until = cycle.permitted()
        except _Stopped as stopped:
            cycle.fail(stopped)
            return
        except Exception as error:
            log.exception("%s: Reserve or Permit failed", entry.key)
            cycle.fail(_Stopped(Status(Code.ERROR, (str(error),))))
            return
        if not until:
            self._threads.submit(cycle.bind)
            return
        now = self._clock.monotonic()
        deadlines = {plugin: now + min(wait_s, _LONGEST_WAIT_S) for plugin, wait_s in until.items()}
        self._waiting.add(entry.pod, node, deadlines, cycle.answered)


class _Stopped(Exception):
    def __init__(self, status: Status) -> None:
        super().__init__(status.message)
        self.status = status


class _Cycle:
    """One pod on its way to its node."""

    def __init__(self, entry: Entry, node: str, state: CycleState, profile: Profile, binder: Binder) -> None:
        self.entry, self.node, self.state, self.profile, self._binder = entry, node, state, profile, binder

    def ask(self, plugin: Any, point: str, step: Step) -> Any:
        """Return a plugin's answer. Raises _Stopped for any answer but success, and for what cannot be one."""
        answer = self._call(plugin, point, step)
        if answer is not None:
            self._check(plugin, point, answer)
        return answer

    def _call(self, plugin: Any, point: str, step: Step) -> Any:
        name, pod = str(plugin.name), self.entry.pod
        try:
            if name in self.profile.foreign:
                return self._binder._guard.call(  # noqa: SLF001 - one thing in two classes
                    lambda: step(self.state, pod, self.node), lambda: (name, point), [name]
                )
            return step(self.state, pod, self.node)
        except PluginFailed as failure:
            raise _Stopped(Status(Code.ERROR, (str(failure),), name)) from failure
        except Exception as error:
            why = str(PluginFailed(name, point, f"{type(error).__name__}: {error}"))
            raise _Stopped(Status(Code.ERROR, (why,), name)) from error

    def _check(self, plugin: Any, point: str, answer: Any) -> None:
        if not isinstance(answer, Status):
            why = str(PluginFailed(plugin.name, point, f"it answered {answer!r} instead of a Status"))
            raise _Stopped(Status(Code.ERROR, (why,), plugin.name))
        if answer.code is Code.ERROR:
            why = str(PluginFailed(plugin.name, point, answer.message))
            raise _Stopped(Status(Code.ERROR, (why,), plugin.name))
        if answer.code is not Code.SUCCESS:
            raise _Stopped(answer.by(plugin.name))

    def permitted(self) -> dict[str, float]:
        """Return for how many seconds plugins make the pod wait; all are asked first. Raises _Stopped."""
        until: dict[str, float] = {}
        for plugin in self.profile.permit:
            answer = self._call(plugin, "Permit", plugin.permit)
            if not isinstance(answer, tuple) or len(answer) != 2:  # noqa: PLR2004 - status and seconds
                self._check(plugin, "Permit", answer or "nothing")
            status, wait_s = answer
            if isinstance(status, Status) and status.code is Code.WAIT:
                until[plugin.name] = float(wait_s)
            elif status is not None:
                self._check(plugin, "Permit", status)
        return until

    def answered(self, plugin: str, reason: str) -> None:
        """Go on when the permission has come, or was refused."""
        binder = self._binder
        if plugin or reason:
            binder.run(lambda: self.fail(_Stopped(Status(Code.UNSCHEDULABLE, (reason,), plugin))))
        else:
            binder.run(self.bind)

    def bind(self, first: int = 0) -> None:
        """Do the rest, from the ``first``-th PreBind plugin on."""
        binder, entry = self._binder, self.entry
        if binder.ended:  # it waited for a thread; another scheduler may have given the room away
            self.fail(_Stopped(unschedulable(_NO_LEADER)))
            return
        try:
            for step, preparing in enumerate(self.profile.pre_bind[first:], first):
                answer = self._call(preparing, "PreBind", preparing.pre_bind)
                if isinstance(answer, Status) and answer.code is Code.WAIT:
                    binder.later(self, step)
                    return
                if answer is not None:
                    self._check(preparing, "PreBind", answer)
            self._bind()
        except _Stopped as stopped:
            self.fail(stopped)
            return
        except Exception as error:
            log.exception("binding %s to %s failed", entry.key, self.node)
            self.fail(_Stopped(Status(Code.ERROR, (str(error),))))
            return
        binder._queue.placed(entry)  # noqa: SLF001 - one thing in two classes
        binder._counts.bound(entry.attempts, binder._clock.monotonic() - entry.since)  # noqa: SLF001 - as above
        binder._effects.tell_bound(entry.pod.pod, self.node)  # noqa: SLF001 - as above
        for plugin in self.profile.post_bind:
            try:
                self._call(plugin, "PostBind", plugin.post_bind)
            except _Stopped as stopped:
                log.warning("%s: %s", entry.key, stopped)

    def _bind(self) -> None:
        for plugin in self.profile.bind:
            answer = self._call(plugin, "Bind", plugin.bind)
            if isinstance(answer, Status) and answer.code is Code.SKIP:
                continue
            if answer is not None:
                self._check(plugin, "Bind", answer)
            return
        raise _Stopped(unschedulable("no Bind plugin bound the pod"))

    def fail(self, stopped: _Stopped) -> None:
        """Take everything back, and queue the pod again."""
        binder, status, pod = self._binder, stopped.status, self.entry.pod
        for plugin in reversed(self.profile.reserve):
            try:
                self._call(plugin, "Unreserve", plugin.unreserve)
            except _Stopped as failed:
                log.warning("%s: %s", pod.key, failed)
        binder._cache.forget(pod)  # noqa: SLF001 - one thing in two classes
        binder._queue.freed(pod, [self.node])  # noqa: SLF001 - as above
        refused = status.refused
        binder._queue.again(self.entry)  # noqa: SLF001 - as above
        log.info("%s was not bound to %s: %s", pod.key, self.node, status.message)
        binder._counts.attempt("unschedulable" if refused else "error", scheduler_of(pod.pod), 0.0)  # noqa: SLF001
        message = status.message or f"refused by plugin {status.plugin}"
        reason = UNSCHEDULABLE if refused else FAILED
        binder.run(lambda: binder._effects.refuse(pod.pod, message, reason=reason))  # noqa: SLF001 - as above
