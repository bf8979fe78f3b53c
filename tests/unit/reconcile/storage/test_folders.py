"""Which node has which volume's folder, and what volumes are told of theirs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from minik8s_modules.api.kinds import PERSISTENT_VOLUME
from minik8s_modules.api.objects import JsonObject
from minik8s_modules.base.clock import SystemClock
from minik8s_modules.client.fake import FakeApi
from minik8s_modules.reconcile.feeds.folder_feed import FolderFeed
from minik8s_modules.reconcile.storage.folders import folders
from minik8s_modules.reconcile.values.items import Outcome
from tests.unit.reconcile.loop.test_loop import until

NODES = [
    {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": f"{name}.example"}},
        "status": {"addresses": [{"type": "InternalIP", "address": address}]},
    }
    for name, address in (("n1", "10.0.0.1"), ("n2", "10.0.0.2"))
]
ON_NFS = {"nfs": {"server": "10.0.0.2", "path": "/srv/share/pvc-1"}}
GOING: JsonObject = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["minik8s.io/volume-folder"]}


def on_host(*hosts: str) -> JsonObject:
    here = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [*hosts]}]}
    return {
        "hostPath": {"path": "/var/lib//volumes/pvc-1"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [here]}},
    }


def volume(spec: JsonObject, phase: str = "Bound", policy: str = "Delete", **meta: Any) -> JsonObject:
    marks = {"pv.kubernetes.io/provisioned-by": "minik8s.io/nfs"}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "pvc-1", "uid": "u1", "annotations": marks, **meta},
        "spec": {"persistentVolumeReclaimPolicy": policy, **spec},
        "status": {"phase": phase},
    }


def entry(root: str, state: str = "present") -> JsonObject:
    on_nfs = {"exported": True} if root.startswith("/srv") else {}
    return {"pvc-1": {"root": root, "name": "pvc-1", "owner": "u1", "state": state, **on_nfs}}


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        (ON_NFS, {"n2": entry("/srv/share")}),
        (on_host("n1.example"), {"n1": entry("/var/lib/volumes")}),
        (on_host("n1.example", "n2.example"), {}),
        (on_host("gone.example"), {}),
        ({"hostPath": {"path": "/data/pvc-1"}}, {}),
        ({"nfs": {"server": "10.0.0.9", "path": "/srv/share/pvc-1"}}, {}),
    ],
)
def test_a_folder_is_on_the_one_machine_that_has_the_data(spec: JsonObject, found: JsonObject) -> None:
    assert folders([volume(spec)], NODES) == found


def test_a_folder_has_a_size_where_its_class_says_so() -> None:
    marks = {"pv.kubernetes.io/provisioned-by": "minik8s.io/nfs", "minik8s.io/volume-quota": "project"}
    limited = volume({**ON_NFS, "capacity": {"storage": "1Gi"}}, annotations=marks)
    assert folders([limited], NODES)["n2"]["pvc-1"]["size_bytes"] == 1 << 30
    gone = volume({**ON_NFS, "capacity": {"storage": "1Gi"}}, "Released", annotations=marks, **GOING)
    assert folders([gone], NODES) == {"n2": entry("/srv/share", "absent")}


def test_an_address_that_two_nodes_say_they_have_draws_no_folder() -> None:
    liar = {"metadata": {"name": "liar"}, "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.2"}]}}
    assert folders([volume(ON_NFS)], [*NODES, liar]) == {}


def test_volumes_of_others_have_no_folder_of_ours() -> None:
    assert folders([volume(ON_NFS, annotations={})], NODES) == {}
    assert folders([volume(ON_NFS, annotations={"pv.kubernetes.io/provisioned-by": "nfs.csi.k8s.io"})], NODES) == {}


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({"phase": "Released", **GOING}, "absent"),
        ({"phase": "Failed", **GOING}, "absent"),
        ({"phase": "Released", "policy": "Retain", **GOING}, ""),
        ({"phase": "Bound", **GOING}, ""),
        ({"phase": "Released", **GOING, "finalizers": ["kubernetes.io/pv-protection", *GOING["finalizers"]]}, ""),
        ({"phase": "Released", **GOING, "finalizers": ["example.com/other"]}, ""),
        ({"phase": "Released", "finalizers": GOING["finalizers"]}, "present"),
    ],
)
def test_a_folder_is_deleted_only_when_its_volume_is_nobodys(fields: JsonObject, state: str) -> None:
    found = folders([volume(ON_NFS, **fields)], NODES)
    assert found == ({"n2": entry("/srv/share", state)} if state else {})


class World:
    """A feed over a fake API, with what it tells."""

    def __init__(self, *volumes: JsonObject, active: bool = True) -> None:
        self.api, self.events, self.changed = FakeApi(), list[tuple[str, str]](), threading.Event()
        for each in volumes:
            self.api.create(PERSISTENT_VOLUME, each)
        self.feed = FolderFeed(self.api, lambda: NODES, self, self.changed.set, SystemClock(), active=active)
        self.feed.start()

    def event(self, _obj: JsonObject, _kind: str, reason: str, message: str) -> None:
        """Record one."""
        self.events.append((reason, message))

    def answers(self, status: JsonObject, **errors: str) -> None:
        """Have the node answer."""
        fields = {"status": status, "errors": {key: {"reason": "R", "message": text} for key, text in errors.items()}}
        self.feed.on_outcome(Outcome("1", "n2", "ok", {"folders": fields}, ""))

    def reason(self) -> str:
        """Return the reason in the volume's status."""
        return str(self.api.get(PERSISTENT_VOLUME, "pvc-1")["status"].get("reason") or "")


