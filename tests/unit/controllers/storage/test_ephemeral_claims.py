"""Claims that are made for pods: by whom they are owned, and when none is made."""

from __future__ import annotations

from functools import partial
from typing import Any

from minik8s_modules.api import objects
from minik8s_modules.api.kinds import PERSISTENT_VOLUME_CLAIM, POD
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.controllers.core.steps import Create, RecordEvent
from minik8s_modules.controllers.storage.ephemeral import EphemeralController, decide_ephemeral
from tests.support.load.storms import Manager, StormyApi
from tests.support.waiting import until

SPEC = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
CLASH = "ephemeral volume scratch: PVC shop/web-scratch was not created for pod shop/web (pod is not owner)"


def pod(**meta: Any) -> JsonObject:
    template = {"metadata": {"labels": {"app": "web"}, "annotations": {"a": "b"}}, "spec": SPEC}
    volumes = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}, {"name": "tmp", "emptyDir": {}}]
    spec = {"containers": [{"name": "app", "image": "a:1"}], "volumes": volumes}
    return {"metadata": {"name": "web", "namespace": "shop", **meta}, "spec": spec}


def strange() -> JsonObject:
    return {"metadata": {"name": "web-scratch", "namespace": "shop"}, "spec": SPEC}


def test_a_pod_owns_the_claim_that_is_made_by_its_template():
    (step,) = decide_ephemeral(pod(uid="u"), {})
    assert isinstance(step, Create)
    assert step.obj["spec"] == SPEC
    meta = step.obj["metadata"]
    assert (meta["name"], meta["labels"], meta["annotations"]) == ("web-scratch", {"app": "web"}, {"a": "b"})
    (owner,) = meta["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"], owner["controller"]) == ("Pod", "web", "u", True)
    assert decide_ephemeral(pod(uid="u"), {"web-scratch": step.obj}) == []


def test_none_is_made_for_a_pod_that_goes():
    assert decide_ephemeral(pod(uid="u", deletionTimestamp="2026-01-01T00:00:00Z"), {}) == []


def test_a_claim_of_the_name_that_is_somebody_elses_is_left_alone_and_told():
    (step,) = decide_ephemeral(pod(uid="u"), {"web-scratch": strange()})
    assert isinstance(step, RecordEvent)
    assert (step.reason, step.message) == ("FailedBinding", CLASH)


def claims(api: FakeApi) -> list[JsonObject]:
    found: list[JsonObject] = api.list(PERSISTENT_VOLUME_CLAIM).items
    return found


def owners(api: FakeApi) -> dict[str, str]:
    return {objects.name(one): str((objects.controller_of(one) or {}).get("name", "")) for one in claims(api)}


def has_owners(api: FakeApi, wanted: dict[str, str]) -> bool:
    return owners(api) == wanted


def test_claims_are_made_once_though_writes_fail_and_answers_are_lost():
    for seed in range(5):
        api = StormyApi(seed)
        manager = Manager(api, EphemeralController)
        manager.start()
        try:
            api.stormy = False
            made = [api.create(POD, {**pod(), "metadata": {"name": f"p{n}", "namespace": "shop"}}) for n in range(6)]
            api.stormy = True
            wanted = {f"{objects.name(each)}-scratch": objects.name(each) for each in made}
            until(partial(has_owners, api, wanted), 60)
        finally:
            manager.stop()


def test_a_claim_is_made_once_its_name_is_free():
    api = StormyApi(1, stormy=False)
    api.create(PERSISTENT_VOLUME_CLAIM, strange())
    manager = Manager(api, EphemeralController)
    manager.start()
    try:
        api.create(POD, pod())
        api.create(POD, {**pod(), "metadata": {"name": "later", "namespace": "shop"}})
        until(lambda: len(claims(api)) == 2, 60)
        assert owners(api)["web-scratch"] == ""
        api.delete(PERSISTENT_VOLUME_CLAIM, "web-scratch", "shop")
        until(lambda: owners(api).get("web-scratch") == "web", 60)
    finally:
        manager.stop()
