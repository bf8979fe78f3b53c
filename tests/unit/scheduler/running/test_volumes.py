"""Pods whose claims wait for their node: what is written to volumes and claims, and what becomes of a binding."""

from __future__ import annotations

from functools import partial

from minik8s_modules.api import objects
from minik8s_modules.api.errors import Conflict
from minik8s_modules.api.kinds import (
    CSI_DRIVER,
    CSI_STORAGE_CAPACITY,
    NODE,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    STORAGE_CLASS,
)
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.api.storage.claims import BIND_COMPLETED, SELECTED_NODE
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.scheduler.profiles.configuration import ProfileSettings, Settings
from minik8s_modules.scheduler.running.scheduler import Scheduler
from tests.unit.scheduler.conftest import Start
from tests.unit.scheduler.worlds import (
    claim,
    condition_of,
    csi_driver,
    node,
    node_of,
    storage_capacity,
    storage_class,
    until,
    using,
    volume,
)

HOST = "kubernetes.io/hostname"


def world(api: FakeApi, *, provisioner: str = "kubernetes.io/no-provisioner") -> None:
    for name in "ab":
        api.create(NODE, node(name, labels={HOST: name}))
    api.create(STORAGE_CLASS, storage_class("late", provisioner=provisioner))
    api.create(PERSISTENT_VOLUME_CLAIM, claim("data", **{"class": "late"}))


def selected(api: FakeApi, name: str = "data") -> str:
    return objects.annotations(api.get(PERSISTENT_VOLUME_CLAIM, name, "default")).get(SELECTED_NODE, "")


def holder(api: FakeApi, name: str) -> JsonObject:
    return objects.spec(api.get(PERSISTENT_VOLUME, name)).get("claimRef") or {}


def complete(api: FakeApi, volume_name: str, name: str = "data") -> None:
    """Bind as the controller of volumes does."""
    body = {"metadata": {"annotations": {BIND_COMPLETED: "yes"}}, "spec": {"volumeName": volume_name}}
    api.patch(PERSISTENT_VOLUME_CLAIM, name, "default", body)


def test_a_volume_at_one_node_takes_the_pod_there(api: FakeApi, scheduler: Scheduler):
    world(api)
    api.create(PERSISTENT_VOLUME, volume("at-b", hosts=["b"], **{"class": "late"}))
    api.create(POD, using("p", "data"))
    until(lambda: holder(api, "at-b"))
    assert (holder(api, "at-b")["name"], holder(api, "at-b")["uid"]) == ("data", "data")
    assert node_of(api, "p") == ""
    complete(api, "at-b")
    until(lambda: node_of(api, "p") == "b")


def test_a_pod_waits_until_its_driver_has_room(api: FakeApi, start: Start):
    world(api, provisioner="disk.example.com")
    api.create(CSI_DRIVER, csi_driver("disk.example.com"))
    full = storage_capacity("room", "late", capacity="1Ki") | {"nodeTopology": {"matchLabels": {HOST: "b"}}}
    api.create(CSI_STORAGE_CAPACITY, full)
    start()
    api.create(POD, using("p", "data"))
    until(lambda: "not have enough free storage" in condition_of(api, "p").get("message", ""))
    api.patch(CSI_STORAGE_CAPACITY, "room", "default", {"capacity": "9Ti"})
    until(lambda: selected(api) == "b")


def test_a_provisioner_is_told_the_node(api: FakeApi, scheduler: Scheduler):
    world(api, provisioner="example.com/disk")
    api.create(POD, using("p", "data"))
    until(partial(selected, api))
    chosen = selected(api)
    api.create(PERSISTENT_VOLUME, volume("made", hosts=[chosen], claim="data", **{"class": "late"}))
    complete(api, "made")
    until(lambda: node_of(api, "p") == chosen)


def test_what_was_not_provisioned_is_tried_again(api: FakeApi, scheduler: Scheduler):
    world(api, provisioner="example.com/disk")
    api.create(POD, using("p", "data"))
    until(partial(selected, api))
    api.patch(PERSISTENT_VOLUME_CLAIM, "data", "default", {"metadata": {"annotations": {SELECTED_NODE: None}}})
    until(lambda: "provisioning failed for PVC" in condition_of(api, "p").get("message", "") or selected(api))
    until(partial(selected, api))
    api.create(PERSISTENT_VOLUME, volume("made", claim="data", **{"class": "late"}))
    complete(api, "made")
    until(lambda: node_of(api, "p"))


