"""PodsTracker: for providers whose back end tells nothing of its own accord. It asks, and it cleans up.

Every five seconds it asks for the status of each Pod of the node that lives, and tells the controller what it got;
every five minutes it deletes at the back end what the cluster does not have. Unlike the controller's own clean-up,
which happens once at its start, this repeats. Providers copy this helper from one another (azure-aci and others).

A provider is a ``PodNotifier`` with it: ``notify_pods`` makes a tracker and starts it, ``close`` stops it.
"""

from __future__ import annotations

import copy
import logging
import threading
from collections.abc import Callable
from typing import Protocol

from minik8s_modules.api import objects
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import Clock, SystemClock, rfc3339
from minik8s_modules.virtual.endings import REASON_PROVIDER_FAILED, is_over, lost_status
from minik8s_modules.virtual.errors import is_not_found
from minik8s_modules.virtual.provider import PodCallback, Resources

log = logging.getLogger(__name__)

STATUS_PERIOD_S = 5.0
CLEANUP_PERIOD_S = 300.0


class Tracked(Protocol):
    """What a tracker needs of a provider; every ``Provider`` has it."""

    def get_pods(self) -> list[JsonObject]:
        """Return the Pods that are active at the back end."""

    def get_pod_status(self, namespace: str, name: str) -> JsonObject | None:
        """Return the status; None or ``NotFound`` where there is no such Pod."""

    def delete_pod(self, pod: JsonObject) -> None:
        """Delete the Pod; ``NotFound`` is success."""


class PodsTracker:
    """See the top of this file.

    Args:
        handler: the provider.
        resources: knows the Pods that the cluster has on this node.
        notify: what ``notify_pods`` was given.
    """

    def __init__(
        self,
        handler: Tracked,
        resources: Resources,
        notify: PodCallback,
        clock: Clock | None = None,
        status_period_s: float = STATUS_PERIOD_S,
        cleanup_period_s: float = CLEANUP_PERIOD_S,
    ) -> None:
        self._handler = handler
        self._resources = resources
        self._notify = notify
        self._clock = clock or SystemClock()
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._repeat, args=(act, period_s), name=f"pods-tracker-{name}", daemon=True)
            for act, period_s, name in (
                (self.update_pods, status_period_s, "status"),
                (self.clean_up, cleanup_period_s, "clean-up"),
            )
        ]

    def start(self) -> None:
        """Begin with a first look in a period's time; returns at once."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End; waits for the look under way, at most five seconds."""
        self._stop.set()
        for thread in self._threads:
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join(STATUS_PERIOD_S)

    def update_pods(self) -> None:
        """Ask for the status of each Pod that lives, and tell what came."""
        for pod in self._resources.pods():
            if self._stop.is_set():
                return
            if not is_tracked(pod):
                continue
            try:
                updated = self._updated(pod)
            except Exception:
                log.exception("pods tracker: the status of %s cannot be read", objects.key(pod))
                continue
            if updated is not None:
                self._notify(updated)

    def clean_up(self) -> None:
        """Delete at the back end what the cluster does not have."""
        try:
            active = self._handler.get_pods()
        except Exception:
            log.exception("pods tracker: the provider's Pods cannot be listed; this clean-up is left out")
            return
        # listed after the provider's, so that a Pod created meanwhile is known
        known = {objects.uid(pod) for pod in self._resources.pods()}
        for pod in active:
            if objects.uid(pod) not in known:
                self._delete(pod)

    def _updated(self, pod: JsonObject) -> JsonObject | None:
        try:
            status = self._handler.get_pod_status(objects.namespace(pod), objects.name(pod))
        except Exception as error:
            if not is_not_found(error):
                raise
            status = None
        return tracked_pod(pod, status, rfc3339(self._clock.now()))

    def _delete(self, pod: JsonObject) -> None:
        try:
            self._handler.delete_pod(copy.deepcopy(pod))
            log.info("pods tracker: %s was deleted at the provider: the cluster does not have it", objects.key(pod))
        except Exception as error:
            if not is_not_found(error):
                log.exception("pods tracker: %s cannot be deleted", objects.key(pod))

    def _repeat(self, act: Callable[[], None], period_s: float) -> None:
        while not self._clock.wait(self._stop, period_s):
            try:
                act()
            except Exception:  # the loop's edge
                log.exception("pods tracker")


def is_tracked(pod: JsonObject) -> bool:
    """Return whether the provider is asked about ``pod``: not where it is over, going, or could not be created."""
    failed = objects.status(pod).get("reason") == REASON_PROVIDER_FAILED
    return not (is_over(pod) or objects.is_deleting(pod) or failed)


def tracked_pod(pod: JsonObject, status: JsonObject | None, now: str) -> JsonObject | None:
    """Return ``pod`` as to be told, None for nothing; without ``status`` the provider does not know it.

    A Pod that has not run yet may be about to be created: nothing is said of it.
    """
    if status is not None:
        return {**copy.deepcopy(pod), "status": status}
    if objects.status(pod).get("phase") != "Running":
        return None
    return {**copy.deepcopy(pod), "status": lost_status(copy.deepcopy(pod), now)}
