"""The node that a partition is: what is known of it, and who is told when that changes."""

from __future__ import annotations

import copy
import logging
import threading
from collections.abc import Callable

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.virtual.provider import NodeCallback
from minik8s_modules.virtual.providers.slurm import statuses
from minik8s_modules.virtual.providers.slurm.settings import Settings

log = logging.getLogger(__name__)


class PartitionNode:
    """Thread-safe; ``now`` returns the time as objects have it."""

    def __init__(self, settings: Settings, now: Callable[[], str]) -> None:
        self._shape, self._now = (settings.pods, settings.oversubscription), now
        self._lock = threading.Lock()
        self._notify: NodeCallback | None = None
        self._node: JsonObject | None = None
        self._partition: JsonObject | None = None
        self._has_news = False
        self._trouble, self._failing = "Slurm has not been asked yet", False

    @property
    def is_failing(self) -> bool:
        """Return whether Slurm did not answer when it was asked last."""
        with self._lock:
            return self._failing

    def notify(self, notify: NodeCallback) -> None:
        """Tell ``notify`` from now on."""
        with self._lock:
            self._notify = notify

    def configured(self, node: JsonObject) -> JsonObject:
        """Return ``node`` with what its partition has."""
        with self._lock:
            self._node = copy.deepcopy(node)
            return self._with_status(node)

    def answered(self, partition: JsonObject | None) -> None:
        """Note that Slurm has answered, and what its partition has where that was asked."""
        with self._lock:
            had_trouble, self._trouble, self._failing = bool(self._trouble), "", False
            if had_trouble or (partition is not None and partition != self._partition):
                self._partition = partition if partition is not None else self._partition
                self._has_news = True

    def silent(self, why: str) -> None:
        """Note why Slurm does not answer."""
        log.warning("slurm: %s", why)
        with self._lock:
            self._has_news = self._has_news or self._trouble != why
            self._trouble, self._failing = why, True

    def tell(self) -> None:
        """Tell what is new, once there is somebody to tell it to."""
        with self._lock:
            if not self._has_news or self._notify is None or self._node is None:
                return
            self._has_news = False
            notify, node = self._notify, self._with_status(self._node)
        try:
            notify(node)
        except Exception:  # jobs are followed all the same
            log.exception("slurm: the node's status was not taken")
            with self._lock:
                self._has_news = True

    def _with_status(self, node: JsonObject) -> JsonObject:
        return statuses.node_status(node, self._partition, self._trouble, self._shape, self._now())
