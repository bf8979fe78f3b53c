"""StatefulSets and DaemonSets roll on an API that refuses and loses answers, and keep their bounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import CONTROLLER_REVISION, DAEMON_SET, NODE, POD, STATEFUL_SET, Kind
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.controllers.core.pods import is_ready
from minik8s_modules.controllers.workloads.daemon_pods import node_of
from minik8s_modules.controllers.workloads.daemonsets import DaemonSetController
from minik8s_modules.controllers.workloads.statefulsets import StatefulSetController
from tests.support.load.storms import Manager, Readier, StormyApi
from tests.support.waiting import until
from tests.support.workloads import SPACE, workload

COPIES = 5
DAEMON_ROLL = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2, "maxSurge": 0}}
STATE_ROLL = {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}
WORKLOADS: dict[Kind, dict[str, Any]] = {
    DAEMON_SET: {"updateStrategy": DAEMON_ROLL},
    STATEFUL_SET: {"updateStrategy": STATE_ROLL, "replicas": COPIES, "serviceName": "peers"},
}
MOST_MISSING = {DAEMON_SET: 2, STATEFUL_SET: 1}


@pytest.fixture
def api(request: pytest.FixtureRequest) -> StormyApi:
    seed, late_s = request.param
    return StormyApi(seed, late_s=late_s)


@pytest.fixture
def manager(api: StormyApi) -> Iterator[Manager]:
    manager, readier = Manager(api, DaemonSetController, StatefulSetController), Readier(api)
    manager.start()
    yield manager
    api.stormy = False
    readier.stop()
    manager.stop()


def images(api: FakeApi) -> list[str]:
    return [pod["spec"]["containers"][0]["image"] for pod in api.list(POD).items if is_ready(pod)]


def roll(api: StormyApi, kind: Kind, to: str) -> None:
    template = workload(kind, {"image": to})["spec"]["template"]
    generation = objects.generation(api.get(kind, "web", SPACE)) + 1
    body = {"metadata": {"generation": generation}, "spec": {"template": template}}
    api.stormy = False
    api.patch(kind, "web", SPACE, body)
    api.stormy = True


@pytest.mark.parametrize("kind", [DAEMON_SET, STATEFUL_SET], ids=lambda kind: kind.kind)
@pytest.mark.parametrize("api", [(0, 0.0), (1, 0.0), (2, 0.0), (2, 0.03)], indirect=True)
def test_a_rollout_in_a_storm_keeps_its_bounds_and_ends(api: StormyApi, manager: Manager, kind: Kind):
    for number in range(COPIES):
        FakeApi.create(api, NODE, {"metadata": {"name": f"n{number}"}, "spec": {}})
    FakeApi.create(api, kind, workload(kind, {"revisionHistoryLimit": 10, **WORKLOADS[kind]}))
    until(lambda: images(api) == ["web:1"] * COPIES, 60)
    least, most_alike = COPIES, 0

    def seen(changed: Kind, _verb: str) -> None:
        nonlocal least, most_alike
        if changed == POD:
            pods = api.list(POD).items
            least = min(least, sum(map(is_ready, pods)))
            places = Counter(node_of(pod) if kind == DAEMON_SET else objects.name(pod) for pod in pods)
            most_alike = max(most_alike, *places.values(), 0)

    api.seen = seen
    roll(api, kind, "web:2")
    until(lambda: images(api) == ["web:2"] * COPIES, 60)
    manager.stop()
    manager.start()
    roll(api, kind, "web:1")
    until(lambda: images(api) == ["web:1"] * COPIES, 60)
    assert least >= COPIES - MOST_MISSING[kind]
    assert most_alike == 1
    until(lambda: sorted(r["revision"] for r in api.list(CONTROLLER_REVISION).items) == [2, 3], 20)
