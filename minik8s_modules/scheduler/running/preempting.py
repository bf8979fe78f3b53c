"""Preemption is carried out beside the scheduling of other pods, as kube-scheduler does since 1.33 (KEP-4832).

To make room costs two writes for each victim and one for the pod, each as long as an API server takes: the scheduling
thread would place nobody meanwhile. The pod stays in flight until all is written. So it is not tried again before, when
it might choose other victims, and what happens meanwhile is asked about when it comes back to the queue.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from minik8s_modules.api.errors import StatusError
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.scheduler.cluster.cache import ClusterCache
from minik8s_modules.scheduler.deciding.cycle import Decision
from minik8s_modules.scheduler.framework.infos import PodInfo
from minik8s_modules.scheduler.framework.points import Nomination
from minik8s_modules.scheduler.queueing.queue import Entry, SchedulingQueue
from minik8s_modules.scheduler.running.effects import Effects
from minik8s_modules.scheduler.running.waiting import WaitingPods

log = logging.getLogger(__name__)

_AT_ONCE = 4


class Preemption:
    """Sends away those that are in the way of a pod."""

    def __init__(self, cache: ClusterCache, queue: SchedulingQueue, effects: Effects, waiting: WaitingPods) -> None:
        self._cache, self._queue, self._effects, self._waiting = cache, queue, effects, waiting
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="preemption")
        self.ended = False

    def stop(self) -> None:
        """End; what is under way is finished, what has not begun is left to who leads next."""
        self.ended = True
        self._threads.shutdown(cancel_futures=True)

    def begin(self, entry: Entry, pod: JsonObject, decision: Decision, found: Nomination) -> None:
        """Take lesser nominations away at once, for the next decision; write it all beside, then queue the pod."""
        lesser = [one for one in self._cache.nominated_to(found.node) if one.priority < entry.pod.priority]
        for one in lesser:
            self._queue.freed(one, self._cache.nominate(one, ""))
        self._threads.submit(self._carry_out, entry, pod, decision, found, lesser)

    def _carry_out(
        self, entry: Entry, pod: JsonObject, decision: Decision, found: Nomination, lesser: Sequence[PodInfo]
    ) -> None:
        if self.ended or not self._queue.has(entry):
            self._queue.placed(entry)  # it has gone, and nobody has to go for it
            return
        try:
            self._effects.refuse(pod, decision.full_message, nominated=found.node)
            for one in lesser:
                self._effects.unnominate(one)
            uncertain = [victim for victim in found.victims if not self._send_away(victim, entry.pod, found.node)]
        except (TemporaryError, StatusError) as error:
            log.info("preempting for %s: %s; again after a while", entry.key, error)
            self._queue.again(entry)
        except Exception:  # the thread's edge
            log.exception("preempting for %s failed", entry.key)
            self._queue.again(entry)
        else:
            self._queue.refuse(entry, decision.plugins)
            if uncertain:
                self._queue.retry(entry.key)

    def _send_away(self, victim: PodInfo, by: PodInfo, node: str) -> bool:
        """Ask a victim to go; return False for one that is being bound, or gives its place up, which will be seen.

        Raises:
            TemporaryError, StatusError: the API did not take it.
        """
        waiting = self._waiting.get(victim.pod)
        if waiting is not None:
            waiting.reject("DefaultPreemption", "preempted")
        elif self._cache.is_assumed(victim):
            return False
        else:
            self._effects.preempt(victim, by, node)
        return True
