"""Budgets, quotas, taints and pod collection on an API that refuses and loses answers, killed in the middle."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.errors import NotFound, StatusError
from minik8s_modules.api.kinds import NODE, POD, POD_DISRUPTION_BUDGET, RESOURCE_QUOTA
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.controllers.cleanup.pod_gc import PodGc
from minik8s_modules.controllers.nodes.taint_eviction import TaintEvictionController
from minik8s_modules.controllers.nodes.taints import UNREACHABLE, TaintController
from minik8s_modules.controllers.policy.disruption import DisruptionController
from minik8s_modules.controllers.policy.quotas import QuotaController
from minik8s_modules.runtime.controller import Context
from minik8s_modules.runtime.events import EventRecorder
from minik8s_modules.runtime.informers import Informers
from tests.support.load.storms import READS_TOO, StormyApi
from tests.support.waiting import until

SPACE, PODS, PATIENCE_S = "shop", 12, 40


class Manager:
    """All that count, which may be killed and begun anew."""

    def __init__(self, api: StormyApi) -> None:
        self._api = api

    def start(self) -> None:
        """Begin."""
        context = self._context = Context(self._api, EventRecorder(self._api, "test"), Informers(self._api))
        self._running = (
            DisruptionController(context),
            TaintController(context),
            TaintEvictionController(context),
            PodGc(context, terminated_pods=2),
            QuotaController(context),
        )
        context.informers.start()
        for each in self._running:
            each.start()

    def stop(self) -> None:
        """End."""
        for each in self._running:
            each.stop()
        self._context.informers.stop()
        self._context.pool.shutdown()


@pytest.fixture
def api(request: pytest.FixtureRequest) -> StormyApi:
    return StormyApi(request.param, verbs=READS_TOO, stormy=False)


@pytest.fixture
def manager(api: StormyApi) -> Iterator[Manager]:
    manager = Manager(api)
    manager.start()
    yield manager
    api.stormy = False
    manager.stop()


def condition(status: str) -> dict[str, Any]:
    return {"conditions": [{"type": "Ready", "status": status}]}


def insist(call: Callable[[], object]) -> None:
    """Do it until it is known to be done."""

    def done() -> bool:
        try:
            call()
        except NotFound:  # the answer to the deletion was lost
            return True
        except (StatusError, TemporaryError):
            return False
        return True

    until(done, PATIENCE_S)


def set_pod(api: StormyApi, number: int, **status: Any) -> None:
    insist(lambda: api.patch(POD, f"p{number}", SPACE, {"status": status}, subresource="status"))


def counted(api: StormyApi) -> tuple[Any, ...]:
    status = objects.status(found(api, POD_DISRUPTION_BUDGET, "budget"))
    used = objects.status(found(api, RESOURCE_QUOTA, "quota")).get("used", {})
    fields = ("currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods")
    return tuple(status.get(field) for field in fields), used.get("pods"), used.get("count/pods")


def found(api: StormyApi, kind: Any, name: str) -> dict[str, Any]:
    return next(each for each in api.list(kind).items if objects.name(each) == name)


def names(api: StormyApi) -> set[str]:
    return {objects.name(each) for each in api.list(POD).items if not objects.is_deleting(each)}


@pytest.mark.parametrize("api", range(3), indirect=True)
def test_what_counts_comes_to_the_right_numbers_whatever_fails(api: StormyApi, manager: Manager):
    for name in ("good", "bad"):
        api.create(NODE, {"metadata": {"name": name}, "spec": {}, "status": condition("True")})
    hard = {"hard": {"pods": "50", "count/pods": "50"}}
    api.create(RESOURCE_QUOTA, {"metadata": {"name": "quota", "namespace": SPACE}, "spec": hard})
    selector = {"matchLabels": {"app": "web"}}
    meta = {"name": "budget", "namespace": SPACE, "generation": 1}
    api.create(POD_DISRUPTION_BUDGET, {"metadata": meta, "spec": {"selector": selector, "minAvailable": 3}})
    for number in range(PODS):
        labelled = {"name": f"p{number}", "namespace": SPACE, "labels": {"app": "web"}}
        spec = {"nodeName": "bad" if number < 2 else "good"}
        status = {"phase": "Running", **condition("True")}
        api.create(POD, {"metadata": labelled, "spec": spec, "status": status})
    # a creation is the API server's to charge; the fake one does not, so the quota is asked to count
    api.stormy = True
    for number in range(2, 7):
        set_pod(api, number, phase="Failed", conditions=[])
    manager.stop()
    manager.start()
    set_pod(api, 7, **condition("False"))
    insist(lambda: api.patch(NODE, "bad", "", {"status": condition("Unknown")}, subresource="status"))
    # two of five that have ended stay; two leave the silent node, which they do not tolerate
    until(lambda: len(names(api)) == PODS - 3 - 2, PATIENCE_S)
    assert {"p0", "p1"}.isdisjoint(names(api))
    for pod in api.list(POD).items:
        if objects.is_deleting(pod):
            insist(functools.partial(api.delete, POD, objects.name(pod), SPACE, grace_s=0))
    # p7 to p11 live, all but p7 ready; two ended ones are still selected
    until(lambda: counted(api) == ((4, 3, 1, 7), "5", "7"), PATIENCE_S)
    taints = objects.spec(found(api, NODE, "bad"))["taints"]
    assert [each["key"] for each in taints] == [UNREACHABLE]
