"""Jobs on an API that refuses and loses answers, pods that are deleted once they ended: each counts exactly once."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.errors import NotFound, StatusError
from minik8s_modules.api.kinds import JOB, POD, Kind
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.controllers.batch.job_controller import JobController
from minik8s_modules.controllers.batch.job_tracking import is_tracked
from minik8s_modules.controllers.batch.jobs import end_of
from minik8s_modules.controllers.core.pods import has_ended, is_active
from tests.support.load.storms import Manager, StormyApi
from tests.support.waiting import until
from tests.support.workloads import SPACE, ago, workload

COMPLETIONS, PARALLELISM = 20, 4


class Node:
    """Ends pods, one in four as failed, and deletes those that ended: at once, counted or not."""

    def __init__(self, api: FakeApi) -> None:
        self._api = api
        self._dice = random.Random(7)
        self._over = threading.Event()
        self.ends: dict[str, str] = {}
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._over.set()
        self._thread.join(60)

    def count(self, phase: str) -> int:
        """Return how many pods ended so."""
        return list(self.ends.values()).count(phase)

    def _run(self) -> None:
        while not self._over.wait(0.01):
            for pod in self._api.list(POD).items:
                try:
                    self._attend(pod)
                except (StatusError, TemporaryError):
                    continue

    def _attend(self, pod: dict[str, Any]) -> None:
        name = objects.name(pod)
        if has_ended(pod):
            if not objects.is_deleting(pod):
                self._api.delete(POD, name, SPACE)
            return
        phase = self.ends.setdefault(objects.uid(pod), "Failed" if self._dice.random() < 0.25 else "Succeeded")
        ended = {"exitCode": 1, "finishedAt": ago(3600)}  # so long ago that no back-off is left
        status = {"phase": phase, "containerStatuses": [{"name": "app", "state": {"terminated": ended}}]}
        self._api.patch(POD, name, SPACE, {"status": status}, subresource="status")


@pytest.fixture
def api(request: pytest.FixtureRequest) -> StormyApi:
    return StormyApi(getattr(request, "param", 1))


@pytest.fixture
def manager(api: StormyApi) -> Iterator[Manager]:
    manager = Manager(api, JobController)
    manager.start()
    yield manager
    api.stormy = False
    manager.stop()


@pytest.mark.parametrize("mode", ["NonIndexed", "Indexed"])
@pytest.mark.parametrize("api", range(3), indirect=True)
def test_every_pod_counts_once_whatever_is_lost(api: StormyApi, manager: Manager, mode: str):
    declared = {"completions": COMPLETIONS, "parallelism": PARALLELISM, "backoffLimit": 1000, "completionMode": mode}
    FakeApi.create(api, JOB, workload(JOB, declared))
    most_active = 0

    def seen(kind: Kind, _verb: str) -> None:
        nonlocal most_active
        if kind == POD:
            most_active = max(most_active, sum(map(is_active, api.list(POD).items)))

    api.seen = seen
    node = Node(api)

    def status() -> dict[str, Any]:
        return objects.status(api.get(JOB, "web", SPACE))

    try:
        until(lambda: int(status().get("succeeded") or 0) >= COMPLETIONS // 2, 60)
        manager.stop()
        manager.start()
        until(lambda: end_of(api.get(JOB, "web", SPACE)), 60)
    finally:
        node.stop()
    assert (status()["succeeded"], status().get("failed", 0)) == (COMPLETIONS, node.count("Failed"))
    assert node.count("Succeeded") == COMPLETIONS
    assert 0 < most_active <= PARALLELISM


def test_pods_whose_job_is_gone_are_let_go(api: StormyApi, manager: Manager):
    job = FakeApi.create(api, JOB, workload(JOB, {"completions": 3, "parallelism": 3, "backoffLimit": 6}))
    until(lambda: len(api.list(POD).items) == 3, 60)
    api.stormy = False
    api.delete(JOB, "web", SPACE)
    for pod in api.list(POD).items:  # as the garbage collector does
        api.delete(POD, objects.name(pod), SPACE)
    until(lambda: not any(map(is_tracked, api.list(POD).items)), 60)
    with pytest.raises(NotFound):
        api.get(JOB, objects.name(job), SPACE)
