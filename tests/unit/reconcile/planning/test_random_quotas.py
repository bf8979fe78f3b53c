"""Random rollouts where a quota has no room for all Pods: those that a plan says come and go are those that do."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.errors import Forbidden
from minik8s_modules.api.kinds import DEPLOYMENT, JOB, POD, REPLICA_SET, STATEFUL_SET, Kind
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.reconcile.planning.simulated_admission import Admitting
from tests.support.load.storms import StormyApi
from tests.support.workloads import SPACE
from tests.unit.reconcile.planning.test_random_rollouts import SCENARIOS, Rolled, Scenario, follow


class Limiting(StormyApi):
    """Refuses Pods beyond a number."""

    most = 0

    def create(self, kind: Kind, *arguments: Any, **options: Any) -> JsonObject:
        """Create an object."""
        with self._counting:
            if kind == POD and len(self.list(POD).items) >= self.most:
                raise Forbidden(POD, objects.name(arguments[0]), "exceeded quota: q")
            return super().create(kind, *arguments, **options)

    def __init__(self, most: int) -> None:
        self._counting, self.most = threading.Lock(), most
        super().__init__(1, stormy=False)


class Limited(Scenario):
    """A workload whose size changes, or its template: where both do, timing decides which Pods get the room.

    So it does which of several Pods with names of their own come first, where they come together.
    """

    def __init__(self, seed: int) -> None:
        dice = random.Random(seed)
        kind = dice.choice([DEPLOYMENT, REPLICA_SET, STATEFUL_SET, JOB])
        super().__init__(next(each for each in range(seed * 1000, seed * 1000 + 1000) if Scenario(each).kind is kind))
        self.bounds, self.most = None, dice.randint(1, 5)
        if dice.random() < 0.5:
            self.then = {**self.first, **({} if kind is JOB else {"image": "web:2"})}
        else:
            self.then.pop("image", None)
        for fields in (self.first, self.then):
            if kind is STATEFUL_SET:
                fields["podManagementPolicy"] = "OrderedReady"


class RolledWithin(Rolled):
    """The cluster of a scenario, whose API refuses Pods."""

    scenario: Limited

    def made_api(self) -> StormyApi:
        """Return the API."""
        return Limiting(self.scenario.most)

    def admitting(self) -> Admitting:
        """Return what charges the quota."""
        quota = {"metadata": {"name": "q", "namespace": SPACE}, "spec": {"hard": {"pods": str(self.scenario.most)}}}
        return Admitting({"pods": {}, "quotas": [quota]})


@pytest.mark.parametrize("seed", range(SCENARIOS // 2))
def test_a_plan_within_a_quota_is_what_happens(seed: int):
    scenario = Limited(seed)
    scenario.make_room()
    follow(RolledWithin(scenario))