@pytest.fixture
def worlds() -> Iterator[list[World]]:
    made: list[World] = []
    yield made
    for each in made:
        each.feed.stop()


def test_a_volume_is_told_that_its_folder_is_deleted(worlds: list[World]) -> None:
    world = World(volume(ON_NFS, "Released", **GOING))
    worlds.append(world)
    until(lambda: world.feed.of() == {"n2": entry("/srv/share", "absent")})
    world.answers({"pvc-1": None}, **{"pvc-1": "busy"})
    world.answers({"pvc-1": None}, **{"pvc-1": "busy"})
    assert world.events == [("VolumeFailedDelete", "node n2: busy")]
    assert world.reason() == ""
    world.answers({"pvc-1": {"state": "absent"}})
    until(lambda: world.reason() == "FolderDeleted")


def test_a_volume_that_stays_is_told_nothing(worlds: list[World]) -> None:
    world = World(volume(ON_NFS))
    worlds.append(world)
    until(lambda: world.feed.of() == {"n2": entry("/srv/share")})
    world.answers({"pvc-1": {"state": "present"}})
    world.answers({"pvc-1": {"state": "absent"}})  # an answer to what was asked before
    world.answers({"pvc-1": None}, **{"pvc-1": "no space"})
    assert world.events == [("FailedToMakeFolder", "node n2: no space")]
    world.answers({"pvc-1": {"state": "present"}})
    assert world.events[1:] == [("FolderMade", "node n2: the folder is there")]
    assert world.reason() == ""


def test_changes_of_volumes_are_followed(worlds: list[World]) -> None:
    world = World()
    worlds.append(world)
    until(lambda: world.feed.wait_synced(0))
    assert world.feed.of() == {}
    world.changed.clear()
    world.api.create(PERSISTENT_VOLUME, volume(ON_NFS))
    assert world.changed.wait(10)
    assert world.feed.of() == {"n2": entry("/srv/share")}


def test_a_nodes_own_reconciler_reads_no_volumes(worlds: list[World]) -> None:
    world = World(volume(ON_NFS), active=False)
    worlds.append(world)
    assert world.feed.wait_synced(0)
    assert world.feed.of() == {}
