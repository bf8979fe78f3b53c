"""Binding on an API that refuses and loses answers, by controllers that are killed in the middle."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from minik8s_modules.api import objects
from minik8s_modules.api.errors import StatusError
from minik8s_modules.api.kinds import PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM
from minik8s_modules.api.storage import claims
from minik8s_modules.base.errors import TemporaryError
from minik8s_modules.controllers.storage.controllers import ClaimController, VolumeController
from tests.support.load.storms import READS_TOO, Manager, StormyApi
from tests.support.waiting import until
from tests.support.workloads import SPACE

CLAIMS, PATIENCE_S = 30, 60


def volume(number: int) -> objects.JsonObject:
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/data"}}
    reclaim = {"persistentVolumeReclaimPolicy": "Retain", "storageClassName": ("", "fast")[number % 2]}
    return {"metadata": {"name": f"v{number}"}, "spec": {**spec, **reclaim}, "status": {"phase": "Pending"}}


def claim(number: int) -> objects.JsonObject:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    meta = {"name": f"c{number}", "namespace": SPACE}
    return {"metadata": meta, "spec": {**spec, "storageClassName": ("", "fast")[number % 2]}, "status": {}}


def insist(call: Callable[[], object]) -> None:
    def done() -> bool:
        try:
            call()
        except StatusError as error:
            return error.code in {404, 409}  # its answer was lost
        except TemporaryError:
            return False
        return True

    until(done, PATIENCE_S)


def pairs(api: StormyApi) -> set[tuple[str, str]]:
    """Return (claim, volume) of what is bound on both sides."""
    volumes = {objects.name(each): each for each in api.list(PERSISTENT_VOLUME).items}
    found = set()
    for each in api.list(PERSISTENT_VOLUME_CLAIM).items:
        held = volumes.get(str(objects.spec(each).get("volumeName")))
        if held is None or not claims.is_bound(each) or objects.status(held).get("phase") != "Bound":
            continue
        reference = claims.holder(held)
        assert reference is not None
        assert (reference.key, reference.uid) == (objects.key(each), objects.uid(each))
        found.add((objects.name(each), objects.name(held)))
    return found


@pytest.mark.parametrize("seed", range(3))
def test_every_claim_gets_a_volume_of_its_own_whatever_fails(seed: int):
    api = StormyApi(seed, verbs=READS_TOO, stormy=False)
    for number in range(CLAIMS):
        api.create(PERSISTENT_VOLUME, volume(number))
    manager = Manager(api, ClaimController, VolumeController)
    manager.start()
    try:
        api.stormy = True
        for number in range(CLAIMS):
            if number % 10 == 5:
                manager.stop()
                manager.start()
            insist(lambda number=number: api.create(PERSISTENT_VOLUME_CLAIM, claim(number)))  # type: ignore[misc]
        api.stormy = False
        until(lambda: len(pairs(api)) == CLAIMS, PATIENCE_S)
        assert len({each for _, each in pairs(api)}) == CLAIMS
        api.stormy = True
        insist(lambda: api.delete(PERSISTENT_VOLUME_CLAIM, "c3", SPACE))
        api.stormy = False
        until(lambda: sum(phase(each) == "Released" for each in api.list(PERSISTENT_VOLUME).items) == 1, PATIENCE_S)
    finally:
        api.stormy = False
        manager.stop()


def phase(obj: objects.JsonObject) -> str:
    return str(objects.status(obj).get("phase"))
