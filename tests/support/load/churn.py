"""Pods that come and go while something else is done to the cluster."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from minik8s_modules.api.errors import AlreadyExists, NotFound, StatusError
from minik8s_modules.api.kinds import POD
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.client.api import ApiClient

KEPT = 2  # pods wanted at any time
SERVER_ERROR = 500
SCRIPT = "trap 'exit 0' TERM; while true; do sleep 0.2; done"
SPEC = {"containers": [{"name": "app", "image": "minik8s/busybox:1", "command": ["sh", "-c", SCRIPT]}]}


class Churn:
    """Creates and deletes pods in a thread, whatever the API says; ``wanted`` is what must run in the end."""

    def __init__(self, client: ApiClient, namespace: str) -> None:
        self._client, self._namespace = client, namespace
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.wanted: list[str] = []
        self.made = 0
        self.error: BaseException | None = None

    def _run(self) -> None:
        try:
            while not self._stop.wait(0.05):
                self._step()
        except BaseException as error:  # noqa: BLE001 - the test shall see it
            self.error = error

    def _step(self) -> None:
        try:
            if len(self.wanted) < KEPT:
                name = f"churn-{self.made}"
                self._create(name)
                self.made += 1
                self.wanted.append(name)
            else:
                self._delete(self.wanted[0], grace_s=self.made % 3)
                self.wanted.pop(0)
        except TemporaryError:
            return
        except StatusError as error:
            if error.code < SERVER_ERROR:
                raise

    def _create(self, name: str) -> None:
        try:
            self._client.create(POD, {"metadata": {"name": name, "namespace": self._namespace}, "spec": SPEC})
        except AlreadyExists:
            return  # the answer to an earlier try was lost

    def _delete(self, name: str, grace_s: int) -> None:
        try:
            self._client.delete(POD, name, self._namespace, grace_s=grace_s)
        except NotFound:
            return

    @contextmanager
    def running(self) -> Iterator[Churn]:
        """Churn during the block."""
        self._thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            self._thread.join(60)
        assert self.error is None, self.error
