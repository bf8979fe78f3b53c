"""Which volumes a node is asked about, and what is told of them."""

from __future__ import annotations

from minik8s_modules.api.objects import JsonObject
from minik8s_modules.reconcile.housekeeping.volume_room import EVERY_S, LOOK_S
from tests.unit.reconcile.housekeeping.test_housekeeper import _Kept, pod

CLAIM = {"name": "data", "persistentVolumeClaim": {"claimName": "shop-data"}}
SCRATCH = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}


def placed(name: str, phase: str, *volumes: JsonObject) -> JsonObject:
    made = pod(name, volumes=[*volumes, {"name": "empty", "emptyDir": {}}])
    return {**made, "metadata": {**made["metadata"], "namespace": "shop"}, "status": {"phase": phase}}


def test_the_volumes_of_claims_are_asked_every_minute_and_told_by_their_claims():
    kept = _Kept()
    kept.world.api = [placed("p", "Running", CLAIM, SCRATCH), placed("over", "Succeeded", CLAIM)]
    assert kept.asked() == ["usage"]
    assert kept.options() == {"node": "n1", "mounted": ["p/data", "p/scratch"]}
    kept.answer({"rooms": {"p/data": {"capacity_bytes": 8, "odd": "x"}, "of/others": {"capacity_bytes": 9}}})
    assert kept.world.full == [{("shop", "shop-data"): {"capacity_bytes": 8}}]
    assert kept.asked() == []
    kept.clock.advance(LOOK_S)
    assert kept.asked() == ["usage"], "what was not mounted yet is by now"
    kept.answer({"rooms": {}})
    kept.clock.advance(LOOK_S)
    assert kept.asked() == []
    kept.clock.advance(EVERY_S)
    assert kept.asked() == ["usage"]
    kept.answer({"rooms": {}})
    kept.clock.advance(LOOK_S)
    kept.world.api = []
    assert kept.asked() == []
    assert kept.world.full[-1] == {}


def test_a_node_that_answers_nonsense_tells_nothing():
    kept = _Kept()
    kept.world.api = [placed("p", "Running", CLAIM)]
    kept.asked()
    kept.answer({"rooms": ["full"]})
    assert kept.world.full == [{}]
