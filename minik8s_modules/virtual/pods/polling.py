"""A provider that tells nothing by itself is asked every five seconds; virtual-kubelet's ``syncProviderWrapper``.

A Pod that was deleted has ended once its provider says so, or does not know it any more (upstream says so at once). One
that is unknown without that has failed, if it ran or is older than a minute: then its creation is not under way.
"""

from __future__ import annotations

import copy
import logging
import threading
from collections.abc import Callable
from datetime import datetime

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import Clock, parse_rfc3339, rfc3339
from minik8s_modules.virtual.endings import is_over, lost_status
from minik8s_modules.virtual.errors import is_not_found
from minik8s_modules.virtual.provider import PodCallback, Provider

log = logging.getLogger(__name__)

PERIOD_S = 5.0
REASON_TERMINATED = "Terminated"
_FRESH_S = 60.0


def terminated_status(pod: JsonObject, now: str) -> JsonObject:
    """Return the status of a Pod that was deleted at its provider: Succeeded, every container terminated."""
    before = copy.deepcopy(objects.status(pod))
    ended = []
    for container_status in before.get("containerStatuses") or []:
        began = objects.dig(container_status, "state", "running", "startedAt")
        terminated = {"exitCode": 0, "reason": REASON_TERMINATED, "finishedAt": now}
        terminated |= {"startedAt": began} if began else {}
        terminated |= {"containerID": container_status["containerID"]} if container_status.get("containerID") else {}
        state = (
            container_status["state"]
            if objects.dig(container_status, "state", "terminated")
            else {"terminated": terminated}
        )
        ended.append({**container_status, "ready": False, "started": False, "state": state})
    status = {**before, "phase": "Succeeded", "reason": REASON_TERMINATED}
    return {**status, "containerStatuses": ended} if ended else status


def polled_pod(pod: JsonObject, status: JsonObject | None, now: datetime) -> JsonObject | None:
    """Return ``pod`` as to be told, None for nothing; without ``status`` the provider does not know it."""
    if status is not None:
        return {**copy.deepcopy(pod), "status": copy.deepcopy(status)}
    made = str(objects.dig(pod, "metadata", "creationTimestamp") or "")
    old = bool(made) and (now - parse_rfc3339(made)).total_seconds() > _FRESH_S
    if objects.status(pod).get("phase") == "Running" or old:
        return {**copy.deepcopy(pod), "status": lost_status(copy.deepcopy(pod), rfc3339(now))}
    return None


class Polling:
    """Asks the providers of several nodes, each for the Pods that live there.

    Args:
        pods_of: returns the Pods that the API has on a node.
        clock: of periods and statuses.
    """

    def __init__(self, pods_of: Callable[[str], list[JsonObject]], clock: Clock, period_s: float = PERIOD_S) -> None:
        self._pods_of = pods_of
        self._clock = clock
        self._period_s = period_s
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._deleted: set[str] = set()
        """Uids whose end was told when they were deleted."""

    def add(self, node: str, provider: Provider, notify: PodCallback) -> None:
        """Ask ``provider`` for the Pods of ``node`` from ``start`` on."""
        run = threading.Thread(
            target=self._run, args=(node, provider, notify), name=f"pods-polling-{node}", daemon=True
        )
        self._threads.append(run)

    def start(self) -> None:
        """Begin; returns at once."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End; waits for the question under way, at most five seconds each."""
        self._stop.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(PERIOD_S)

    def deleted(self, pod: JsonObject, provider: Provider, notify: PodCallback) -> None:
        """Tell the end of a Pod that was deleted at its provider, if it has ended; else that is asked again."""
        self._deleted.add(objects.uid(pod))
        if not is_over(pod):
            try:
                reported = self._asked(pod, provider)
            except Exception:
                log.exception("the status of %s cannot be read from the provider", objects.key(pod))
                return
            if reported is not None:
                notify(reported)

    def ask(self, node: str, provider: Provider, notify: PodCallback) -> None:
        """Ask once about every Pod of ``node``."""
        pods = self._pods_of(node)
        for pod in pods:
            if self._stop.is_set():
                return
            if is_over(pod):
                continue
            try:
                reported = self._asked(pod, provider)
            except Exception:
                log.exception("the status of %s cannot be read from the provider", objects.key(pod))
                continue
            if reported is not None:
                notify(reported)

    def _asked(self, pod: JsonObject, provider: Provider) -> JsonObject | None:
        try:
            status = provider.get_pod_status(objects.namespace(pod), objects.name(pod))
        except Exception as error:
            if not is_not_found(error):
                raise
            if objects.uid(pod) in self._deleted:
                return {**copy.deepcopy(pod), "status": terminated_status(pod, rfc3339(self._clock.now()))}
            if objects.is_deleting(pod):
                return None  # its provider is about to be told
            return polled_pod(pod, None, self._clock.now())
        return polled_pod(pod, status, self._clock.now())

    def forget(self, uid: str) -> None:
        """Forget a Pod that the API has no more."""
        self._deleted.discard(uid)

    def _run(self, node: str, provider: Provider, notify: PodCallback) -> None:
        while not self._clock.wait(self._stop, self._period_s):
            try:
                self.ask(node, provider, notify)
            except Exception:  # the loop's edge
                log.exception("asking the provider of node %s for its Pods", node)
