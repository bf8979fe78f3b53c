"""A node that runs nothing: every pod becomes Ready a while after it is made, every deleted one goes.

It plays scheduler and reconciler where only the objects matter: controllers, their figures.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from minik8s_modules.api import objects
from minik8s_modules.api.errors import StatusError
from minik8s_modules.api.kinds import POD
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import SystemClock, rfc3339
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.client.api import ApiClient
from minik8s_modules.client.informer import Informer
from minik8s_modules.runtime.queue import QueueShutDown, WorkQueue

STUCK = "stuck"
"""Pods with this label never become ready."""
ENDS = "ends"
"""Pods with this label run to their end at once: it says Succeeded or Failed."""


class PlayingNode:
    """Attends all pods; ``ready_s`` seconds pass before one is Ready."""

    def __init__(self, client: ApiClient, *, ready_s: float = 0.0, threads: int = 2) -> None:
        self._client = client
        self._ready_s = ready_s
        self._informer = Informer(client, POD)
        self._queue: WorkQueue[objects.Key] = WorkQueue()
        self._informer.add_handler(self._changed)
        self._pool = ThreadPoolExecutor(threads)
        self._threads = threads

    def start(self) -> PlayingNode:
        """Begin."""
        self._informer.start()
        for _ in range(self._threads):
            self._pool.submit(self._run)
        return self

    def stop(self) -> None:
        """End."""
        self._informer.stop()
        self._queue.shut_down()
        self._pool.shutdown()

    def begin(self, _pod: JsonObject) -> JsonObject:
        """Begin what a Pod runs, which is nothing; return what its status says of its address."""
        return {}

    def end(self, _pod: JsonObject) -> None:
        """End what a Pod runs; may be called again."""

    def _changed(self, _old: Any, new: Any) -> None:
        if new is None:
            return
        if objects.is_deleting(new):
            self._queue.add(objects.key(new))
        elif objects.status(new).get("phase") == "Pending" and STUCK not in objects.labels(new):
            self._queue.add_after(objects.key(new), self._ready_s)

    def _run(self) -> None:
        while threading.main_thread().is_alive():
            try:
                key = self._queue.get()
            except QueueShutDown:
                return
            if key is not None:
                self._attend(key)
                self._queue.done(key)

    def _attend(self, key: objects.Key) -> None:
        pod = self._informer.get(*key)
        try:
            if pod is not None and objects.is_deleting(pod):
                self.end(pod)
                self._client.delete(POD, key.name, key.namespace, grace_s=0)
            elif pod is not None and objects.status(pod).get("phase") == "Pending":
                now = rfc3339(SystemClock().now())
                phase = objects.labels(pod).get(ENDS, "Running")
                ready = {"type": "Ready", "status": str(phase == "Running"), "lastTransitionTime": now}
                status = {"phase": phase, "conditions": [ready], **self.begin(pod)}
                self._client.patch(POD, key.name, key.namespace, {"status": status}, subresource="status")
        except StatusError:
            return
        except TemporaryError:  # a killed API server must not end the node with it
            self._queue.add_rate_limited(key)