def test_a_pod_that_goes_while_its_volume_is_made_leaves_its_node_free(api: FakeApi, scheduler: Scheduler):
    world(api, provisioner="example.com/disk")
    whole = [{"name": "c", "resources": {"requests": {"cpu": "4"}}}]
    api.create(POD, using("p", "data", containers=whole, nodeSelector={HOST: "a"}))
    until(partial(selected, api))
    api.delete(POD, "p", "default")
    api.create(POD, using("q", containers=whole, nodeSelector={HOST: "a"}))
    until(lambda: node_of(api, "q") == "a")


def test_pods_that_wait_for_volumes_hold_up_no_others(api: FakeApi, scheduler: Scheduler):
    world(api, provisioner="example.com/disk")
    for number in range(12):
        api.create(PERSISTENT_VOLUME_CLAIM, claim(f"data{number}", **{"class": "late"}))
        api.create(POD, using(f"p{number}", f"data{number}"))
    for number in range(12):
        until(partial(selected, api, f"data{number}"))
    api.create(POD, using("other"))
    until(lambda: node_of(api, "other"))
    assert not any(node_of(api, f"p{number}") for number in range(12))


def test_one_volume_is_given_to_one_claim(api: FakeApi, scheduler: Scheduler):
    world(api)
    api.create(PERSISTENT_VOLUME, volume("only", **{"class": "late"}))
    api.create(PERSISTENT_VOLUME_CLAIM, claim("more", **{"class": "late"}))
    for name in ("data", "more"):
        api.create(POD, using(f"p-{name}", name))
    until(lambda: holder(api, "only"))
    won = holder(api, "only")["name"]
    lost = {"data": "more", "more": "data"}[won]
    words = "node(s) didn't find available persistent volumes to bind"
    until(lambda: words in condition_of(api, f"p-{lost}").get("message", ""))
    complete(api, "only", won)
    until(lambda: node_of(api, f"p-{won}"))
    api.create(PERSISTENT_VOLUME, volume("second", **{"class": "late"}))
    until(lambda: holder(api, "second").get("name") == lost)
    complete(api, "second", lost)
    until(lambda: node_of(api, f"p-{lost}"))


def test_a_volume_that_could_not_be_written_is_free_again(api: FakeApi, scheduler: Scheduler, monkeypatch):
    world(api)
    update, refused = api.update, list[str]()

    def failing(kind, obj, **more):
        if kind == PERSISTENT_VOLUME and not refused:
            refused.append(objects.name(obj))
            raise Conflict(kind, objects.name(obj))
        return update(kind, obj, **more)

    monkeypatch.setattr(api, "update", failing)
    api.create(PERSISTENT_VOLUME, volume("only", **{"class": "late"}))
    api.create(POD, using("p", "data"))
    until(lambda: holder(api, "only"))
    assert refused == ["only"]
    complete(api, "only")
    until(lambda: node_of(api, "p"))


def test_waiting_for_volumes_ends(api: FakeApi, start: Start):
    profile = ProfileSettings(arguments={"VolumeBinding": {"bindTimeoutSeconds": 0}})
    start(Settings((profile,), backoff_s=(0.05, 0.2)))
    world(api, provisioner="example.com/disk")
    api.create(POD, using("p", "data"))
    until(lambda: "binding volumes: context deadline exceeded" in condition_of(api, "p").get("message", ""))
    assert selected(api)


def test_a_claim_that_is_bound_wakes_its_pod(api: FakeApi, scheduler: Scheduler):
    api.create(NODE, node("a"))
    api.create(POD, using("p", "data"))
    until(lambda: 'persistentvolumeclaim "data" not found' in condition_of(api, "p").get("message", ""))
    api.create(PERSISTENT_VOLUME_CLAIM, claim("data"))
    until(lambda: "pod has unbound immediate PersistentVolumeClaims" in condition_of(api, "p").get("message", ""))
    api.create(PERSISTENT_VOLUME, volume("v", claim="data"))
    complete(api, "v")
    until(lambda: node_of(api, "p") == "a")


def test_another_scheduler_goes_on_where_one_was_killed_after_it_had_chosen_the_node(api: FakeApi, start: Start):
    world(api, provisioner="example.com/disk")
    api.patch(PERSISTENT_VOLUME_CLAIM, "data", "default", {"metadata": {"annotations": {SELECTED_NODE: "b"}}})
    api.create(POD, using("p", "data"))
    start()
    api.create(PERSISTENT_VOLUME, volume("made", hosts=["b"], claim="data", **{"class": "late"}))
    complete(api, "made")
    until(lambda: node_of(api, "p") == "b")
