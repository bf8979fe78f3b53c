"""Both controllers on an API that refuses, cuts and loses answers: they converge, and no pod is made twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.errors import NotFound, StatusError
from minik8s_modules.api.kinds import DEPLOYMENT, POD, REPLICA_SET, Kind
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.controllers.core.pods import is_active, is_ready
from minik8s_modules.controllers.workloads import revisions
from minik8s_modules.controllers.workloads.deployments import DeploymentController
from minik8s_modules.controllers.workloads.replicasets import ReplicaSetController
from tests.support.load.storms import Manager, Readier, StormyApi
from tests.support.waiting import until
from tests.support.workloads import SPACE, workload

REPLICAS, SURGE = 6, 2
STRATEGY = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": SURGE, "maxUnavailable": 0}}


class CountedApi(StormyApi):
    """Calm at first; counts the pods that were made, and the fewest that were ready in the storm."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, stormy=False)
        self.made = 0
        self.least_ready = REPLICAS
        self.seen = self._count

    def _count(self, kind: Kind, verb: str) -> None:
        if kind != POD:
            return
        with self.changed:
            active = [pod for pod in self.list(POD).items if is_active(pod)]
            self.made += verb == "create"
            if self.stormy:
                self.least_ready = min(self.least_ready, sum(map(is_ready, active)))


@pytest.fixture
def api(request: pytest.FixtureRequest) -> CountedApi:
    return CountedApi(getattr(request, "param", 1))


@pytest.fixture
def manager(api: CountedApi) -> Iterator[Manager]:
    manager, readier = Manager(api, ReplicaSetController, DeploymentController), Readier(api)
    manager.start()
    yield manager
    api.stormy = False
    readier.stop()
    manager.stop()


def image(pod: dict[str, Any]) -> str:
    return str(pod["spec"]["containers"][0]["image"])


def stands(api: FakeApi, wanted: str) -> bool:
    active = [pod for pod in api.list(POD).items if is_active(pod)]
    status = objects.status(api.get(DEPLOYMENT, "web", SPACE))
    counted = (status.get("replicas"), status.get("updatedReplicas"), status.get("availableReplicas"))
    return [image(pod) for pod in active] == [wanted] * REPLICAS and counted == (REPLICAS,) * 3


def roll(api: FakeApi, to: str) -> None:
    template = workload(DEPLOYMENT, {"image": to})["spec"]["template"]
    deployment = api.get(DEPLOYMENT, "web", SPACE)
    meta = {"generation": objects.generation(deployment) + 1}
    api.patch(DEPLOYMENT, "web", SPACE, {"metadata": meta, "spec": {"template": template}})


@pytest.mark.parametrize("api", range(4), indirect=True)
def test_a_rollout_in_a_storm_keeps_its_bounds_and_ends(api: CountedApi, manager: Manager):
    api.create(DEPLOYMENT, workload(DEPLOYMENT, {"replicas": REPLICAS, "strategy": STRATEGY}))
    until(lambda: stands(api, "web:1"))
    api.stormy = True
    roll_until_told(api, "web:2")
    until(lambda: stands(api, "web:2"), 60)
    manager.stop()
    manager.start()
    roll_until_told(api, "web:1")
    until(lambda: stands(api, "web:1"), 60)
    assert api.made == 3 * REPLICAS, "no pod is made twice, whatever answers are lost"
    assert api.least_ready >= REPLICAS
    assert len(api.list(REPLICA_SET).items) == 2


def roll_until_told(api: CountedApi, to: str) -> None:
    def is_reported() -> bool:
        try:
            roll(api, to)
        except (StatusError, TemporaryError):
            return False
        return True

    until(is_reported)


def test_a_set_of_another_owner_that_has_the_name_makes_the_hash_another(api: CountedApi, manager: Manager):
    declared = workload(DEPLOYMENT, {"replicas": 1, "strategy": STRATEGY})
    name = f"web-{revisions.template_hash(revisions.template_of(declared))}"
    other = workload(REPLICA_SET, {"replicas": 0, "selector": {"matchLabels": {"app": "other"}}}, name)
    api.create(REPLICA_SET, other)
    api.create(DEPLOYMENT, declared)
    until(lambda: objects.status(api.get(DEPLOYMENT, "web", SPACE)).get("availableReplicas") == 1)
    assert objects.status(api.get(DEPLOYMENT, "web", SPACE))["collisionCount"] == 1
    assert objects.controller_of(api.get(REPLICA_SET, name, SPACE)) is None
    with pytest.raises(NotFound):
        api.get(REPLICA_SET, "web", SPACE)
