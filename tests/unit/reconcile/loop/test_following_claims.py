"""A pod's claim leads to its volume, in whatever order the API tells of them."""

from __future__ import annotations

from minik8s_modules.api.kinds import PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM, SECRET, Kind
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.client.informer import Informer
from minik8s_modules.reconcile.feeds.references import ReferencedObjects
from tests.unit.reconcile.loop.test_loop import until
from tests.unit.reconcile.worlds import UID, pod

POD = pod(spec={"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "shop"}}]})
CLAIM = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "shop", "namespace": "default"}}
VOLUME = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv-1"}, "spec": {}}


def test_a_pod_is_decided_once_its_claims_volume_is_known():
    api, result = FakeApi(), list[frozenset[str]]()
    api.create(PERSISTENT_VOLUME, VOLUME)
    known = ReferencedObjects(lambda kind, space, _name: Informer(api, kind, space), result.append)
    try:
        known.follow(POD)
        until(lambda: known.ready(UID))
        assert known.of(UID, "PersistentVolumeClaim") == {}
        before = len(result)
        bound = {"spec": {"volumeName": "pv-1"}, "status": {"phase": "Bound"}}
        api.create(PERSISTENT_VOLUME_CLAIM, {**CLAIM, **bound})
        until(lambda: len(result) > before)
        assert result[-1] == {UID}
        known.follow(POD)  # as the loop does with every pod it is told of
        until(lambda: known.ready(UID) and "pv-1" in known.of(UID, "PersistentVolume"))
        assert [*known.of(UID, "PersistentVolumeClaim")] == ["default/shop"]
        known.forget(UID)
        assert known.of(UID, "PersistentVolume") == {}
    finally:
        known.stop()


def test_a_volume_that_a_claim_only_names_is_not_waited_for():
    api = FakeApi()
    api.create(PERSISTENT_VOLUME_CLAIM, {**CLAIM, "spec": {"volumeName": "pv-1"}, "status": {"phase": "Pending"}})
    asked: list[str] = []

    def make(kind: Kind, space: str, _name: str) -> Informer:
        asked.append(kind.kind)
        return Informer(api, kind, space)

    known = ReferencedObjects(make, lambda _: None)
    try:
        known.follow(POD)
        until(lambda: "default/shop" in known.of(UID, "PersistentVolumeClaim"))
        known.follow(POD)
        assert PERSISTENT_VOLUME.kind not in asked
        assert known.ready(UID)
    finally:
        known.stop()


def test_the_secrets_that_a_driver_is_told_on_nodes_come_with_its_volume():
    api = FakeApi()
    source = {"driver": "d", "volumeHandle": "h", "nodeStageSecretRef": {"name": "disk", "namespace": "storage"}}
    api.create(PERSISTENT_VOLUME, {**VOLUME, "spec": {"csi": source}})
    api.create(PERSISTENT_VOLUME_CLAIM, {**CLAIM, "spec": {"volumeName": "pv-1"}, "status": {"phase": "Bound"}})
    api.create(SECRET, {"metadata": {"name": "disk", "namespace": "storage"}, "data": {"key": "dg=="}})
    known = ReferencedObjects(lambda kind, space, _name: Informer(api, kind, space), lambda _: None)

    def found() -> bool:
        known.follow(POD)
        return known.ready(UID) and [*known.of(UID, "Secret")] == ["storage/disk"]

    try:
        until(found)
    finally:
        known.stop()
